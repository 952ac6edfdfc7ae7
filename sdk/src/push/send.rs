//! Tries, pauses, losses.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{self, Answer};
use super::queue::{Parcel, Queue};
use super::url::Url;
use crate::stats::COUNTERS;

/// Pause before the second try; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Tries of one parcel, about two minutes in all.
const TRIES: u32 = 10;
/// Time for one try.
const TRY: Duration = Duration::from_secs(15);

pub(super) struct Sender {
    url: Url,
    headers: Vec<(String, String)>,
    queue: Arc<Queue>,
}

/// What a try came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Taken,
    /// Trying again cannot help.
    Refused,
    /// May pass; the other side may have said when.
    Again(Option<Duration>),
}

/// By status; no answer at all may pass as well.
pub(super) fn outcome(answer: Option<Answer>) -> Outcome {
    match answer {
        Some(answer) => match answer.status {
            200..=299 => Outcome::Taken,
            408 | 425 | 429 | 500 | 502..=504 | 507 => Outcome::Again(answer.retry_after),
            _ => Outcome::Refused,
        },
        None => Outcome::Again(None),
    }
}

impl Sender {
    pub(super) fn new(url: Url, headers: Vec<(String, String)>, queue: Arc<Queue>) -> Sender {
        Sender {
            url,
            headers,
            queue,
        }
    }

    pub(super) fn run(&self) {
        while let Some(parcel) = self.queue.next() {
            self.deliver(&parcel);
            self.queue.sent();
        }
    }

    fn deliver(&self, parcel: &Parcel) {
        for failed in 1..=TRIES {
            let Some(limit) = self.time_for_a_try() else {
                break;
            };
            let answer = client::post(&self.url, &self.headers, parcel, limit);
            match outcome(answer.ok()) {
                Outcome::Taken => return COUNTERS.pushed.add(1),
                Outcome::Refused => return COUNTERS.push_lost_refused.add(1),
                Outcome::Again(wish) => {
                    COUNTERS.push_failed_tries.add(1);
                    let pause = pause(failed, fraction()).max(wish.unwrap_or_default());
                    // When the process ends there is no second try.
                    if self.queue.pause(pause.min(LONGEST_PAUSE)) {
                        break;
                    }
                }
            }
        }
        COUNTERS.push_lost_unsent.add(1);
    }

    /// `None` when the process ends.
    fn time_for_a_try(&self) -> Option<Duration> {
        match self.queue.ends() {
            None => Some(TRY),
            Some(end) => {
                let left = end.saturating_duration_since(Instant::now());
                Some(left).filter(|left| !left.is_zero())
            }
        }
    }
}

/// Half fixed, half random, so that many processes do not come back at once.
pub(super) fn pause(failed: u32, fraction: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failed.saturating_sub(1).min(16));
    doubled.min(LONGEST_PAUSE).mul_f64(0.5 + 0.5 * fraction)
}

/// A random number below 1, from the seed that every hash map gets.
fn fraction() -> f64 {
    (random() >> 11) as f64 / (1u64 << 53) as f64
}

pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
