//! Time off the CPU.

#![allow(clippy::expect_used)]

mod common;

use common::{Running, is_emulated, skip, tell};
use pilotlight_agent_bpf::{Engine, OffCpu, Options};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};

/// System calls of `victim/waits.rs` on x86-64.
const CALLS: [(&str, u32); 4] = [("sleep", 230), ("poll", 7), ("futex", 202), ("io", 0)];

#[test]
fn waits_have_their_length_their_kind_and_a_stack() {
    if skip() {
        return;
    }
    // Where others have the CPUs, the victim is kept from beginning to wait now and then: that is in what it measured,
    // and is no wait.
    assert!((0..4).any(|_| compare().is_ok()), "four times");
}

fn compare() -> Result<(), String> {
    let mut victim = Running::victim(&["50", "waits"]);
    let pid = victim.pid();
    let mut engine = Engine::load(&Options {
        only_pid: Some(pid),
        off_cpu: Some(OffCpu {
            min_ns: 100_000,
            ..OffCpu::default()
        }),
        by_thread: true,
        ..Options::default()
    })
    .expect("loads");
    tell(&mut engine, pid);
    engine.attach().expect("attaches");
    victim.go_on();
    let mut told = HashMap::new();
    let lines = BufReader::new(victim.out.take().expect("piped")).lines();
    for line in lines.map_while(Result::ok).take_while(|line| line != "end") {
        let (name, ns) = line.split_once(' ').expect("a name and a number");
        told.insert(name.to_owned(), ns.parse::<f64>().expect("a number"));
    }
    let drained = engine.drain().expect("drains");
    let (mut whole, mut all) = (0, 0);
    let mut shares = Vec::new();
    for (name, call) in CALLS {
        let waits = drained
            .counted
            .iter()
            .filter(|c| c.tid == pid && c.waiting == Some(Some(call)));
        let waits: Vec<_> = waits.collect();
        let seen: u64 = waits.iter().map(|wait| wait.waited_ns).sum();
        let share = seen as f64 / told[name];
        println!(
            "{name}: {seen} of {} ns ({share:.3}), {} stacks",
            told[name],
            waits.len()
        );
        shares.push(share);
        let least = if is_emulated() { 0.7 } else { 0.95 };
        if !(least..=1.05).contains(&share) {
            return Err(format!("{name}: {share}"));
        }
        for wait in waits {
            all += wait.samples;
            let stack = wait.user.as_ref().expect("a user stack");
            assert!(wait.kernel.is_some(), "{name}");
            whole += if stack.cut.is_none() { wait.samples } else { 0 };
        }
    }
    shares.sort_by(f64::total_cmp);
    println!("KERNEL-FIGURE waits {:.3} to {:.3}", shares[0], shares[3]);
    assert!(all >= 150, "{all}");
    assert_eq!(whole, all, "{whole} of {all}");
    Ok(())
}
