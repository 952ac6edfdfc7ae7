//! The workloads of `bench sdk`: one process a measurement, so that start-up and memory are clean.
//! Each prints `name value` lines, which the bench compares between profilers.

use std::{
    error::Error,
    hint::black_box,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Disposition, Rng, SITES, at_depth, at_sites, min_and_median, monotonic_ns, peak_rss_kib,
    process_cpu_ns, reset_peak_rss, rss_kib, thread_cpu_ns, work,
};

/// What a profiler says about all samples since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Size of the encoded pprof, not compressed.
    pub bytes: u64,
    /// Distinct stacks.
    pub stacks: u64,
    /// Samples, each timer expiry counted once.
    pub samples: u64,
    /// Frames of the deepest stack.
    pub deepest: u64,
    /// CPU time that the profile claims, in nanoseconds.
    pub cpu_ns: u64,
    /// Samples that the profiler itself counts as dropped, where it counts them.
    pub lost: Option<u64>,
}

/// A profiler that can be measured.
pub trait Subject: Sized {
    /// Starts sampling CPU time of the whole process; `reports` reports will be asked for, each
    /// over all samples since now.
    ///
    /// # Errors
    /// Whatever the profiler answers.
    fn start(frequency_hz: u32, reports: usize) -> Result<Self, Box<dyn Error>>;

    /// The signal it samples by.
    fn signal(&self) -> i32;

    /// A function that sends the calling thread one signal that the profiler takes for its own.
    fn sender(&self) -> Sender;

    /// Waits until samples so far have left the handler's buffers.
    fn settle(&self);

    /// Makes the pprof of all samples since the start.
    ///
    /// # Errors
    /// Whatever the profiler answers.
    fn report(&mut self) -> Result<Report, Box<dyn Error>>;
}

/// See [`Subject::sender`].
pub type Sender = Box<dyn Fn() + Send + Sync>;

type Outcome = Result<(), Box<dyn Error>>;

