//! `bench unwind`: nanoseconds a frame inside a signal handler.

use std::{collections::BTreeMap, path::Path};

use crate::{
    child::{CargoBuild, Outcome, readings},
    figure::{Figure, Goal, Short},
};

const PASSES: usize = 5;
const METHODS: [&str; 3] = ["table", "framehop", "libgcc"];

/// Prints all figures of the part.
pub fn run() -> Outcome<()> {
    // Frame pointers need another compilation of the same code. Both are built here, so that both
    // have the same profile and no leftover of a different one is measured.
    let build = |variant, args, frame_pointers| {
        CargoBuild {
            folder: "bench/unwind",
            variant,
            args,
            frame_pointers,
        }
        .run()
    };
    let tables = build("unwind", &[], false)?.join("pilotlight-bench-unwind");
    let pointers = build("unwind-frame-pointers", &["--no-default-features"], true)?
        .join("pilotlight-bench-unwind");
    for (pattern, depths) in [("repeat", [31, 111, 511]), ("random", [30, 110, 510])] {
        for depth in depths {
            measure(pattern, depth, &tables, &pointers)?;
        }
    }
    Ok(())
}

/// Fastest of several alternating passes, for each method.
fn measure(pattern: &str, depth: u32, tables: &Path, pointers: &Path) -> Outcome<()> {
    let args = [pattern.to_owned(), depth.to_string()];
    let mut best: BTreeMap<&str, f64> = BTreeMap::new();
    let mut allocations = 0.0f64;
    let mut keep = |name: &'static str, value: f64| {
        let slot = best.entry(name).or_insert(f64::INFINITY);
        *slot = slot.min(value);
    };
    for _ in 0..PASSES {
        let run = readings(pointers, &args)?;
        reached(&run, "frame_pointer", depth)?;
        keep("frame_pointer", run.get("frame_pointer_ns")?);
        let run = readings(tables, &args)?;
        for method in METHODS {
            reached(&run, method, depth)?;
            keep(method, run.get(&format!("{method}_ns"))?);
        }
        allocations = allocations.max(run.get("table_allocations")?);
    }
    print(pattern, depth, &best, allocations)
}

fn print(pattern: &str, depth: u32, best: &BTreeMap<&str, f64>, allocs: f64) -> Outcome<()> {
    let of = |name: &str| best.get(name).copied().unwrap_or(f64::NAN);
    let list: Vec<String> = best
        .iter()
        .map(|(name, ns)| format!("{name}:{}ns/frame", Short(*ns)))
        .collect();
    let peer = list.join(",");
    let (what, value, goal) = match pattern {
        "repeat" => (
            "over_frame_pointers",
            of("table") / of("frame_pointer"),
            4.0,
        ),
        _ => ("over_libgcc", of("table") / of("libgcc"), 0.25),
    };
    let name = format!("unwind/{pattern}_{depth}_{what}");
    Figure {
        name: &name,
        value,
        unit: "x",
        goal: Goal::AtMost(goal),
        peer: &peer,
    }
    .print();
    let name = format!("unwind/{pattern}_{depth}_allocations");
    let goal = Goal::AtMost(0.0);
    Figure {
        name: &name,
        value: allocs,
        unit: "",
        goal,
        peer: "",
    }
    .print();
    Ok(())
}

/// A walk that stops early is no measurement.
fn reached(run: &crate::child::Readings, method: &str, depth: u32) -> Outcome<()> {
    let frames = run.get(&format!("{method}_frames"))?;
    if frames >= f64::from(depth) {
        return Ok(());
    }
    Err(format!("{method} found {frames} frames of a stack of {depth}").into())
}
