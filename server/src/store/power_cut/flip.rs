//! Every byte of a small store is changed, one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::log::{Files, Kept, Op, Recorder, after_cut, folder};
use super::runtime;
use super::world::{Held, Rng, World, answered, reopened};
use crate::block::{MANIFEST, SAMPLES, SYMBOLS};
use crate::env::Env;
use crate::store::disk::Disk;
use crate::verify::check;

/// Segments, a block and its roll-up, of three services each.
fn small() -> BTreeMap<String, Vec<u8>> {
    let (folder, runtime) = (folder(), runtime());
    let recorder = Arc::new(Recorder::default());
    let env = Held::new(5);
    let world = World::local(folder.path(), &runtime, recorder.clone(), &env);
    world.play(&runtime, &mut Rng(12), 14, |_, _| {});
    world.push(&runtime, &[500, 501]);
    let ops: Vec<Op> = recorder.0.lock().unwrap().clone();
    let mut files = after_cut(&ops, Kept::All).0.into_inner().unwrap();
    // Without what was replaced: nobody reads it.
    let live = reopened(&disk(&files), env.now_ns()).select(|_| true);
    let live: BTreeSet<String> = live.iter().map(|segment| segment.name.clone()).collect();
    files.retain(|name, _| live.contains(&reported(name)));
    files
}

fn disk(files: &BTreeMap<String, Vec<u8>>) -> Arc<dyn Disk> {
    Arc::new(Files(Mutex::new(files.clone())))
}

/// The name under which damage of a file is reported: a block's is its manifest's.
fn reported(name: &str) -> String {
    let stem = name.strip_suffix(SAMPLES).or(name.strip_suffix(SYMBOLS));
    stem.map_or(name.to_owned(), |stem| format!("{stem}{MANIFEST}"))
}

#[test]
fn a_changed_byte_anywhere_is_named_or_harmless_and_no_answer_is_wrong() {
    let good = small();
    let now_ns = Held::new(0).now_ns();
    let whole = answered(&disk(&good), &reopened(&disk(&good), now_ns));
    assert!(!whole.partial);
    for end in [".plseg", MANIFEST, SAMPLES, SYMBOLS] {
        assert!(good.keys().any(|name| name.ends_with(end)), "{end}");
    }
    let every = std::env::var_os("PILOTLIGHT_LONG").is_some();
    let (mut found, mut harmless, mut confined) = (0, 0, 0);
    for (name, bytes) in &good {
        for at in (0..bytes.len()).step_by(if every { 1 } else { 83 }) {
            let mut changed = good.clone();
            changed.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
            let disk = disk(&changed);
            let catalog = reopened(&disk, now_ns);
            let first = answered(&disk, &catalog);
            // Again, now that the damage is known.
            let second = answered(&disk, &catalog);
            let verified = check(&*disk, now_ns).unwrap();
            let what = format!("{name}, byte {at}");
            for answer in [&first, &second] {
                let right = |(n, value): (&u64, &i64)| whole.values.get(n) == Some(value);
                assert!(answer.values.iter().all(right), "{what}: a wrong value");
                assert!(
                    answer.partial || answer.values == whole.values,
                    "{what}: less, unsaid"
                );
                let named = BTreeSet::from([reported(name)]);
                assert!(
                    answer.files.is_subset(&named),
                    "{what}: {:?} named",
                    answer.files
                );
            }
            let named: BTreeSet<String> = verified.damaged.into_iter().map(|of| of.0).collect();
            if first.partial {
                found += 1;
                assert!(second.partial, "{what}: forgotten");
                assert_eq!(named, BTreeSet::from([reported(name)]), "{what}");
                confined += usize::from(second.values.len() + 3 > whole.values.len());
            } else {
                assert!(named.is_empty() || name.ends_with(SAMPLES) || name.ends_with(SYMBOLS));
                harmless += 1;
            }
        }
    }
    println!("{found} found, {harmless} harmless, {confined} hid at most two pushes");
    assert!(
        found > 40 && confined > 0,
        "{found} found, {confined} confined"
    );
}
