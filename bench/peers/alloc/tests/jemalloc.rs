//! jemalloc's own profile through our endpoint: why there is none, its switch, what it says.

use std::hint::black_box;
use std::process::{Command, Output};
use std::time::Duration;

use pilotlight::{Profile, State};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const CONFIGURED: &str = "prof:true,prof_active:false,lg_prof_sample:12,prof_accum:true";

#[inline(never)]
fn keep_many(count: usize, size: usize) -> Vec<Vec<u8>> {
    let mut kept = Vec::with_capacity(count);
    for _ in 0..count {
        kept.push(black_box(vec![1; size]));
    }
    kept
}

/// Why `heap` is off, and how to switch it on.
fn off() -> (String, String) {
    let types = pilotlight::profile_types();
    let heap = types.into_iter().find(|ty| ty.name == "heap").unwrap();
    match heap.state {
        State::Off {
            why,
            how_to_switch_on,
            ..
        } => (why, how_to_switch_on),
        state => panic!("{state:?}"),
    }
}

/// Columns of the stacks that hold `keep_many`: allocated objects and bytes, those in use.
fn sums(profile: &Profile) -> [i64; 4] {
    let mut sums = [0; 4];
    for sample in profile.iter_samples() {
        let mut lines = sample
            .stack
            .iter()
            .flat_map(|at| profile.location(*at as usize).lines);
        let is_ours = lines.any(|line| {
            let name = profile.functions[line.function.index()].name;
            profile.strings.text(name).contains("keep_many")
        });
        for (sum, value) in sums.iter_mut().zip(sample.values).filter(|_| is_ours) {
            *sum += value;
        }
    }
    sums
}

/// Runs a test of this file in a process whose jemalloc is configured.
fn run_configured(before: &[&str], test: &str) -> Output {
    let exe = std::env::current_exe().unwrap();
    let mut words = before.to_vec();
    words.extend([
        exe.to_str().unwrap(),
        "--exact",
        test,
        "--ignored",
        "--nocapture",
    ]);
    Command::new(words[0])
        .args(&words[1..])
        .env("_RJEM_MALLOC_CONF", CONFIGURED)
        .output()
        .unwrap()
}

fn passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

#[test]
fn what_was_not_configured_at_the_start_says_so_and_how_it_would_be() {
    let (why, how) = off();
    assert!(why.contains("opt.prof is false"), "{why}");
    assert!(how.contains("_RJEM_MALLOC_CONF=prof:true"), "{how}");
    let error = pilotlight::set_enabled("heap", true)
        .unwrap_err()
        .to_string();
    assert!(error.contains("opt.prof is false"), "{error}");
    let error = pilotlight::take("heap", Duration::ZERO)
        .unwrap_err()
        .to_string();
    assert!(error.contains("_RJEM_MALLOC_CONF"), "{error}");
}

#[test]
fn it_is_switched_on_while_it_runs_and_says_what_is_in_use() {
    passed(&run_configured(&[], "configured"));
}

#[test]
fn a_read_only_root_is_no_hindrance() {
    let script = "mount -o remount,bind,ro / && ! touch /read-only-test 2>/dev/null && exec \"$@\"";
    let shell = ["unshare", "-rm", "sh", "-c", script, "sh"];
    let probe = Command::new("unshare")
        .args(&shell[1..])
        .arg("true")
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("SKIP: no mount namespace of its own");
        return;
    }
    passed(&run_configured(&shell, "configured"));
}

#[test]
#[ignore = "part of others, which configure its process"]
fn configured() {
    let (why, how) = off();
    assert!(why.contains("prof.active is false"), "{why}");
    assert!(how.contains("set_enabled(\"heap\", true)"), "{how}");
    pilotlight::set_enabled("heap", true).unwrap();

    let kept = keep_many(2000, 10_000);
    let heap = pilotlight::take("heap", Duration::ZERO).unwrap();
    assert_eq!(heap.period, 4096);
    // Sampled with probability 0.9: the deviation is below 1 %.
    let [objects, bytes, in_use, in_use_bytes] = sums(&heap);
    assert!((1900..2100).contains(&in_use), "{in_use}");
    // jemalloc counts its size classes: 10,240.
    assert!(
        (19_400_000..21_500_000).contains(&in_use_bytes),
        "{in_use_bytes}"
    );
    assert_eq!((objects, bytes), (in_use, in_use_bytes));
    for sample in heap
        .iter_samples()
        .filter(|sample| !sample.stack.is_empty())
    {
        let lines = heap.location(sample.stack[0] as usize).lines;
        let name = heap.functions[lines.last().unwrap().function.index()].name;
        let name = heap.strings.text(name);
        assert!(
            !name.contains("_rjem") && !name.starts_with("prof_"),
            "{name}"
        );
    }

    drop(kept);
    let [objects, _, in_use, _] = sums(&pilotlight::take("allocs", Duration::ZERO).unwrap());
    assert!((1900..2100).contains(&objects), "{objects}");
    assert!(in_use < 10, "{in_use}");
    pilotlight::set_enabled("heap", false).unwrap();
    assert!(off().0.contains("prof.active is false"));
}
