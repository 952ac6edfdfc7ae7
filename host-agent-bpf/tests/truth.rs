//! Walks in the kernel reach the root of what is hard to unwind.

#![allow(clippy::expect_used)]

mod common;

use common::{Running, code_of, is_emulated, skip, tell};
use pilotlight_agent_bpf::{Drained, Engine, Event, Options};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Samples `pid` until there are `enough` walked samples.
fn sample(pid: u32, options: &Options, enough: u64) -> Drained {
    let mut engine = Engine::load(&Options {
        only_pid: Some(pid),
        by_thread: true,
        ..*options
    })
    .expect("loads");
    tell(&mut engine, pid);
    engine.attach().expect("attaches");
    let mut all = Drained::default();
    let until = Instant::now() + Duration::from_secs(60);
    while all
        .counted
        .iter()
        .map(|counted| counted.samples)
        .sum::<u64>()
        < enough
    {
        assert!(
            Instant::now() < until,
            "too few samples in a minute: {:?}",
            all.counters
        );
        std::thread::sleep(Duration::from_millis(250));
        let drained = engine.drain().expect("drains");
        all.counted.extend(drained.counted);
        all.raw.extend(drained.raw);
        all.without_stack += drained.without_stack;
        for (name, n) in drained.counters {
            match all.counters.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += n,
                None => all.counters.push((name, n)),
            }
        }
    }
    all
}

fn fast() -> Options {
    Options {
        event: Event::clock(frequency_hz()),
        ..Options::default()
    }
}

#[test]
fn every_kind_of_code_is_walked_to_the_root() {
    if skip() {
        return;
    }
    let victim = Running::victim(&["100"]);
    let drained = sample(victim.pid(), &fast(), 1000);
    let entry = entry_address(victim.pid());
    // The last frame of each thread's stacks is where that thread began.
    let mut roots: HashMap<(u32, u64), u64> = HashMap::new();
    let (mut all, mut reached, mut deep) = (0, 0, 0);
    for counted in &drained.counted {
        let stack = counted.user.as_ref().expect("a user stack");
        all += counted.samples;
        deep += if stack.frames.len() > 90 {
            counted.samples
        } else {
            0
        };
        if let (None, Some(root)) = (stack.cut, stack.frames.last()) {
            *roots.entry((counted.tid, *root)).or_default() += counted.samples;
        }
    }
    for ((tid, root), samples) in &roots {
        let most = roots
            .iter()
            .filter(|((t, _), _)| t == tid)
            .map(|(_, n)| n)
            .max();
        let is_right = match *tid == victim.pid() {
            true => (entry..entry + 64).contains(root),
            false => most == Some(samples),
        };
        reached += if is_right { *samples } else { 0 };
    }
    println!(
        "{reached} of {all} samples reach the root, {} raw, {deep} of more than 90 frames",
        drained.raw.len()
    );
    println!("{:?}", drained.counters);
    let vdso = code_of(victim.pid())
        .into_iter()
        .find(|code| code.path == "[vdso]");
    let vdso = vdso.map_or(0..0, |code| code.mapping.start..code.mapping.end);
    let unknown = drained
        .raw
        .iter()
        .filter(|raw| vdso.contains(&raw.registers.ip))
        .count();
    // A handler may have interrupted the library that came after the mappings were read.
    assert!(
        unknown <= 2,
        "{unknown} samples in the vDSO, which has a mapping"
    );
    println!("KERNEL-FIGURE roots {}", percent(reached, all));
    assert!(
        reached * 1000 >= all * 995,
        "{reached} of {all}: {roots:x?}"
    );
    assert!(
        drained.raw.len() as u64 * 50 <= all,
        "{} raw of {all}",
        drained.raw.len()
    );
    // The recursion is about a twelfth of the samples, of an emulator's less.
    assert!(
        deep * if is_emulated() { 200 } else { 50 } > all,
        "{deep} of {all} are deep"
    );
    assert_eq!(drained.without_stack, 0);
}

