//! Compiles the tables of the given ELF files: rows, rules, and CPU time of the fastest of 5 runs.

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let mut best = u128::MAX;
        let mut table = pilotlight_unwind::Table::from_elf(&bytes)?;
        for _ in 0..5 {
            let start = Instant::now();
            table = pilotlight_unwind::Table::from_elf(&bytes)?;
            best = best.min(start.elapsed().as_micros());
        }
        println!(
            "{path}: {best} µs, {} B rows, {:?}",
            size_of_val(table.rows()),
            table.stats()
        );
    }
    Ok(())
}
