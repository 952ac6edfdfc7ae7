//! Ctrl-C and SIGTERM.

use crate::text;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Waiting for others ends this long after the first signal; with what follows the process is gone within 2 s.
pub const LIMIT: Duration = Duration::from_millis(1200);

/// Listens from the moment it is made, so that a signal during start is not lost.
pub struct Stop {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

impl Stop {
    /// Needs the runtime.
    pub fn new() -> Self {
        Self {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    /// Returns at the first signal; a second one ends the process at once.
    pub async fn wait(&mut self) {
        self.next().await;
        text::news("stopping; press Ctrl-C again to stop at once");
        tokio::spawn(async {
            Self::new().next().await;
            std::process::exit(130);
        });
    }

    async fn next(&mut self) {
        let interrupt = async {
            match &mut self.interrupt {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        let terminate = async {
            match &mut self.terminate {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt => {}
            _ = terminate => {}
        }
    }
}
