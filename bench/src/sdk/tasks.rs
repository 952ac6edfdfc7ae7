//! What a poll of a future costs under spans and labels, beside peers that follow tasks.

use crate::{
    child::{CargoBuild, Outcome, readings},
    figure::{Goal, Short},
};

use super::print;

/// Prints the figures.
pub fn run() -> Outcome<()> {
    let program = CargoBuild {
        folder: "bench/peers/tasks",
        variant: "tasks",
        args: &[],
        frame_pointers: false,
    }
    .run()?
    .join("pilotlight-bench-tasks");
    let none: [&str; 0] = [];
    let run = readings(&program, &none)?;
    let peer = format!(
        "async-backtrace:{}ns,tracing:{}ns",
        Short(run.get("async_backtrace")?),
        Short(run.get("tracing")?)
    );
    for (name, reading, goal) in [
        ("await_off_poll", "span_off", Goal::AtMost(30.0)),
        ("await_on_poll", "span_on", Goal::AtMost(100.0)),
        (
            "await_on_poll_2_threads",
            "contended_on",
            Goal::AtMost(100.0),
        ),
        ("await_off_poll_3_spans", "three_off", Goal::None),
        ("await_on_poll_3_spans", "three_on", Goal::None),
        ("labelled_poll", "labelled", Goal::AtMost(30.0)),
        ("labelled_twice_poll", "labelled_twice", Goal::None),
        ("labelled_span_on_poll", "labelled_span_on", Goal::None),
        ("span_life_off", "life_off", Goal::None),
        ("span_life_on", "life_on", Goal::None),
    ] {
        print(name, run.get(reading)?, "ns", goal, &peer);
    }
    Ok(())
}
