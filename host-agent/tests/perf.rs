//! The sampler by perf events, over programs that run.

#![allow(clippy::unwrap_used)]

mod victim;

use pilotlight_host_agent::perf::PerfSampler;
use pilotlight_host_agent::process::Processes;
use pilotlight_host_agent::{Losses, Sample, Sampler, SamplerOptions};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use victim::Victim;

/// Samples `pid` until there are `wanted` samples, a minute at most.
fn samples_of(
    pid: u32,
    options: SamplerOptions,
    wanted: u64,
) -> (Vec<Sample>, Losses, Arc<Processes>) {
    let processes = Arc::new(Processes::new());
    let mut sampler = PerfSampler::start(&options, Arc::clone(&processes)).unwrap();
    let (mut samples, mut losses) = (Vec::new(), Losses::default());
    let until = Instant::now() + Duration::from_secs(60);
    while count(&samples, |_| true) < wanted && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
        let batch = sampler.drain().unwrap();
        losses.merge(&batch.losses);
        samples.extend(
            batch
                .samples
                .into_iter()
                .filter(|sample| sample.process.pid == pid),
        );
    }
    assert!(
        count(&samples, |_| true) >= wanted,
        "too few samples; lost: {losses:?}"
    );
    (samples, losses, processes)
}

fn count(samples: &[Sample], which: impl Fn(&Sample) -> bool) -> u64 {
    samples
        .iter()
        .filter(|sample| which(sample))
        .map(|sample| sample.count)
        .sum()
}

fn at(pid: u32) -> SamplerOptions {
    SamplerOptions {
        frequency_hz: 197,
        pids: vec![pid],
        ..SamplerOptions::default()
    }
}

#[test]
fn stacks_without_frame_pointers_reach_their_root_through_signals_callbacks_and_panics() {
    victim::serve();
    let name =
        "stacks_without_frame_pointers_reach_their_root_through_signals_callbacks_and_panics";
    let victim = Victim::start(name, "mixed");
    let (samples, losses, _) = samples_of(victim.pid(), at(victim.pid()), 600);
    let all = count(&samples, |_| true);
    let whole = count(&samples, |sample| {
        sample.cut.is_none() && !sample.user.is_empty()
    });
    let cut: Vec<_> = samples
        .iter()
        .filter(|s| s.cut.is_some() || s.user.is_empty())
        .collect();
    println!(
        "{whole} of {all} whole, {} deep at most, lost {losses:?}",
        deepest(&samples)
    );
    assert!(whole * 100 >= all * 99, "{whole} of {all}: {cut:#x?}");
    assert!(deepest(&samples) > 60);
}

fn deepest(samples: &[Sample]) -> usize {
    samples
        .iter()
        .map(|sample| sample.user.len())
        .max()
        .unwrap_or(0)
}

#[test]
fn the_hot_function_of_a_process_has_its_share_and_files_have_build_ids() {
    victim::serve();
    let name = "the_hot_function_of_a_process_has_its_share_and_files_have_build_ids";
    let victim = Victim::start(name, "hot");
    let (samples, _, processes) = samples_of(victim.pid(), at(victim.pid()), 100);
    let hot = victim::victim_hot_loop as *const () as u64;
    let process = processes.current(victim.pid()).unwrap();
    // The same file in both processes, at different addresses.
    let place = |pid: u32, address: u64| {
        let process = processes.current(pid).unwrap();
        let mapping = process.mapping(address).unwrap().clone();
        let file = processes.files().of(pid, &mapping).unwrap();
        (address - file.bias(&mapping).unwrap(), file)
    };
    let (hot, file) = place(std::process::id(), hot);
    assert!(file.build_id.len() >= 8);
    let in_hot = |sample: &Sample| {
        let leaf = sample.user.first().copied().unwrap_or(0);
        process.mapping(leaf).is_some() && {
            let (svma, of) = place(victim.pid(), leaf);
            Arc::ptr_eq(&of, &file) && (hot..hot + 256).contains(&svma)
        }
    };
    let share = count(&samples, in_hot) as f64 / count(&samples, |_| true) as f64;
    assert!(share > 0.9, "{share}");
    let period_ns = 1_000_000_000 / 197;
    assert!(samples.iter().all(|s| s.weight == s.count * period_ns));
}

#[test]
fn a_user_without_privileges_samples_its_own_processes() {
    const CHILD: &str = "PILOTLIGHT_WITHOUT_PRIVILEGES";
    if std::env::var_os(CHILD).is_some() {
        return without_privileges();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "a_user_without_privileges_samples_its_own_processes",
        "--exact",
        "--nocapture",
    ]);
    command.env(CHILD, "1");
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("SKIP: another user may not run this test");
        }
        ran => {
            let ran = ran.unwrap();
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(
                ran.status.success(),
                "{text}\n{}",
                String::from_utf8_lossy(&ran.stderr)
            );
        }
    }
}

fn without_privileges() {
    std::thread::spawn(|| {
        loop {
            std::hint::black_box(victim::victim_hot_loop(1 << 20));
        }
    });
    let options = SamplerOptions {
        frequency_hz: 197,
        ..SamplerOptions::default()
    };
    let (samples, _, _) = samples_of(std::process::id(), options, 100);
    let whole = count(&samples, |sample| {
        sample.cut.is_none() && !sample.user.is_empty()
    });
    let all = count(&samples, |_| true);
    assert!(whole * 100 >= all * 97, "{whole} of {all}");
    assert!(samples.iter().all(|sample| sample.kernel.is_empty()));
}
