//! What the measuring processes share. Ours and the peers' run the same code from here, so that a
//! figure compares profilers and nothing else. Depends on `libc` alone, because a variant of it is
//! compiled with frame pointers.

mod clock;
mod memory;
mod rng;
mod signal;
mod stack;
mod subject;

pub use clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
pub use memory::{peak_rss_kib, reset_peak_rss, rss_kib};
pub use rng::Rng;
pub use signal::{Disposition, Handler, ignore_signal, send_queued_to_self, send_to_self};
pub use stack::{SITES, at_depth, at_sites, work};
pub use subject::{Report, Sender, Subject, run_subject};

/// Smallest and middle value of a list of readings, or zeros for an empty one.
pub fn min_and_median(readings: &mut [f64]) -> (f64, f64) {
    readings.sort_by(f64::total_cmp);
    match readings {
        [] => (0.0, 0.0),
        [first, ..] => (*first, readings[readings.len() / 2]),
    }
}

/// Mean of the middle half of a list of readings: finer than a median where the clock ticks in
/// steps of ten nanoseconds, and as blind to outliers. 0 for an empty list.
pub fn middle_mean(readings: &mut [f64]) -> f64 {
    readings.sort_by(f64::total_cmp);
    let quarter = readings.len() / 4;
    let middle = readings
        .get(quarter..readings.len() - quarter)
        .unwrap_or_default();
    if middle.is_empty() {
        0.0
    } else {
        middle.iter().sum::<f64>() / middle.len() as f64
    }
}
