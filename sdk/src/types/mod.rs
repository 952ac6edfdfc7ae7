//! The registry of profile types: what there is, whether it is on, and how to take it.
//!
//! A type is one [`Source`]. Routes, index page, run-time switches and `?seconds=` differences come
//! from here, so a new type is one file and one line in [`BUILT_IN`].

mod cpu;
mod delta;
mod heap;
mod plain;
mod tasks;
pub(crate) mod text;
mod threads;
#[cfg(all(feature = "lock-hooks", target_os = "linux"))]
mod waits;
mod wall;

use std::time::Duration;

use pilotlight_profile::Profile;

use crate::Error;
use crate::fork::{Held, Lock};
use crate::heap::Shown;
pub(crate) use delta::Delta;

/// Types that every build has; those of features register themselves under `cfg`.
static BUILT_IN: &[&dyn Source] = &[
    &heap::Heap(Shown::Allocated),
    &tasks::Await,
    #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
    &waits::Blocked(crate::locks::Waits::All),
    #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
    &waits::Blocked(crate::locks::Waits::Locks),
    &plain::Cmdline,
    &heap::Heap(Shown::InUse),
    &cpu::Cpu,
    &plain::Symbol,
    &tasks::Tasks,
    &threads::THREADS,
    &threads::GOROUTINE,
    &threads::ThreadCreate,
    &wall::WALL,
    &wall::OFF_CPU,
];

/// Types that the program added while it runs.
static ADDED: Lock<Vec<&'static dyn Source>> = Lock::new(Vec::new());

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &ADDED
}

/// One type of profile.
pub(crate) trait Source: Sync {
    /// Last part of its path; `a-z`, `0-9` and `_`.
    fn name(&self) -> &'static str;

    /// What it is, for the index page.
    fn description(&self) -> &'static str;

    /// How it is taken.
    fn kind(&self) -> Kind;

    /// Whether it can be had now.
    fn state(&self) -> State {
        State::On
    }

    /// Switches it; the error says why it cannot be, and what to do.
    fn set_enabled(&self, _on: bool) -> Result<(), String> {
        Err("it has no switch".into())
    }

    /// What it costs as it stands now, in words and figures.
    fn cost(&self) -> String;

    /// Records it holds now. Of a [`Kind::Window`] the captures that run are shown instead.
    fn count(&self) -> usize {
        0
    }

    /// What it holds now: [`Kind::Cumulative`] and [`Kind::Level`].
    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        Err("it is no snapshot; give seconds".into())
    }

    /// Begins sampling: [`Kind::Window`].
    fn begin(&self, _ask: &Ask<'_>) -> Result<Box<dyn Running>, String> {
        Err("it is not sampled over a time".into())
    }

    /// A text form of its own: the whole of a [`Kind::Text`], and `debug=1` or more of the others
    /// where the general form of [`text::render`] says too little.
    fn text(&self, _ask: &Ask<'_>) -> Option<Result<Vec<u8>, String>> {
        None
    }
}

/// A profile that is being sampled. Dropping it gives it up.
pub(crate) trait Running: Send {
    /// Ends it.
    fn finish(self: Box<Self>) -> Result<Profile, String>;
}

/// What the reader asks for besides the name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask<'a> {
    /// Query as on the wire.
    pub(crate) query: &'a str,
    /// Body of a POST.
    pub(crate) body: Option<&'a [u8]>,
}

impl<'a> Ask<'a> {
    pub(crate) fn query(query: &'a str) -> Ask<'a> {
        Ask { query, body: None }
    }

    /// First value of a parameter, decoded; empty when absent.
    pub(crate) fn value(&self, key: &str) -> String {
        String::from_utf8_lossy(&crate::http::form_value(self.query, key)).into_owned()
    }

    /// A parameter as a number, by Go's `Atoi` with its error ignored.
    pub(crate) fn number(&self, key: &str) -> i64 {
        self.value(key).parse().unwrap_or(0)
    }
}

/// How a type of profile is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Sampled while somebody asks, for `seconds` (default 30).
    Window,
    /// Counted since the process started; with `seconds`, what was added in that time.
    Cumulative {
        /// Names of the value columns that only grow. The others are levels: in a difference they
        /// stand as they were at its end.
        growing: &'static [&'static str],
    },
    /// What is there at the moment; `seconds` is refused.
    Level,
    /// Plain text, no profile.
    Text,
}

