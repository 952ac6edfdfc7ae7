//! What the sender of a push waits for.

use std::io;

use tokio::sync::watch;

use super::ids::State;
use crate::segment::Kept;
use crate::store::disk::is_full;

/// How the write of a segment ended.
pub type Outcome = Result<(), WriteFailed>;

/// The segment did not become durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteFailed {
    /// Whether the disk is full.
    pub full: bool,
    /// What the system said.
    pub reason: String,
}

/// What became of a push, before its segment is durable.
pub struct Ticket {
    /// Kept and dropped samples; nothing for a duplicate.
    pub kept: Kept,
    /// Whether it was known already.
    pub duplicate: bool,
    /// Tells how the write ended; `None` when it is durable already.
    pub outcome: Option<watch::Receiver<Option<Outcome>>>,
}

impl Ticket {
    /// Waits until the push is durable.
    ///
    /// # Errors
    /// When its segment could not be written; nothing of it is stored then.
    pub async fn durable(&mut self) -> Outcome {
        let Some(outcome) = &mut self.outcome else {
            return Ok(());
        };
        let ended = outcome.wait_for(Option::is_some).await;
        ended
            .ok()
            .and_then(|ended| ended.clone())
            .unwrap_or_else(|| {
                Err(WriteFailed {
                    full: false,
                    reason: "the open segment was given up".to_owned(),
                })
            })
    }
}

impl WriteFailed {
    pub(super) fn of(error: &io::Error) -> Self {
        Self {
            full: is_full(error),
            reason: error.to_string(),
        }
    }
}

impl Ticket {
    /// Of a push that came before.
    pub(super) fn duplicate(state: State) -> Self {
        let outcome = match state {
            State::Pending(receiver) => Some(receiver),
            State::Stored => None,
        };
        Self {
            kept: Kept::default(),
            duplicate: true,
            outcome,
        }
    }
}