/// The `main` of a measuring process: `handler DEPTH`, `start`, `record STACKS`, `report STACKS`,
/// `overhead HZ THREADS MILLIS PAIRS`, `accuracy HZ THREADS MILLIS`, `bursts HZ` or `short HZ`.
pub fn run_subject<S: Subject>() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match dispatch::<S>(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch<S: Subject>(words: &[String]) -> Outcome {
    let number = |index: usize| -> Result<u64, Box<dyn Error>> {
        Ok(words.get(index).ok_or("an argument is missing")?.parse()?)
    };
    match words.first().map(String::as_str) {
        Some("handler") => handler::<S>(number(1)? as usize),
        Some("start") => start::<S>(),
        Some("report") => report::<S>(number(1)? as usize),
        Some("record") => record::<S>(number(1)? as usize),
        Some("overhead") => {
            overhead::<S>(number(1)? as u32, number(2)?, number(3)?, number(4)?)
        }
        Some("accuracy") => accuracy::<S>(number(1)? as u32, number(2)? as usize, number(3)?),
        Some("bursts") => bursts::<S>(number(1)? as u32),
        Some("short") => short_threads::<S>(number(1)? as u32),
        _ => Err("usage: bursts HZ | short HZ | handler DEPTH | start | record STACKS | report STACKS | overhead HZ THREADS MILLIS PAIRS | accuracy HZ THREADS MILLIS".into()),
    }
}

fn print(name: &str, value: f64) {
    println!("{name} {value}");
}

/// CPU time of one signal to oneself at a stack depth, with the profiler's handler and with an empty
/// one in its place, in alternating rounds.
fn handler<S: Subject>(depth: usize) -> Outcome {
    const ROUNDS: usize = 80;
    const SIGNALS: u64 = 64;
    let mut subject = S::start(1, 1)?;
    let send = subject.sender();
    let real = Disposition::present(subject.signal())?;
    let empty = real.emptied();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut failed = Ok(());
    // The shell around `leaf` (main, dispatch, this function, the closure) is about 11 frames.
    at_depth(depth.saturating_sub(11), &mut || {
        for _ in 0..ROUNDS {
            for (disposition, readings) in [(&empty, &mut without), (&real, &mut with)] {
                if let Err(error) = disposition.install() {
                    failed = Err(error);
                }
                let before = thread_cpu_ns();
                for _ in 0..SIGNALS {
                    send();
                }
                readings.push((thread_cpu_ns() - before) as f64 / SIGNALS as f64);
            }
            subject.settle();
        }
    });
    failed?;
    let report = subject.report()?;
    let ((with_min, with_median), (without_min, without_median)) =
        (min_and_median(&mut with), min_and_median(&mut without));
    print("empty_min_ns", without_min);
    print("empty_median_ns", without_median);
    print("handler_min_ns", with_min);
    print("handler_median_ns", with_median);
    print(
        "taken",
        report.samples as f64 / (ROUNDS as u64 * SIGNALS) as f64,
    );
    print("deepest", report.deepest as f64);
    Ok(())
}

/// Resident memory and CPU time that starting takes, half a second of settling included.
fn start<S: Subject>() -> Outcome {
    let rss = rss_kib()?;
    let (cpu, wall) = (process_cpu_ns(), monotonic_ns());
    let subject = S::start(97, 1)?;
    let (cpu_call, wall_call) = (process_cpu_ns() - cpu, monotonic_ns() - wall);
    thread::sleep(Duration::from_millis(500));
    print("cpu_ns", (process_cpu_ns() - cpu) as f64);
    print("cpu_call_ns", cpu_call as f64);
    print("wall_ns", wall_call as f64);
    print("rss_kib", rss_kib()?.saturating_sub(rss) as f64);
    print("peak_kib", peak_rss_kib()?.saturating_sub(rss) as f64);
    drop(subject);
    Ok(())
}

/// CPU time of taking and keeping many distinct stacks, signals included.
fn record<S: Subject>(stacks: usize) -> Outcome {
    let subject = S::start(1, 1)?;
    let before = process_cpu_ns();
    fill(&subject, stacks);
    print("record_cpu_ns", (process_cpu_ns() - before) as f64);
    Ok(())
}

/// CPU time of a report over many distinct stacks, then what is lost while another report runs.
fn report<S: Subject>(stacks: usize) -> Outcome {
    let mut subject = S::start(1, 3)?;
    fill(&subject, stacks);
    let rss = rss_kib()?;
    reset_peak_rss()?;
    let (before, wall) = (process_cpu_ns(), monotonic_ns());
    let first = subject.report()?;
    print("report_cpu_ns", (process_cpu_ns() - before) as f64);
    print("report_wall_ns", (monotonic_ns() - wall) as f64);
    print(
        "report_growth_kib",
        peak_rss_kib()?.saturating_sub(rss) as f64,
    );
    print("stacks", first.stacks as f64);
    print("samples", first.samples as f64);
    print("pprof_bytes", first.bytes as f64);
    print("deepest", first.deepest as f64);
    lost_meanwhile(subject, first)
}

/// Fills the profiler with distinct stacks of 37 frames, in bursts that its buffers can hold.
fn fill<S: Subject>(subject: &S, stacks: usize) {
    let send = subject.sender();
    let mut rng = Rng::new(1);
    let mut path = [0u16; 25];
    for made in 1..=stacks {
        path.fill_with(|| rng.below(SITES) as u16);
        at_sites(&path, &mut || send());
        if made % 64 == 0 {
            subject.settle();
        }
    }
    subject.settle();
}

/// A thread sends itself a signal each 200 µs while a report is made; then all must be there.
fn lost_meanwhile<S: Subject>(mut subject: S, first: Report) -> Outcome {
    let stop = AtomicBool::new(false);
    let mut second = Report::default();
    let sender = subject.sender();
    let sent = thread::scope(|scope| -> Result<u64, Box<dyn Error>> {
        let thread = scope.spawn(|| {
            let mut sent = 0u64;
            while !stop.load(Ordering::Acquire) {
                sender();
                sent += 1;
                thread::sleep(Duration::from_micros(200));
            }
            sent
        });
        thread::sleep(Duration::from_millis(20));
        let during = subject.report();
        stop.store(true, Ordering::Release);
        let sent = thread.join().map_err(|_| "the sending thread died")?;
        during?;
        subject.settle();
        second = subject.report()?;
        Ok(sent)
    })?;
    let recorded = second.samples.saturating_sub(first.samples);
    print("sent_meanwhile", sent as f64);
    print("recorded_meanwhile", recorded as f64);
    print("counted_lost", second.lost.map_or(-1.0, |n| n as f64));
    Ok(())
}

/// What a fixed amount of work on `threads` threads costs more under a profiler: windows with and
/// without it take turns in one process, so that neither the layout of a process nor the machine's
/// slow changes look like a cost.
fn overhead<S: Subject>(frequency_hz: u32, threads: u64, millis: u64, pairs: u64) -> Outcome {
    let (mut percents, mut claimed_ns, mut spent_ns) = (Vec::new(), 0, 0);
    for pair in 0..pairs {
        let (mut with, mut without) = (0, 0);
        for is_with in [pair % 2 == 0, pair % 2 == 1] {
            let mut subject = is_with.then(|| S::start(frequency_hz, 1)).transpose()?;
            // Start-up is measured elsewhere.
            thread::sleep(Duration::from_millis(50));
            let before = process_cpu_ns();
            work_on(threads, millis);
            let spent = process_cpu_ns() - before;
            match &mut subject {
                Some(subject) => {
                    with = spent;
                    spent_ns += spent;
                    claimed_ns += subject.report()?.cpu_ns;
                }
                None => without = spent,
            }
        }
        percents.push((with as f64 / without as f64 - 1.0) * 100.0);
    }
    let (_, middle) = min_and_median(&mut percents);
    let mut distances: Vec<f64> = percents.iter().map(|p| (p - middle).abs()).collect();
    let (_, distance) = min_and_median(&mut distances);
    print("overhead_percent", middle);
    // Of a median of values that are about normal.
    let error = 1.2533 * 1.4826 * distance / (percents.len() as f64).sqrt();
    print("standard_error_percent", error);
    print("seen", claimed_ns as f64 / spent_ns as f64);
    Ok(())
}

/// About `millis` of work on each of so many threads, 20 calls deep.
fn work_on(threads: u64, millis: u64) {
    let steps = || {
        for _ in 0..millis {
            at_depth(20, &mut || {
                black_box(work(500_000));
            });
        }
    };
    match threads {
        1 => steps(),
        _ => thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(steps);
            }
        }),
    }
}

