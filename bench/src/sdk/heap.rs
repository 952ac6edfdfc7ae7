//! What an allocation costs under the sampling allocator, and how right its profile is, beside
//! jemalloc's own profiling.

use crate::{
    child::{CargoBuild, Outcome, Readings, readings},
    figure::{Goal, Short},
};

use super::print;

/// Prints the figures.
pub fn run() -> Outcome<()> {
    let program = CargoBuild {
        folder: "bench/peers/alloc",
        variant: "alloc",
        args: &[],
        frame_pointers: false,
    }
    .run()?
    .join("pilotlight-bench-alloc");
    let none: [&str; 0] = [];
    let run = readings(&program, &none)?;
    for allocator in ["system", "jemalloc", "mimalloc"] {
        // 200 blocks that live in the caches, and 20,000 that do not.
        for ring in ["near", "far"] {
            cost(&run, allocator, ring)?;
        }
        let off = run.get(&format!("{allocator}_off_sigma"))?;
        print(
            &format!("heap_{allocator}_off"),
            off,
            "σ",
            Goal::AtMost(5.0),
            "",
        );
        let left = run.get(&format!("{allocator}_left_bytes"))?;
        print(
            &format!("heap_{allocator}_left_after_free"),
            left.abs(),
            "B",
            Goal::AtMost(0.0),
            "",
        );
    }
    print(
        "heap_looked_at_allocation",
        run.get("looked")? - run.get("system_near")?,
        "ns",
        Goal::None,
        "",
    );
    Ok(())
}

/// Nanoseconds that sampling adds to an allocation and its free, at one in 512 KiB and 516 bytes each.
fn cost(run: &Readings, allocator: &str, ring: &str) -> Outcome<()> {
    let bare = run.get(&format!("{allocator}_{ring}"))?;
    let sampled = run.get(&format!("{allocator}_sampled_{ring}"))?;
    let profiling = run.get(&format!("jemalloc_profiling_{ring}"))?;
    let jemalloc = run.get(&format!("jemalloc_{ring}"))?;
    let peer = format!(
        "jemalloc-profiling:{}ns,bare:{}ns",
        Short(profiling - jemalloc),
        Short(bare)
    );
    print(
        &format!("heap_{allocator}_{ring}_per_allocation"),
        sampled - bare,
        "ns",
        Goal::AtMost(2.0),
        &peer,
    );
    Ok(())
}
