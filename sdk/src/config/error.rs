//! What can go wrong.

use std::fmt;

/// Why pilotlight did not start, or a capture could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of range.
    Setting {
        /// Method of [`crate::Config`], or environment variable.
        name: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The address cannot be listened on.
    Listen {
        /// As configured.
        address: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// This process runs pilotlight already.
    AlreadyStarted,
    /// Nothing was started, or the guard is gone, or this is a forked child.
    NotStarted,
    /// The signal handler cannot be installed.
    Signal(std::io::Error),
    /// A thread cannot be made.
    Thread(std::io::Error),
    /// The thread that arms timers did not answer.
    Stalled,
    /// A type of profile cannot be taken or switched.
    Profile {
        /// Its name, as given.
        name: String,
        /// Why, and what to do.
        why: String,
    },
}

impl Error {
    pub(crate) fn variable(name: &'static str, value: &str, expected: &'static str) -> Error {
        Error::Setting {
            name,
            value: value.to_string(),
            expected,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Setting { name, value, expected } => {
                write!(f, "{name} is `{value}`; it may be {expected}")
            }
            Error::Listen { address, cause } => write!(
                f,
                "cannot listen on {address} for /debug/pprof/: {cause}; \
                 set PILOTLIGHT_LISTEN to a free address, or to `none`"
            ),
            Error::AlreadyStarted => {
                f.write_str("pilotlight runs in this process already; drop its guard first")
            }
            Error::NotStarted => f.write_str(
                "pilotlight does not run in this process; call pilotlight::start and keep its guard \
                 (a forked child must start anew)",
            ),
            Error::Signal(cause) => write!(f, "cannot install a handler for SIGPROF: {cause}"),
            Error::Thread(cause) => write!(f, "cannot start a thread: {cause}"),
            Error::Profile { name, why } => write!(f, "profile type `{name}`: {why}"),
            Error::Stalled => f.write_str("pilotlight's own thread got no CPU time for 10 s"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Listen { cause, .. } | Error::Signal(cause) | Error::Thread(cause) => {
                Some(cause)
            }
            _ => None,
        }
    }
}
