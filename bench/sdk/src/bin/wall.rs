//! A thousand threads that wait and four that run, looked at 100 times per second: what that costs,
//! what the profile says of them, and how often it ended a system call early.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pilotlight::{Capture, Config, Profile};
use pilotlight_bench_kit::{process_cpu_ns, thread_cpu_ns};

const IDLE: usize = 1000;
const BUSY: usize = 4;
const LENGTH: Duration = Duration::from_secs(10);

static STOP: AtomicBool = AtomicBool::new(false);
static INTERRUPTED: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<(), Box<dyn Error>> {
    let _guard = Config::new("bench")
        .no_listener()
        .wall_frequency_hz(100)
        .start()?;
    let senders: Vec<mpsc::Sender<()>> = (0..IDLE).map(|_| idle_thread()).collect();
    thread::sleep(Duration::from_millis(500));
    println!("signalled_percent {}", signalled()?);
    for _ in 0..BUSY {
        thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                runs();
            }
        });
    }
    thread::spawn(|| {
        while !STOP.load(Ordering::Relaxed) {
            naps();
        }
    });
    let capture = Capture::begin_wall()?;
    // The sampler's thread gets its name when it first runs.
    thread::sleep(Duration::from_millis(100));
    let (began, before) = (Instant::now(), cpu_of_sampler()?);
    let stats = pilotlight::stats();
    thread::sleep(LENGTH);
    let used = cpu_of_sampler()?.saturating_sub(before);
    let length = began.elapsed().as_nanos() as f64;
    let ticks = pilotlight::stats().wall_ticks - stats.wall_ticks;
    let looks = pilotlight::stats().wall_looks - stats.wall_looks;
    let profile = capture.finish();
    STOP.store(true, Ordering::Relaxed);
    let share = |name: &str, threads: usize| {
        nanoseconds(&profile, name) / (length * threads as f64) * 100.0 - 100.0
    };
    println!("sampler_percent {}", used as f64 / length * 100.0);
    println!("ticks_hz {}", ticks as f64 / length * 1e9);
    println!("looks_hz {}", looks as f64 / length * 1e9);
    println!("idle_error_percent {}", share("wall::waits", IDLE).abs());
    println!("busy_error_percent {}", share("wall::runs", BUSY).abs());
    println!("interrupted {}", INTERRUPTED.load(Ordering::Relaxed));
    println!("woken {}", pilotlight::stats().wall_woken);
    drop(senders);
    Ok(())
}

fn idle_thread() -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || waits(&receiver));
    sender
}

#[inline(never)]
fn waits(receiver: &mpsc::Receiver<()>) {
    std::hint::black_box(receiver.recv().is_err());
}

#[inline(never)]
fn runs() {
    let until = thread_cpu_ns() + 1_000_000;
    while thread_cpu_ns() < until {
        std::hint::spin_loop();
    }
}

/// A call that no `SA_RESTART` restarts.
fn naps() {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // SAFETY: reads `time`; the rest is not asked for.
    if unsafe { libc::nanosleep(&time, std::ptr::null_mut()) } != 0 {
        INTERRUPTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Percent of a CPU for the naive way: a signal with a handler that does nothing to 64 waiting threads
/// 100 times per second.
fn signalled() -> Result<f64, Box<dyn Error>> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler is a function of this program.
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as usize) };
    let own = std::process::id() as i32;
    let tids: Vec<i32> = tids()?.into_iter().filter(|tid| *tid != own).collect();
    let (began, before) = (Instant::now(), process_cpu_ns());
    let mut sent = 0;
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(10));
        for _ in 0..64 {
            let tid = tids[sent % tids.len()];
            // SAFETY: a signal to a thread of this process; it has a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, own, tid, libc::SIGUSR1) };
            sent += 1;
        }
    }
    let used = process_cpu_ns() - before;
    Ok(used as f64 / began.elapsed().as_nanos() as f64 * 100.0)
}

fn tids() -> Result<Vec<i32>, Box<dyn Error>> {
    let mut tids = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        tids.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok()),
        );
    }
    Ok(tids)
}

/// CPU time of the sampler's thread, nanoseconds.
fn cpu_of_sampler() -> Result<u64, Box<dyn Error>> {
    for tid in tids()? {
        let folder = format!("/proc/self/task/{tid}");
        if std::fs::read_to_string(format!("{folder}/comm"))?.trim_end() == "pilotlight-wall" {
            let text = std::fs::read_to_string(format!("{folder}/schedstat"))?;
            return Ok(text.split(' ').next().unwrap_or("").parse()?);
        }
    }
    Err("there is no sampler".into())
}

/// Sum of stacks that hold a function whose name contains `name`.
fn nanoseconds(profile: &Profile, name: &str) -> f64 {
    let is_named = |location: &u32| {
        profile
            .location(*location as usize)
            .lines
            .iter()
            .any(|line| {
                let function = profile.functions[line.function.index()];
                profile.strings.text(function.name).contains(name)
            })
    };
    let samples = profile.iter_samples();
    let of_name = samples.filter(|sample| sample.stack.iter().any(is_named));
    of_name.map(|sample| sample.values[1]).sum::<i64>() as f64
}
