//! A running capture as a stream of chunks.
//!
//! Proxies cut a connection that stays silent (kubernetes/kubernetes#57708: 60 s), and clients limit
//! the wait for headers. So the gzip header goes out at once, an empty stored deflate block follows
//! every few seconds, and the profile's own deflate stream ends the member. Readers see one ordinary
//! gzip file. The price: after the first byte an error can only be an aborted body.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::fork::{Held, Lock};
use crate::types::Running;

/// Well below the idle timeouts of common proxies.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Captures at once over all transports; each holds a thread and its share of samples.
const MAX_CAPTURES: usize = 32;

/// Magic, deflate, no flags, no time, no extra flags, unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Not final, stored, length 0 and its complement: says nothing, leaves the stream byte-aligned.
const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// The types of the captures that run now.
static RUNNING: Lock<Vec<&'static str>> = Lock::new(Vec::new());

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &RUNNING
}

fn all_running() -> MutexGuard<'static, Vec<&'static str>> {
    RUNNING.lock()
}

/// Number of captures of a type that run now.
pub(crate) fn running(name: &str) -> usize {
    all_running().iter().filter(|known| **known == name).count()
}

/// A capture in progress. Dropping it gives the capture up.
#[derive(Debug)]
pub struct CaptureStream {
    // Declared before the slot, so that the slot is free only after the capture ended.
    state: State,
    ends: Instant,
    keep_alive: Duration,
    _slot: Slot,
}

enum State {
    Fresh(Box<dyn Running>),
    Waiting(Box<dyn Running>),
    Done,
    /// The profile could not be made.
    Failed,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Fresh(_) => "Fresh",
            State::Waiting(_) => "Waiting",
            State::Done => "Done",
            State::Failed => "Failed",
        })
    }
}

impl CaptureStream {
    /// Starts what `begin` begins now, for `length`. The error is a text for the client.
    pub(super) fn start(
        name: &'static str,
        length: Duration,
        begin: impl FnOnce() -> Result<Box<dyn Running>, String>,
    ) -> Result<Self, String> {
        let slot = Slot::take(name)?;
        Ok(CaptureStream {
            state: State::Fresh(begin()?),
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
            State::Fresh(running) => {
                self.state = State::Waiting(running);
                Some(GZIP_HEADER.to_vec())
            }
            State::Waiting(running) => {
                let left = self.ends.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let Ok(profile) = running.finish() else {
                        self.state = State::Failed;
                        return None;
                    };
                    return Some(deflate_and_trailer(&profile.to_pprof_gz()));
                }
                if !wait(left.min(self.keep_alive)) {
                    return None;
                }
                self.state = State::Waiting(running);
                Some(EMPTY_BLOCK.to_vec())
            }
            ended => {
                self.state = ended;
                None
            }
        }
    }

    /// The profile could not be made: break the body off, so that the client does not take what it
    /// got for the whole.
    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed)
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
struct Slot(&'static str);

impl Slot {
    fn take(name: &'static str) -> Result<Slot, String> {
        let mut running = all_running();
        if running.len() >= MAX_CAPTURES {
            let count = running.len();
            return Err(format!(
                "{count} captures run already; try again when one has ended"
            ));
        }
        running.push(name);
        Ok(Slot(name))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut running = all_running();
        if let Some(at) = running.iter().position(|name| *name == self.0) {
            running.swap_remove(at);
        }
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
        let held: Vec<Slot> = (0..MAX_CAPTURES)
            .map(|n| Slot::take(["a", "b"][n % 2]).unwrap())
            .collect();
        assert_eq!((running("a"), running("b")), (16, 16));
        assert!(
            Slot::take("c")
                .unwrap_err()
                .starts_with("32 captures run already")
        );
        drop(held);
        assert_eq!((running("a"), running("b")), (0, 0));
        assert!(Slot::take("c").is_ok());
    }
}
