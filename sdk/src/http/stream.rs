//! A running capture as a stream of chunks.
//!
//! Proxies cut a connection that stays silent (kubernetes/kubernetes#57708: 60 s), and clients limit
//! the wait for headers. So the gzip header goes out at once, an empty stored deflate block follows
//! every few seconds, and the profile's own deflate stream ends the member. Readers see one ordinary
//! gzip file. The price: after the first byte an error can only be an aborted body.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::capture::{self, Subscription};

/// Well below the idle timeouts of common proxies.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Captures at once over all transports; each holds a thread and its share of samples.
const MAX_CAPTURES: usize = 32;

/// Magic, deflate, no flags, no time, no extra flags, unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Not final, stored, length 0 and its complement: says nothing, leaves the stream byte-aligned.
const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Number of captures that run now.
pub(super) fn running() -> usize {
    RUNNING.load(Ordering::Relaxed)
}

/// A CPU capture in progress. Dropping it ends its subscription.
#[derive(Debug)]
pub struct CaptureStream {
    // Declared before the slot, so that the slot is free only after the subscription ended.
    state: State,
    ends: Instant,
    keep_alive: Duration,
    _slot: Slot,
}

enum State {
    Fresh(Subscription),
    Waiting(Subscription),
    Done,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Fresh(_) => "Fresh",
            State::Waiting(_) => "Waiting",
            State::Done => "Done",
        })
    }
}

impl CaptureStream {
    /// Starts capturing now, for `length`. The error is a text for the client.
    pub(super) fn start(length: Duration) -> Result<Self, String> {
        let slot = Slot::take()?;
        let subscription = capture::subscribe().map_err(|error| error.to_string())?;
        Ok(CaptureStream {
            state: State::Fresh(subscription),
            ends: Instant::now() + length,
            keep_alive: KEEP_ALIVE,
            _slot: slot,
        })
    }

    /// Sets the time between two keep-alive chunks (5 s by default).
    pub fn set_keep_alive(&mut self, keep_alive: Duration) {
        self.keep_alive = keep_alive.max(Duration::from_millis(1));
    }

    /// The next bytes to send; `None` at the end. Flush each chunk, it may be the last for seconds.
    ///
    /// `wait` sleeps for the given time and returns whether the client is still there. When it says
    /// no, the capture is given up. It may return early.
    pub fn next_chunk(&mut self, mut wait: impl FnMut(Duration) -> bool) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Fresh(subscription) => {
                self.state = State::Waiting(subscription);
                Some(GZIP_HEADER.to_vec())
            }
            State::Waiting(subscription) => {
                let left = self.ends.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Some(deflate_and_trailer(&subscription.finish().to_pprof_gz()));
                }
                if !wait(left.min(self.keep_alive)) {
                    return None;
                }
                self.state = State::Waiting(subscription);
                Some(EMPTY_BLOCK.to_vec())
            }
            State::Done => None,
        }
    }
}

/// What follows the header of a gzip file. The checksum and length in its trailer stay right,
/// because empty blocks add no byte.
fn deflate_and_trailer(gz: &[u8]) -> Vec<u8> {
    match gz {
        [0x1f, 0x8b, 8, 0, ..] if gz.len() > 18 => gz[GZIP_HEADER.len()..].to_vec(),
        // A header with extra fields: end this member empty and let the file follow as a second one.
        _ => [&[1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0], gz].concat(),
    }
}

#[derive(Debug)]
struct Slot;

impl Slot {
    fn take() -> Result<Slot, String> {
        RUNNING
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < MAX_CAPTURES).then_some(n + 1)
            })
            .map(|_| Slot)
            .map_err(|n| format!("{n} captures run already; try again when one has ended"))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_gzip_header_becomes_a_second_member() {
        let odd = [0x1f, 0x8b, 8, 8, 1, 2, 3];
        let tail = deflate_and_trailer(&odd);
        assert_eq!(tail.len(), 13 + odd.len());
        assert_eq!(&tail[13..], &odd);
    }

    #[test]
    fn slots_are_limited_and_given_back() {
        let held: Vec<Slot> = (0..MAX_CAPTURES).map(|_| Slot::take().unwrap()).collect();
        assert!(
            Slot::take()
                .unwrap_err()
                .starts_with("32 captures run already")
        );
        drop(held);
        assert!(Slot::take().is_ok());
    }
}
