//! Power cuts and failing disks, at every step of recorded runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod fail;
mod flip;
mod late;
mod log;
mod retain;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use self::log::{Kept, Op, Recorder, after_cut, folder};
use self::world::{Held, Rng, SECOND, World, contents, reopened, rules};
use crate::env::Env;
use crate::store::disk::Disk;

/// Logs of the long version, 500 or a piece of them, as 40..80; 20 reorders of each make 10,000.
const LOGS: &str = "PILOTLIGHT_POWER_CUT_LOGS";
const REORDERS: u64 = 20;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// The steps of a run of pushes, merges, roll-ups and deletions, and the time at its end.
fn record(seed: u64) -> (Vec<Op>, i64) {
    let (folder, runtime) = (folder(), runtime());
    let recorder = Arc::new(Recorder::default());
    let env = Held::new(seed);
    let world = World::local(folder.path(), &runtime, recorder.clone(), &env);
    let mut rng = Rng(seed);
    world.play(&runtime, &mut rng, 30, |_, acked| {
        acked.iter().for_each(|&n| recorder.push(Op::Acked(n)));
    });
    let ops = recorder.0.lock().unwrap().clone();
    (ops, env.now_ns())
}

/// Opens what a cut left, and says what is wrong with it.
fn check(ops: &[Op], kept: Kept, now_ns: i64, go_on: bool) -> Result<(), String> {
    let disk: Arc<dyn Disk> = Arc::new(after_cut(ops, kept));
    let acked: BTreeSet<u64> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Acked(n) => Some(*n),
            _ => None,
        })
        .collect();
    let once = |found: std::collections::BTreeMap<u64, i64>, when: &str| {
        if let Some(n) = acked.iter().find(|n| !found.contains_key(n)) {
            return Err(format!("{when}: push {n} was acknowledged and is lost"));
        }
        match found.iter().find(|(_, value)| **value != 1) {
            Some((n, value)) => Err(format!("{when}: push {n} counts {value} times")),
            None => Ok(()),
        }
    };
    once(contents(disk.clone(), reopened(&disk, now_ns))?, "opened")?;
    if !go_on {
        return Ok(());
    }
    // What the next process does must not harm it either.
    let env = Held::new(now_ns as u64 >> 8);
    env.now_ns.store(now_ns, Relaxed);
    let world = World::open(disk.clone(), &env, rules());
    for _ in 0..4 {
        env.now_ns.fetch_add(3 * SECOND, Relaxed);
        world.maintainer.round();
    }
    once(world.contents()?, "after maintenance")?;
    let again: Vec<u64> = acked.iter().copied().collect();
    world.push(&runtime(), &again);
    once(
        contents(disk.clone(), reopened(&disk, now_ns))?,
        "pushed again",
    )
}

#[test]
fn after_a_power_cut_at_any_step_all_that_was_acknowledged_is_there_once() {
    let wanted = std::env::var(LOGS).ok();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let logs = match wanted
        .as_deref()
        .map(|text| text.split_once("..").unwrap_or(("0", text)))
    {
        Some((first, end)) => number(first)..number(end),
        None => 0..6,
    };
    let (mut steps, mut cuts, mut replaced) = (0, 0, 0);
    for seed in logs.clone() {
        let (ops, now_ns) = record(seed);
        steps += ops.len();
        replaced += ops.iter().filter(|op| matches!(op, Op::Remove(_))).count();
        let mut rng = Rng(!seed);
        let cut = |at: usize, kept: Kept, go_on: bool| {
            check(&ops[..at], kept, now_ns, go_on).unwrap_or_else(|wrong| {
                panic!(
                    "log {seed}, cut after step {at} of {}, {kept:?}: {wrong}",
                    ops.len()
                )
            });
        };
        // Every prefix of one log; of all in the long version.
        let all = seed == 0 || wanted.is_some();
        let prefixes = if all { ops.len() } else { 0 };
        for at in 0..=prefixes {
            cut(at, Kept::All, at % 8 == 0);
            cut(at, Kept::None, at % 8 == 4);
            cuts += 2;
        }
        for _ in 0..REORDERS {
            let at = rng.below(ops.len() as u64 + 1) as usize;
            cut(at, Kept::Some(rng.below(u64::MAX)), true);
            cuts += 1;
        }
    }
    println!(
        "logs {logs:?}, {steps} steps, {replaced} removals, {cuts} cuts, {} reorders",
        (logs.end - logs.start) * REORDERS
    );
    assert!(replaced > 0, "nothing was merged away");
}
