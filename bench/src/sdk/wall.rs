//! Wall-clock sampling of a thousand waiting threads, beside a signal to each that is looked at.

use crate::{
    child::{CargoBuild, Outcome, readings},
    figure::{Goal, Short},
};

use super::print;

/// Prints the figures.
pub fn run() -> Outcome<()> {
    let program = CargoBuild {
        folder: "bench/sdk",
        variant: "sdk",
        args: &[],
        frame_pointers: false,
    }
    .run()?
    .join("wall");
    let none: [&str; 0] = [];
    let run = readings(&program, &none)?;
    let signals = format!("signals:{}%", Short(run.get("signalled_percent")?));
    for (name, reading, unit, goal, peer) in [
        (
            "wall_1000_idle_sampler",
            "sampler_percent",
            "%",
            Goal::AtMost(1.0),
            &*signals,
        ),
        (
            "wall_ticks",
            "ticks_hz",
            "Hz",
            Goal::AtLeast(95.0),
            "asked:100Hz",
        ),
        ("wall_looks", "looks_hz", "Hz", Goal::None, ""),
        (
            "wall_idle_time_error",
            "idle_error_percent",
            "%",
            Goal::AtMost(2.0),
            "",
        ),
        (
            "wall_busy_time_error",
            "busy_error_percent",
            "%",
            Goal::AtMost(5.0),
            "",
        ),
        (
            "wall_calls_ended_early",
            "interrupted",
            "",
            Goal::AtMost(0.0),
            "",
        ),
        (
            "wall_waiting_threads_woken",
            "woken",
            "",
            Goal::AtMost(0.0),
            "",
        ),
    ] {
        print(name, run.get(reading)?, unit, goal, peer);
    }
    Ok(())
}
