//! Compiles the tables of the given ELF files: rows, rules, and CPU time of the fastest of 5 runs.

fn cpu_micros() -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec * 1_000_000 + t.tv_nsec / 1000
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let (mut best, mut stats) = (i64::MAX, None);
        for _ in 0..5 {
            let start = cpu_micros();
            let table = pilotlight_unwind::Table::from_elf(&bytes)?;
            best = best.min(cpu_micros() - start);
            stats = Some(table.stats());
        }
        println!("{path}: {best} µs, {stats:?}");
    }
    Ok(())
}
