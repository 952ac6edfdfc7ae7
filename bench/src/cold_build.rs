//! `bench build`: what a user waits for before the first command. Heavy, so only on demand.

use std::{fs, io, mem, process::Command, time::Instant};

use crate::{
    child::{Outcome, build, repository, scratch},
    figure::{Figure, Goal},
};

/// Builds the binary that users run in an empty target folder.
pub fn run() -> Outcome<()> {
    let target = scratch("cold-build")?;
    fs::remove_dir_all(&target)?;
    let (cpu, wall) = (children_cpu_seconds()?, Instant::now());
    build(
        Command::new("cargo")
            .current_dir(repository())
            .args(["build", "--release", "--locked", "--quiet", "--target-dir"])
            .arg(&target)
            .env_remove("CARGO_BUILD_JOBS"),
    )?;
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), children_cpu_seconds()? - cpu);
    fs::remove_dir_all(&target)?;
    let cores = std::thread::available_parallelism()?;
    let peer = format!("cores:{cores}");
    let minutes = |name: &str, value: f64, goal: Goal| {
        Figure {
            name,
            value: value / 60.0,
            unit: "min",
            goal,
            peer: &peer,
        }
        .print();
    };
    minutes("build/cold_release_wall", wall, Goal::AtMost(10.0));
    minutes("build/cold_release_cpu", cpu, Goal::None);
    Ok(())
}

/// CPU time of all children that ended so far.
fn children_cpu_seconds() -> io::Result<f64> {
    // SAFETY: all-zero is a valid rusage to be overwritten.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is valid for the write.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}
