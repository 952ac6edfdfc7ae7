//! What it costs to time the waits of threads for each other.

use crate::{
    child::{CargoBuild, Outcome, readings},
    figure::Goal,
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
    .join("pilotlight-bench-locks");
    let none: [&str; 0] = [];
    let run = readings(&program, &none)?;
    let added = |what: &str, how: &str| -> Outcome<f64> {
        Ok(run.get(&format!("{what}_{how}"))? - run.get(&format!("{what}_off"))?)
    };
    let a_wait = Goal::AtMost(1000.0);
    for (name, what, how, goal) in [
        // Each is looked at; hardly any is walked.
        ("lock_wait_timed", "wait_30", "timed", a_wait),
        // Each is walked: always the same stack, or one of 1,000.
        ("lock_wait_kept_30_frames", "wait_30", "kept", a_wait),
        ("lock_wait_kept_1000_stacks", "wait_sites", "kept", a_wait),
        ("lock_wait_kept_108_frames", "wait_108", "kept", a_wait),
        // Two threads that take turns, at the default rate and with every wait kept.
        ("lock_handoff_default", "handoff", "default", a_wait),
        ("lock_handoff_kept", "handoff", "kept", a_wait),
        // Free locks; half a nanosecond is noise.
        ("lock_free_std", "std_free", "kept", Goal::AtMost(0.5)),
        ("lock_free_pthread", "pthread_free", "kept", Goal::None),
    ] {
        let peer = format!("without:{:.1}ns", run.get(&format!("{what}_off"))?);
        print(name, added(what, how)?, "ns", goal, &peer);
    }
    let of_libc = run.get("pthread_free_libc")?;
    let off = run.get("pthread_free_off")? - of_libc;
    let peer = format!("libc:{of_libc:.1}ns");
    print("lock_free_pthread_off", off, "ns", Goal::None, &peer);
    let start = (run.get("start_on_cpu")? - run.get("start_off_cpu")?) / 1e6;
    print("lock_start_cpu", start, "ms", Goal::AtMost(10.0), "");
    Ok(())
}
