//! Randomness as a parameter.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where jitter and ids come from. Not for secrets.
pub trait Rng: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// A number in `0.0..1.0`.
    fn fraction(&self) -> f64 {
        // 53 bits fill a double's mantissa
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): one addition a step, shared without a lock.
#[derive(Debug)]
pub struct SplitMix {
    state: AtomicU64,
}

impl SplitMix {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            state: AtomicU64::new(seed),
        }
    }

    /// Seeded by the standard library's per-process random keys.
    pub fn from_entropy() -> Self {
        Self::new(RandomState::new().build_hasher().finish())
    }
}

impl Rng for SplitMix {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64s() {
        // first outputs for seed 1234567, as published with the reference implementation
        let rng = SplitMix::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }
}
