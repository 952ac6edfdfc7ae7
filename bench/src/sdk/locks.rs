//! What it costs to time the waits of threads for each other, beside Go's block profile.

use std::process::Command;

use crate::{
    child::{CargoBuild, Outcome, build, readings, repository, scratch},
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
    .join("pilotlight-bench-locks");
    let none: [&str; 0] = [];
    let run = readings(&program, &none)?;
    let go = of_go();
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
        let mut peer = format!("without:{:.1}ns", run.get(&format!("{what}_off"))?);
        if let (Ok(go), "lock_handoff_kept") = (&go, name) {
            peer = format!("{peer},go:{}ns", Short(*go));
        }
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

/// Nanoseconds that Go's block profile adds to a wait of the same kind, with all waits in it.
fn of_go() -> Outcome<f64> {
    let program = scratch("go")?.join("golocks");
    let mut command = Command::new("go");
    command
        .current_dir(repository().join("bench/go"))
        .args(["build", "-o"])
        .arg(&program)
        .arg("./locks");
    build(&mut command)?;
    let none: [&str; 0] = [];
    let run = readings(&program, &none)?;
    Ok(run.get("handoff_kept")? - run.get("handoff_off")?)
}
