//! Stacks that created threads.

use std::sync::atomic::{AtomicBool, Ordering};

use pilotlight_profile::Profile;

use crate::engine;
use crate::sites::{Row, Shape, Sites, profile_of};

/// Programs create threads in few places.
static CREATED: Sites = Sites::new(256 << 10);
static ON: AtomicBool = AtomicBool::new(false);

/// Begins to note where threads are created, or ends.
pub(crate) fn set_enabled(on: bool) {
    if ON.swap(on, Ordering::SeqCst) != on {
        engine::keep_modules_current(on);
    }
}

pub(crate) fn is_enabled() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The calling thread creates another one.
#[cfg(all(
    feature = "thread-hook",
    target_os = "linux",
    not(feature = "backtrace")
))]
pub(super) fn note() {
    if is_enabled() {
        crate::here::with_stack(crate::config::MAX_DEPTH, |here, frames| {
            let site = CREATED.site(frames, here.truncated);
            CREATED.add(site, [1, 0, 0, 0]);
        });
    }
}

pub(crate) fn sites() -> usize {
    CREATED.rows().len()
}

/// One column: `threadcreate/count`.
pub(crate) fn profile() -> Profile {
    let shape = Shape {
        columns: [("threadcreate", "count")],
        default_column: "threadcreate",
        period: ("threadcreate", "count", 1),
        without_stack: "[no stack]",
        hidden: |name| name.ends_with("pthread_create") || name.starts_with("pilotlight::"),
    };
    let rows: Vec<Row> = CREATED.rows();
    profile_of(&rows, &shape, |counters| [counters[0] as i64])
}
