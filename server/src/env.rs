//! Clock and randomness, passed in so that tests can hold them.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where the server takes time and random numbers from.
pub trait Env: Send + Sync + 'static {
    /// Unix nanoseconds.
    fn now_ns(&self) -> i64;
    /// Nanoseconds since some moment, by a clock that never jumps.
    fn steady_ns(&self) -> i64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        i64::try_from(START.elapsed().as_nanos()).unwrap_or(i64::MAX)
    }
    /// A number that no other call on any machine is likely to return.
    fn random(&self) -> u64;
}

/// The machine's clock and randomness.
pub struct SystemEnv;

impl Env for SystemEnv {
    fn now_ns(&self) -> i64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn random(&self) -> u64 {
        // std seeds each state from the kernel's randomness and a counter.
        RandomState::new().hash_one(self.now_ns())
    }
}
