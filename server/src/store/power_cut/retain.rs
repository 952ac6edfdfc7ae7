//! Retention of some series out of blocks that also hold others, with a power cut at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::log::{Kept, Op, Recorder, after_cut, folder};
use super::runtime;
use super::world::{Answered, Held, Rng, SECOND, World, answered, reopened, rules};
use crate::env::Env;
use crate::store::disk::{Disk, LocalDisk};
use crate::store::maintain::Maintenance;
use crate::store::retention::{RetentionRule, step_ns};

fn rule(max_age_s: u64, roll_up_max_age_s: Option<u64>) -> RetentionRule {
    let mut rule = RetentionRule::new(r#"{service_name="s0"}"#).unwrap();
    rule.max_age = Some(Duration::from_secs(max_age_s));
    rule.roll_up_max_age = roll_up_max_age_s.map(Duration::from_secs);
    rule
}

fn with(retention: Vec<RetentionRule>) -> Maintenance {
    Maintenance {
        retention,
        ..rules()
    }
}

/// Whether a file of that kind holds pushes of the short-lived service.
fn holds(world: &World, rolled: bool) -> bool {
    let files = world
        .maintainer
        .catalog
        .select(|file| (step_ns(file) > 0) == rolled);
    let mut series = files
        .iter()
        .flat_map(|file| &file.header.parts)
        .flat_map(|part| &part.series);
    series.any(|entry| entry.labels[0].1 == "s0")
}

fn now(world: &World) -> Answered {
    answered(&world.disk, &world.maintainer.catalog)
}

/// Rounds until nothing is left to do.
fn settle(world: &World) {
    for _ in 0..12 {
        world.env.now_ns.fetch_add(10 * SECOND, Relaxed);
        world.maintainer.round();
    }
}

fn without_s0(values: &BTreeMap<u64, i64>) -> BTreeMap<u64, i64> {
    let others = values.iter().filter(|(n, _)| **n % 3 != 0);
    others.map(|(n, value)| (*n, *value)).collect()
}

#[test]
fn a_rule_takes_its_series_out_of_blocks_and_later_out_of_their_roll_ups() {
    let (folder, runtime) = (folder(), runtime());
    let recorder = Arc::new(Recorder::default());
    let env = Held::new(3);
    let local = LocalDisk::watched(folder.path(), runtime.handle().clone(), recorder.clone());
    let disk: Arc<dyn Disk> = Arc::new(local.unwrap());
    // Some limit: only then does a server look at its clock.
    let world = World::open(disk.clone(), &env, with(vec![rule(1 << 30, None)]));
    let mut pushed = BTreeSet::new();
    world.play(&runtime, &mut Rng(3), 30, |_, acked| {
        pushed.extend(acked.iter().copied())
    });
    settle(&world);
    // After an hour a server trusts its clock.
    env.now_ns.fetch_add(4000 * SECOND, Relaxed);
    settle(&world);
    let all = now(&world).values;
    assert_eq!(all.keys().copied().collect::<BTreeSet<_>>(), pushed);
    assert!(holds(&world, false) && holds(&world, true));
    let before = recorder.0.lock().unwrap().len();

    let raw_only = World {
        maintainer: world.maintainer.with_rules(with(vec![rule(1000, None)])),
        ..world
    };
    settle(&raw_only);
    assert!(!holds(&raw_only, false), "samples of s0 are gone");
    assert!(holds(&raw_only, true), "its roll-ups are not");
    assert_eq!(now(&raw_only).values, all, "and answer for it");

    let both = with(vec![rule(1000, Some(2000))]);
    let world = World {
        maintainer: raw_only.maintainer.with_rules(both),
        ..raw_only
    };
    settle(&world);
    assert!(!holds(&world, false) && !holds(&world, true));
    let others = without_s0(&all);
    assert_eq!(now(&world).values, others, "the others stay whole");
    assert!(!now(&world).partial);
    let again = answered(&disk, &reopened(&disk, env.now_ns()));
    assert_eq!(again.values, others, "after a restart");

    let ops: Vec<Op> = recorder.0.lock().unwrap().clone();
    let mut rng = Rng(1);
    for at in before..=ops.len() {
        for kept in [Kept::All, Kept::None, Kept::Some(rng.below(u64::MAX))] {
            let disk: Arc<dyn Disk> = Arc::new(after_cut(&ops[..at], kept));
            let found = answered(&disk, &reopened(&disk, env.now_ns()));
            let what = format!("cut after {at} of {}, {kept:?}", ops.len());
            assert!(!found.partial, "{what}");
            assert_eq!(without_s0(&found.values), others, "{what}");
            assert!(
                found.values.iter().all(|at| all.get(at.0) == Some(at.1)),
                "{what}"
            );
        }
    }
}

#[test]
fn a_rule_bounds_the_bytes_of_its_series_alone() {
    let (folder, runtime) = (folder(), runtime());
    let env = Held::new(4);
    let local = LocalDisk::open(folder.path(), runtime.handle().clone()).unwrap();
    let world = World::open(Arc::new(local), &env, with(Vec::new()));
    world.play(&runtime, &mut Rng(4), 30, |_, _| {});
    settle(&world);
    let all = now(&world).values;
    let mut rule = RetentionRule::new(r#"{service_name="s0"}"#).unwrap();
    rule.max_bytes = Some(1);
    let world = World {
        maintainer: world.maintainer.with_rules(with(vec![rule])),
        ..world
    };
    settle(&world);
    assert_eq!(now(&world).values, without_s0(&all));
}
