//! What the numbers of formats without types mean: from the suffix of the name, or from `units`.

/// A kind of profile as Pyroscope calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// `process_cpu`, `memory`, …
    pub profile: &'static str,
    /// Type and unit of the numbers.
    pub value: (&'static str, &'static str),
    /// Type and unit of what stands between two samples.
    pub period: (&'static str, &'static str),
    /// The numbers are samples; each stands for the time between two.
    pub timed: bool,
}

const fn kind(
    profile: &'static str,
    value: (&'static str, &'static str),
    period: (&'static str, &'static str),
) -> Kind {
    Kind {
        profile,
        value,
        period,
        timed: false,
    }
}

const SPACE: (&str, &str) = ("space", "bytes");
const COUNT: (&str, &str) = ("", "");

/// Time on a core.
pub const CPU: Kind = Kind {
    timed: true,
    ..kind(
        "process_cpu",
        ("cpu", "nanoseconds"),
        ("cpu", "nanoseconds"),
    )
};
/// Time by the clock.
pub const WALL: Kind = Kind {
    timed: true,
    ..kind("wall", ("wall", "nanoseconds"), ("wall", "nanoseconds"))
};
/// Waits for monitors.
pub const MUTEX_COUNT: Kind = kind("mutex", ("contentions", "count"), ("mutex", "count"));
/// Time of them.
pub const MUTEX_DELAY: Kind = kind("mutex", ("delay", "nanoseconds"), ("mutex", "count"));
/// Other waits.
pub const BLOCK_COUNT: Kind = kind("block", ("contentions", "count"), ("block", "count"));
/// Time of them.
pub const BLOCK_DELAY: Kind = kind("block", ("delay", "nanoseconds"), ("block", "count"));

/// Bytes or objects of memory.
pub const fn memory(value: (&'static str, &'static str)) -> Kind {
    kind("memory", value, SPACE)
}

/// The kind that `checkout.alloc_space` says, and `checkout`.
pub fn of_suffix(service: &str) -> Option<(&str, Kind)> {
    let (service, suffix) = service.rsplit_once('.')?;
    Some((service, named(suffix)?))
}

fn named(suffix: &str) -> Option<Kind> {
    Some(match suffix {
        "cpu" | "itimer" => CPU,
        "wall" => WALL,
        "alloc_objects" => memory(("alloc_objects", "count")),
        "alloc_space" => memory(("alloc_space", "bytes")),
        "inuse_objects" => memory(("inuse_objects", "count")),
        "inuse_space" => memory(("inuse_space", "bytes")),
        "alloc_in_new_tlab_objects" => memory(("alloc_in_new_tlab_objects", "count")),
        "alloc_in_new_tlab_bytes" => memory(("alloc_in_new_tlab_bytes", "bytes")),
        "alloc_outside_tlab_objects" => memory(("alloc_outside_tlab_objects", "count")),
        "alloc_outside_tlab_bytes" => memory(("alloc_outside_tlab_bytes", "bytes")),
        "mutex_count" | "lock_count" => MUTEX_COUNT,
        "mutex_duration" | "lock_duration" => MUTEX_DELAY,
        "block_count" => BLOCK_COUNT,
        "block_duration" => BLOCK_DELAY,
        "goroutines" => kind(
            "goroutines",
            ("goroutines", "count"),
            ("goroutines", "count"),
        ),
        "exceptions" => kind("exceptions", ("exceptions", "count"), COUNT),
        _ => return None,
    })
}

/// The kind that the parameter `units` says.
pub fn of_units(units: &str) -> Option<Kind> {
    Some(match units {
        "" | "samples" => CPU,
        "bytes" => memory(("alloc_space", "bytes")),
        "objects" => memory(("alloc_objects", "count")),
        "goroutines" => return named("goroutines"),
        "lock_samples" => MUTEX_COUNT,
        "lock_nanoseconds" => MUTEX_DELAY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_suffix_is_cut_off_and_another_is_part_of_the_name() {
        let cut = of_suffix("shop.cart.alloc_space").unwrap();
        assert_eq!(cut, ("shop.cart", memory(("alloc_space", "bytes"))));
        assert_eq!(of_suffix("shop.wall").unwrap().1, WALL);
        assert_eq!(of_suffix("shop.cart"), None);
        assert_eq!(of_suffix("shop"), None);
    }
}
