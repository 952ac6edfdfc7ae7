//! Exponential backoff with jitter.

use crate::{Clock, Rng};
use std::time::Duration;

/// When to try again, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Pause before the second try, before jitter.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// Tries in all, the first included; at least one is made.
    pub tries: u32,
}

impl Default for Retry {
    /// 10 tries: 0.5 s, doubling up to 30 s; about two minutes in all.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            tries: 10,
        }
    }
}

/// What one try came to.
#[derive(Debug)]
pub enum Attempt<T, E> {
    /// Finished.
    Done(T),
    /// Trying again cannot help.
    Fatal(E),
    /// May pass; the other side may have said how long to wait.
    Again(E, Option<Duration>),
}

impl Retry {
    /// The pause after `failed` failed tries: half fixed, half random, so that clients spread.
    pub fn pause(&self, failed: u32, rng: &dyn Rng) -> Duration {
        let doubled = self.first.saturating_mul(
            1_u32
                .checked_shl(failed.saturating_sub(1))
                .unwrap_or(u32::MAX),
        );
        let full = doubled.min(self.longest);
        full.mul_f64(0.5 + 0.5 * rng.fraction())
    }

    /// Runs `attempt` (given the number of the try, from 0) until it is done, fatal, or out of tries.
    ///
    /// # Errors
    /// The error of the last try.
    pub async fn run<T, E, F: Future<Output = Attempt<T, E>>>(
        &self,
        clock: &dyn Clock,
        rng: &dyn Rng,
        mut attempt: impl FnMut(u32) -> F,
    ) -> Result<T, E> {
        let mut failed = 0;
        loop {
            let (error, asked) = match attempt(failed).await {
                Attempt::Done(value) => return Ok(value),
                Attempt::Fatal(error) => return Err(error),
                Attempt::Again(error, asked) => (error, asked),
            };
            failed += 1;
            if failed >= self.tries {
                return Err(error);
            }
            let pause = self
                .pause(failed, rng)
                .max(asked.unwrap_or_default().min(self.longest));
            clock.sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sleep, SplitMix};
    use std::sync::Mutex;

    #[derive(Default)]
    struct Recorded(Mutex<Vec<Duration>>);

    impl Clock for Recorded {
        fn unix_ns(&self) -> i64 {
            0
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn sleep(&self, duration: Duration) -> Sleep {
            self.0.lock().unwrap().push(duration);
            Box::pin(std::future::ready(()))
        }
    }

    fn retry() -> Retry {
        Retry {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(4),
            tries: 6,
        }
    }

    #[tokio::test]
    async fn pauses_double_up_to_the_longest_with_half_of_it_random() {
        let clock = Recorded::default();
        let rng = SplitMix::new(1);
        let result: Result<(), u32> = retry()
            .run(&clock, &rng, |n| async move { Attempt::Again(n, None) })
            .await;
        assert_eq!(result, Err(5));
        let pauses = clock.0.lock().unwrap().clone();
        assert_eq!(pauses.len(), 5);
        for (pause, full) in pauses.iter().zip([500, 1000, 2000, 4000, 4000]) {
            let full = Duration::from_millis(full);
            assert!(*pause >= full / 2 && *pause < full, "{pause:?} of {full:?}");
        }
    }

    #[tokio::test]
    async fn success_and_fatal_errors_end_it_and_a_wish_to_wait_is_kept() {
        let clock = Recorded::default();
        let rng = SplitMix::new(1);
        let wish = Duration::from_secs(3);
        let result: Result<u32, ()> = retry()
            .run(&clock, &rng, |n| async move {
                if n < 1 {
                    Attempt::Again((), Some(wish))
                } else {
                    Attempt::Done(n)
                }
            })
            .await;
        assert_eq!(result, Ok(1));
        assert_eq!(*clock.0.lock().unwrap(), [wish]);
        let result: Result<(), u32> = retry()
            .run(&clock, &rng, |n| async move { Attempt::Fatal(n) })
            .await;
        assert_eq!(result, Err(0));
    }

    #[test]
    fn many_failures_do_not_overflow_the_pause() {
        assert!(retry().pause(u32::MAX, &SplitMix::new(3)) <= Duration::from_secs(4));
    }
}
