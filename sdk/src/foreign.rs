//! Profiles that something else in this program makes, served like ours: other profilers, allocators,
//! counters of the program's own.
//!
//! ```
//! use pilotlight::{Kind, foreign};
//!
//! # fn dump() -> std::io::Result<Vec<u8>> { Err(std::io::ErrorKind::Unsupported.into()) }
//! // GET /debug/pprof/arena, ?debug=1; pushed too, with the feature `push`.
//! foreign::add("arena", "Blocks of the arena allocator", Kind::Level, || Ok(dump()?))?;
//! # Ok::<(), pilotlight::Error>(())
//! ```

use std::error::Error as StdError;

use pilotlight_profile::{Limits, Mode, Profile, decode};

use crate::types::{self, Ask, Kind, Source};
use crate::{Error, symbols};

/// What makes the profile: pprof, gzipped or not.
type Take = dyn Fn() -> Result<Profile, String> + Send + Sync;

struct Foreign {
    name: &'static str,
    description: &'static str,
    kind: Kind,
    take: Box<Take>,
}

/// Serves what `take` returns, pprof gzipped or not, as `/debug/pprof/NAME`. It is called once for a
/// request (twice for a difference), on a thread that may block. A type of the same name that was
/// added before is replaced.
///
/// # Errors
/// When the name is none (`a-z`, `0-9`, `_`) or one of pilotlight's own, or the kind is neither
/// [`Kind::Cumulative`] nor [`Kind::Level`].
pub fn add(
    name: &'static str,
    description: &'static str,
    kind: Kind,
    take: impl Fn() -> Result<Vec<u8>, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
) -> Result<(), Error> {
    let decoded = move || {
        let bytes = take().map_err(|error| error.to_string())?;
        let decoded = decode(&bytes, Mode::Tolerant, &Limits::default());
        Ok(decoded.map_err(|error| error.to_string())?.profile)
    };
    add_profiles(name, description, kind, decoded)
}

/// As [`add`], for what makes profiles of ours.
///
/// # Errors
/// As [`add`].
pub fn add_profiles(
    name: &'static str,
    description: &'static str,
    kind: Kind,
    take: impl Fn() -> Result<Profile, String> + Send + Sync + 'static,
) -> Result<(), Error> {
    let refused = |why: &str| {
        Err(Error::Profile {
            name: name.to_string(),
            why: why.to_string(),
        })
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        return refused("a name is made of a-z, 0-9 and _");
    }
    if types::is_built_in(name) {
        return refused("pilotlight has a type of this name; choose another");
    }
    if !matches!(kind, Kind::Cumulative { .. } | Kind::Level) {
        return refused("what is added is cumulative or a level");
    }
    // Never freed: requests in progress may use one that is replaced.
    types::add(Box::leak(Box::new(Foreign {
        name,
        description,
        kind,
        take: Box::new(take),
    })));
    Ok(())
}

impl Source for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        self.description
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn cost(&self) -> String {
        "not known here: the program added it".into()
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        symbols::on_own_thread(|| (self.take)())
    }
}