/// Whether a type of profile can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It can.
    On,
    /// It cannot.
    Off {
        /// Why.
        why: String,
        /// How to switch it on.
        how_to_switch_on: String,
    },
}

impl State {
    /// Off because it takes what only Linux has.
    pub(crate) fn off_elsewhere() -> State {
        State::Off {
            why: "threads are looked at on Linux only, and not with the feature `backtrace`".into(),
            how_to_switch_on: "run on Linux, or take profile".into(),
        }
    }

    /// Off because somebody switched it off while it ran.
    pub(crate) fn switched_off(name: &str) -> State {
        State::Off {
            why: "switched off".into(),
            how_to_switch_on: format!("pilotlight::set_enabled(\"{name}\", true)"),
        }
    }
}

/// One row of the index page.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProfileType {
    /// Last part of its path, `/debug/pprof/NAME`.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// How it is taken.
    pub kind: Kind,
    /// Whether it can be had now, else why not.
    pub state: State,
    /// What it costs as it stands now, in words and figures.
    pub cost: String,
    /// Records it holds, or captures of it that run over HTTP.
    pub count: usize,
}

/// All types of profiles in this build, sorted by name.
///
/// ```
/// for ty in pilotlight::profile_types() {
///     println!("{}: {:?}, costs {}", ty.name, ty.state, ty.cost);
/// }
/// ```
#[must_use]
pub fn profile_types() -> Vec<ProfileType> {
    all().into_iter().map(row).collect()
}

fn row(source: &dyn Source) -> ProfileType {
    let kind = source.kind();
    let count = match kind {
        Kind::Window => crate::http::running(source.name()),
        _ => source.count(),
    };
    ProfileType {
        name: source.name(),
        description: source.description(),
        kind,
        state: source.state(),
        cost: source.cost(),
        count,
    }
}

/// Switches a type of profile on or off, while the program runs.
///
/// # Errors
/// When there is no such type, or it cannot be switched; the text says what it needs.
pub fn set_enabled(name: &str, on: bool) -> Result<(), Error> {
    named(name)?
        .set_enabled(on)
        .map_err(|why| failed(name, why))
}

/// Takes a profile by the name of its type, in the calling thread: one that is sampled over
/// `window`; of a cumulative one what was added in `window`, or everything so far when it is zero;
/// of the others what is there now.
///
/// # Errors
/// When there is no such type, it is off, or it is text.
pub fn take(name: &str, window: Duration) -> Result<Profile, Error> {
    let source = named(name)?;
    let ask = Ask::default();
    let begun = match source.kind() {
        Kind::Window => source.begin(&ask),
        Kind::Cumulative { .. } if !window.is_zero() => Delta::begin(source, &ask),
        _ => {
            return checked(source)
                .and_then(|()| source.take(&ask))
                .map_err(|why| failed(name, why));
        }
    };
    let running = begun.map_err(|why| failed(name, why))?;
    std::thread::sleep(window);
    running.finish().map_err(|why| failed(name, why))
}

fn named(name: &str) -> Result<&'static dyn Source, Error> {
    find(name).ok_or_else(|| {
        failed(
            name,
            "there is no such type; pilotlight::profile_types() lists them".into(),
        )
    })
}

fn failed(name: &str, why: String) -> Error {
    Error::Profile {
        name: name.to_string(),
        why,
    }
}

/// An error when the type is off, with what to do.
pub(crate) fn checked(source: &dyn Source) -> Result<(), String> {
    match source.state() {
        State::On => Ok(()),
        State::Off {
            why,
            how_to_switch_on,
        } => Err(format!(
            "{} is off: {why}; to switch it on: {how_to_switch_on}",
            source.name()
        )),
    }
}

/// All sources, sorted by name.
pub(crate) fn all() -> Vec<&'static dyn Source> {
    let added = ADDED.lock();
    let mut sources: Vec<&'static dyn Source> =
        BUILT_IN.iter().chain(added.iter()).copied().collect();
    sources.sort_by_key(|source| source.name());
    sources
}

/// The source of a name.
pub(crate) fn find(name: &str) -> Option<&'static dyn Source> {
    all().into_iter().find(|source| source.name() == name)
}

/// Whether every build has a type of this name.
pub(crate) fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|source| source.name() == name)
}

/// Adds a type; one of the same name that was added before is replaced.
pub(crate) fn add(source: &'static dyn Source) {
    let mut added = ADDED.lock();
    added.retain(|known| known.name() != source.name());
    added.push(source);
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
