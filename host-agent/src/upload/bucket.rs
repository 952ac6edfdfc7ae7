//! A token bucket of bytes.

use std::time::{Duration, Instant};

/// Seconds of rate that may be saved up.
const BURST_SECONDS: u64 = 10;

/// Bytes a second, with bursts.
#[derive(Debug)]
pub(super) struct Bucket {
    bytes_per_second: u64,
    /// Below 0: somebody took more than there was, and waits.
    tokens: i64,
    at: Instant,
}

impl Bucket {
    /// Full at first.
    pub fn new(bytes_per_second: u64) -> Bucket {
        let bytes_per_second = bytes_per_second.clamp(1, i64::MAX as u64 / 100);
        Bucket {
            bytes_per_second,
            tokens: (bytes_per_second * BURST_SECONDS) as i64,
            at: Instant::now(),
        }
    }

    /// Takes `bytes`; the time to wait before they may be sent.
    pub fn take(&mut self, bytes: u64, now: Instant) -> Duration {
        let gained =
            now.saturating_duration_since(self.at).as_secs_f64() * self.bytes_per_second as f64;
        let full = (self.bytes_per_second * BURST_SECONDS) as i64;
        self.at = now;
        self.tokens = self.tokens.saturating_add(gained as i64).min(full);
        self.tokens = self.tokens.saturating_sub(bytes as i64);
        Duration::from_secs_f64(
            self.tokens.min(0).unsigned_abs() as f64 / self.bytes_per_second as f64,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut bucket = Bucket::new(1000);
        let start = bucket.at;
        assert_eq!(bucket.take(10_000, start), Duration::ZERO);
        assert_eq!(bucket.take(2_000, start), Duration::from_secs(2));
        let later = start + Duration::from_secs(3);
        assert_eq!(bucket.take(1_000, later), Duration::ZERO);
        assert_eq!(bucket.take(500, later), Duration::from_millis(500));
        assert_eq!(
            bucket.take(10_000, later + Duration::from_secs(3600)),
            Duration::ZERO
        );
    }
}