/// Where a CPU is emulated (`cargo xtask kernels`), its clock cannot be read so often.
fn frequency_hz() -> u32 {
    if is_emulated() { 49 } else { 497 }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

fn entry_address(pid: u32) -> u64 {
    let code = code_of(pid)
        .into_iter()
        .find(|code| code.path.contains("victim"))
        .expect("the program");
    let bytes = std::fs::read(&code.path).expect("readable");
    let entry = u64::from_le_bytes(bytes[24..32].try_into().expect("an ELF header"));
    code.mapping.image_base + entry
}

#[test]
fn every_tick_is_accounted_for() {
    if skip() {
        return;
    }
    let victim = Running::victim(&["100", "recursion"]);
    let mut engine = Engine::load(&Options {
        only_pid: Some(victim.pid()),
        ..fast()
    })
    .expect("loads");
    tell(&mut engine, victim.pid());
    let started = Instant::now();
    engine.attach().expect("attaches");
    std::thread::sleep(Duration::from_secs(2));
    // A victim that stands still is not counted while its counts are read.
    // SAFETY: our own child.
    unsafe { libc::kill(victim.pid() as i32, libc::SIGSTOP) };
    std::thread::sleep(Duration::from_millis(50));
    let drained = engine.drain().expect("drains");
    let seconds = started.elapsed().as_secs_f64();
    let cpus = std::thread::available_parallelism().expect("counted").get() as f64;
    let expected = f64::from(frequency_hz()) * seconds * cpus;
    let ticks = drained.counter("ticks");
    println!(
        "{ticks} ticks, {expected:.0} expected, {:?}",
        drained.counters
    );
    println!("KERNEL-FIGURE ticks {}", percent(ticks, expected as u64));
    let least = if is_emulated() { 0.85 } else { 0.95 };
    assert!(ticks as f64 > expected * least, "{ticks} of {expected:.0}");
    let parts = [
        "idle",
        "counted",
        "raw",
        "counts_full",
        "other_process",
        "no_scratch",
    ];
    let sum: u64 = parts.iter().map(|part| drained.counter(part)).sum();
    // Ticks go on while counters are read.
    assert!(ticks.abs_diff(sum) <= 4, "{ticks} {sum}");
    let counted: u64 = drained.counted.iter().map(|counted| counted.samples).sum();
    assert_eq!(counted, drained.counter("counted"));
    assert_eq!(
        drained.counter("counts_full") + drained.counter("stack_ring_full"),
        0
    );
}

#[test]
fn a_process_without_tables_is_sent_as_registers_and_stack() {
    if skip() {
        return;
    }
    let victim = Running::victim(&["100", "recursion"]);
    let mut engine = Engine::load(&Options {
        only_pid: Some(victim.pid()),
        ..fast()
    })
    .expect("loads");
    engine.attach().expect("attaches");
    let until = Instant::now() + Duration::from_secs(30);
    let mut raw = Vec::new();
    while raw.len() < 20 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        raw.extend(engine.raw());
    }
    assert!(raw.len() >= 20, "{}", raw.len());
    let code = code_of(victim.pid());
    let holds = |ip: u64| {
        code.iter()
            .any(|code| (code.mapping.start..code.mapping.end).contains(&ip))
    };
    for sample in &raw {
        assert_eq!(sample.lacked, Some("unknown_process"));
        assert!(holds(sample.registers.ip), "{:x}", sample.registers.ip);
        assert!(
            sample.stack.len() >= 128 && sample.stack.len() <= 16 << 10,
            "{}",
            sample.stack.len()
        );
        assert_eq!(sample.stack_start, sample.registers.sp & !7);
    }
}

#[test]
fn the_verifier_has_little_to_do() {
    if skip() {
        return;
    }
    let engine = Engine::load(&Options::default()).expect("loads");
    for figures in engine.programs() {
        println!("{figures:?}");
        // 1,000,000 is what the kernel allows.
        assert!(figures.verified_instructions < 20_000, "{figures:?}");
    }
}
