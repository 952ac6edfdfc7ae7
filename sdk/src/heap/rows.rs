//! Counters to profiles, as Go shapes them.

use std::time::{SystemTime, UNIX_EPOCH};

use pilotlight_profile::Profile;

use super::record;
use super::sampler::{FRACTION_BITS, asked_interval_bytes, interval_bytes, unsampled};
use crate::sites::{COUNTERS, Shape, profile_at};

/// Which column a reader sees first: all that differs between `heap` and `allocs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    InUse,
    Allocated,
}

/// The heap as it is now, and all that was allocated so far.
pub(crate) fn profile(shown: Shown) -> Profile {
    unsampled(|| {
        let (asked, interval) = (asked_interval_bytes(), interval_bytes());
        let shape = shape(shown, interval as i64, is_own);
        let mut profile = profile_at(record::rows(), &shape, values);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        profile.time_ns = now.unwrap_or_default().as_nanos() as i64;
        if interval != asked {
            let text = format!(
                "pilotlight: one allocation in {asked} bytes asked, one in {interval} within the budget"
            );
            let comment = profile.strings.push(text.as_bytes());
            profile.comments.push(comment);
        }
        profile
    })
}

/// The columns of Go's heap profile.
pub(super) fn shape(
    shown: Shown,
    interval_bytes: i64,
    hidden: fn(&str) -> bool,
) -> Shape<'static, 4> {
    Shape {
        columns: [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ],
        default_column: match shown {
            Shown::InUse => "inuse_space",
            Shown::Allocated => "alloc_space",
        },
        period: ("space", "bytes", interval_bytes),
        without_stack: "[before pilotlight started]",
        hidden,
    }
}

fn values(counters: &[u64; COUNTERS]) -> [i64; 4] {
    let [objects, bytes, freed_objects, freed_bytes] = *counters;
    let whole = |objects: u64| ((objects + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS) as i64;
    [
        whole(objects),
        bytes as i64,
        whole(objects.saturating_sub(freed_objects)),
        bytes.saturating_sub(freed_bytes) as i64,
    ]
}

/// The way from the program's call to our table, which Go leaves out as well.
fn is_own(function: &str) -> bool {
    let own = [
        "pilotlight::heap::",
        "<pilotlight::heap::",
        "pilotlight::here::",
    ];
    own.iter().any(|own| function.starts_with(own)) || is_shim(function)
}

/// What rustc puts between the library and a global allocator.
pub(super) fn is_shim(function: &str) -> bool {
    let shims = [
        "__rust_",
        "__rg_",
        "__rdl_",
        "__rustc::__rust_",
        "__rustc::__rg_",
    ];
    shims.iter().any(|shim| function.starts_with(shim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_leaves_no_rest_and_half_objects_are_rounded() {
        let half = 1 << (FRACTION_BITS - 1);
        assert_eq!(values(&[3 * half, 100, 0, 0]), [2, 100, 2, 100]);
        assert_eq!(values(&[7 * half, 900, 7 * half, 900]), [4, 900, 0, 0]);
        // A free that was read before its allocation.
        assert_eq!(values(&[half, 10, 2 * half, 20]), [1, 10, 0, 0]);
    }
}
