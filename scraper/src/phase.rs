//! When a target is scraped: Prometheus' formula, so that a target keeps its place in the interval over restarts.
//!
//! `scrape/target.go`: wait = I − now mod I + (hash XOR seed) mod I, less I when that is above I.

use crate::Labels;
use std::time::Duration;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a, 64 bits.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_from(FNV_OFFSET, bytes)
}

fn fnv1a_from(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
    })
}

/// The identity of a target: a hash over its labels and its URL.
///
/// 0xff stands between names and values, since it cannot occur in UTF-8.
pub fn identity(labels: &Labels, url: &str) -> u64 {
    let mut hash = FNV_OFFSET;
    for (name, value) in labels.iter() {
        hash = fnv1a_from(hash, name.as_bytes());
        hash = fnv1a_from(hash, &[0xff]);
        hash = fnv1a_from(hash, value.as_bytes());
        hash = fnv1a_from(hash, &[0xff]);
    }
    fnv1a_from(hash, url.as_bytes())
}

/// How long to wait before the first scrape.
///
/// `seed` differs between scrapers that watch the same targets, so that they do not scrape at the same moment.
pub fn offset(hash: u64, seed: u64, interval: Duration, now_unix_ns: i64) -> Duration {
    let interval = u64::try_from(interval.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1);
    let now = u64::try_from(now_unix_ns).unwrap_or(0);
    let base = interval - now % interval;
    let phase = (hash ^ seed) % interval;
    let mut wait = base.saturating_add(phase);
    if wait > interval {
        wait -= interval;
    }
    Duration::from_nanos(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_has_its_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn five_start_times_give_one_phase() {
        let labels = Labels::from_iter([("job", "checkout"), ("instance", "127.0.0.1:6060")]);
        let hash = identity(
            &labels,
            "http://127.0.0.1:6060/debug/pprof/profile?seconds=9",
        );
        let interval = Duration::from_secs(10);
        let starts = [
            0,
            1_700_000_000_123_456_789,
            1_700_000_003_999_999_999,
            1_764_429_000_000_000_000,
            7,
        ];
        let phases: Vec<u128> = starts
            .iter()
            .map(|start| {
                (*start as u128 + offset(hash, 42, interval, *start).as_nanos())
                    % interval.as_nanos()
            })
            .collect();
        assert_eq!(phases, [u128::from((hash ^ 42) % 10_000_000_000); 5]);
    }

    #[test]
    fn waits_equal_those_of_prometheus_formula_computed_in_go() {
        // printed by a Go program with the body of Target.offset (Prometheus 3), hash and seed given
        for (hash, seed, interval, now, wait) in VECTORS {
            assert_eq!(
                offset(hash, seed, Duration::from_nanos(interval), now),
                Duration::from_nanos(wait),
                "hash {hash} seed {seed} interval {interval} now {now}"
            );
        }
    }

    const VECTORS: [(u64, u64, u64, i64, u64); 14] = [
        (0, 0, 10000000000, 0, 10000000000),
        (0, 0, 15000000000, 1764429009999999999, 5000000001),
        (
            0,
            12638187200555641996,
            10000000000,
            1764429003141592653,
            7414049343,
        ),
        (
            0,
            12638187200555641996,
            60000000000,
            1764429000000000000,
            20555641996,
        ),
        (14695981039346656037, 0, 15000000000, 0, 4346656037),
        (
            14695981039346656037,
            0,
            60000000000,
            1764429009999999999,
            9346656038,
        ),
        (
            14695981039346656037,
            12638187200555641996,
            15000000000,
            1764429003141592653,
            2608830812,
        ),
        (
            9625390261332436968,
            0,
            10000000000,
            1764429000000000000,
            1332436968,
        ),
        (9625390261332436968, 0, 60000000000, 0, 1332436968),
        (
            9625390261332436968,
            12638187200555641996,
            10000000000,
            1764429009999999999,
            6058602341,
        ),
        (
            9625390261332436968,
            12638187200555641996,
            60000000000,
            1764429003141592653,
            52917009687,
        ),
        (
            18446744073709551615,
            0,
            15000000000,
            1764429000000000000,
            3709551615,
        ),
        (
            18446744073709551615,
            12638187200555641996,
            10000000000,
            0,
            3153909619,
        ),
        (
            18446744073709551615,
            12638187200555641996,
            15000000000,
            1764429009999999999,
            3153909620,
        ),
    ];
}
