//! Files that nobody sent: found in folders of this machine, or asked of debuginfod servers.
//!
//! | module | job |
//! |---|---|
//! | `asking` | which build ids to look for, and what was found of others |
//! | `folders` | where a file of a build id may stand in a folder |
//! | `debuginfod` | the client: what is asked, of whom, and where an answer may lead |
//! | `addresses` | which addresses it may connect to |
//! | `look` | one build id, looked for everywhere |

mod addresses;
mod asking;
mod debuginfod;
mod folders;
mod look;

use std::path::PathBuf;
use std::time::Duration;

use pilotlight_wire::Url;

pub use addresses::Network;
pub use asking::{Asked, Asking, Quest};
pub use debuginfod::Client;

/// Where files that frames need are looked for besides uploads. Default: nowhere.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sources {
    /// Folders of this machine, such as `/usr/lib/debug`: `.build-id/ab/cdef.debug` below them, or
    /// files named by build id.
    pub folders: Vec<PathBuf>,
    /// debuginfod servers, asked in this order for `URL/buildid/ID/debuginfo`.
    pub debuginfod: Vec<Url>,
    /// Addresses that the names of these servers may lead to though they are not public.
    pub networks: Vec<Network>,
    /// Bytes of one answer. Default 1 GiB.
    pub max_file_bytes: u64,
    /// Time for one file, redirects included. Default 5 min; a tenth of it may pass in silence.
    pub timeout: Duration,
    /// Requests a minute, redirects included. Default 60.
    pub requests_per_minute: u32,
    /// How long an answer is remembered before the same build id is looked for again. Default 6 h;
    /// at most 10 min where the server was at fault.
    pub ask_again: Duration,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            folders: Vec::new(),
            debuginfod: Vec::new(),
            networks: Vec::new(),
            max_file_bytes: 1 << 30,
            timeout: Duration::from_secs(300),
            requests_per_minute: 60,
            ask_again: Duration::from_secs(6 * 3600),
        }
    }
}

impl Sources {
    /// Whether there is anywhere to look.
    pub fn any(&self) -> bool {
        !self.folders.is_empty() || !self.debuginfod.is_empty()
    }
}

/// What came of looking for a build id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A file was stored.
    Stored,
    /// What was found tells no more than what is stored.
    NotNeeded,
    /// There is none.
    Missing,
    /// It stands where we do not go: an address, a host or a path.
    Refused,
    /// The file is of another build.
    WrongId,
    /// It has more bytes than a file may have.
    TooLarge,
    /// It did not come in time.
    Late,
    /// The file is no debug information.
    Unreadable,
    /// There is no room to store it.
    Full,
    /// The connection, the server or the disk.
    Failed,
    /// Too many others wait.
    Dropped,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Stored,
        Self::NotNeeded,
        Self::Missing,
        Self::Refused,
        Self::WrongId,
        Self::TooLarge,
        Self::Late,
        Self::Unreadable,
        Self::Full,
        Self::Failed,
        Self::Dropped,
    ];

    /// As it stands in metrics and the API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::NotNeeded => "not_needed",
            Self::Missing => "missing",
            Self::Refused => "refused",
            Self::WrongId => "wrong_id",
            Self::TooLarge => "too_large",
            Self::Late => "late",
            Self::Unreadable => "unreadable",
            Self::Full => "full",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }

    /// Whether the same question may well have another answer soon.
    fn passes(self) -> bool {
        matches!(self, Self::Late | Self::Full | Self::Failed | Self::Dropped)
    }
}
