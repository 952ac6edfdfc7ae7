//! Lookups in a table of one file, and building that.

use super::program;
use crate::child::{Outcome, readings};
use crate::figure::{Figure, Goal, Short};
use std::path::Path;

/// Reads the DWARF of the measuring program itself, or of the file that is named.
pub fn run(object: Option<&str>) -> Outcome<()> {
    let program = program()?;
    let own = program.to_string_lossy().into_owned();
    let object = object.unwrap_or(&own);
    let run = readings(&program, &["measure", object])?;
    let peer = |name: &str| run.get(name).unwrap_or(f64::NAN);
    let peers = format!(
        "blazesym:{}/s,blazesym-first:{}/s,llvm-symbolizer:{}/s",
        Short(peer("blazesym_again_s")),
        Short(peer("blazesym_first_s")),
        Short(peer("llvm_s"))
    );
    let print = |name, value, unit, goal, peer: &str| {
        Figure::print_of("symbolize", name, value, unit, goal, peer);
    };
    let lookups = run.get("lookups_s")?;
    print("lookups_a_core", lookups, "/s", Goal::AtLeast(1e6), &peers);
    let named = run.get("named_s")?;
    print("lookups_with_texts", named, "/s", Goal::None, &peers);
    let frames = run.get("frames_per_address")?;
    print("frames_an_address", frames, "", Goal::None, "");
    let file_mb = std::fs::metadata(Path::new(object))?.len() as f64 / 1e6;
    let build = run.get("build_cpu_s")?;
    print(
        "build_cpu",
        build,
        "s",
        Goal::None,
        &format!("file:{}MB", Short(file_mb)),
    );
    let rss = run.get("build_rss_mb")?;
    print("build_peak_rss", rss, "MB", Goal::AtMost(512.0), "");
    let share = run.get("table_mb")? / file_mb;
    print("table_bytes_a_byte_of_file", share, "", Goal::None, "");
    Ok(())
}