/// CPU time in the profile over CPU time by the kernel, for `threads` busy threads.
fn accuracy<S: Subject>(frequency_hz: u32, threads: usize, millis: u64) -> Outcome {
    let mut subject = S::start(frequency_hz, 1)?;
    let budget = millis * 1_000_000;
    let spent: u64 = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(|| burn(budget))).collect();
        handles
            .into_iter()
            .filter_map(|handle| handle.join().ok())
            .sum()
    });
    subject.settle();
    let report = subject.report()?;
    print("spent_ns", spent as f64);
    print("claimed_ns", report.cpu_ns as f64);
    print("samples", report.samples as f64);
    Ok(())
}

fn burn(budget_ns: u64) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(120);
    while thread_cpu_ns() < budget_ns && Instant::now() < deadline {
        black_box(work(200_000));
    }
    thread_cpu_ns()
}

/// Threads that work 30 µs and sleep half a millisecond.
fn bursts<S: Subject>(frequency_hz: u32) -> Outcome {
    let subject = S::start(frequency_hz, 1)?;
    let before = process_cpu_ns();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..6_000 {
                    let until = thread_cpu_ns() + 30_000;
                    while thread_cpu_ns() < until {
                        black_box(work(1_000));
                    }
                    thread::sleep(Duration::from_micros(500));
                }
            });
        }
    });
    told_of(subject, process_cpu_ns() - before)
}

/// Threads that live for a millisecond.
fn short_threads<S: Subject>(frequency_hz: u32) -> Outcome {
    let subject = S::start(frequency_hz, 1)?;
    let before = process_cpu_ns();
    for _ in 0..3_000 {
        thread::scope(|scope| drop(scope.spawn(|| burn(1_000_000))));
    }
    told_of(subject, process_cpu_ns() - before)
}

fn told_of<S: Subject>(mut subject: S, spent_ns: u64) -> Outcome {
    subject.settle();
    print("spent_ns", spent_ns as f64);
    print("claimed_ns", subject.report()?.cpu_ns as f64);
    Ok(())
}
