//! CPU time without a stack.

/// Periods of CPU time without a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unsampled {
    /// Of CPU time that no thread accounts for: threads that lived and ended unseen.
    pub(crate) unseen: u64,
    /// Of threads that block the signal.
    pub(crate) blocked: u64,
    /// Behind the last sample of a thread, when a capture ends.
    pub(crate) behind: u64,
}
