//! `bench profile`: decoding and encoding pprof beside google/pprof and prost, and the four bombs.

mod bombs;
mod corpus;
mod generated;
pub mod prost_peer;
mod race;

use std::process::Command;

use crate::child::{self, Outcome};

pub use bombs::measure as measure_bomb;

/// Prints all figures of the part.
pub fn run() -> Outcome<()> {
    let peer = scratch_go_peer()?;
    match corpus::real()? {
        Some(files) => race::run("real", files, &peer)?,
        None => eprintln!("no corpus (PILOTLIGHT_CORPUS): real files are left out"),
    }
    race::run("generated", generated::files(), &peer)?;
    bombs::run()
}

fn scratch_go_peer() -> Outcome<std::path::PathBuf> {
    let program = child::scratch("go")?.join("gopeer");
    let mut command = Command::new("go");
    command
        .current_dir(child::repository().join("bench/go"))
        .args(["build", "-o"])
        .arg(&program);
    child::build(command.arg("."))?;
    Ok(program)
}
