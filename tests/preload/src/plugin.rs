//! As a plug-in that starts pilotlight when its host asks for it, whatever the host does with it then.

use std::sync::Mutex;

use pilotlight::{Capture, Config, Guard};

static RUNNING: Mutex<Option<(Guard, Capture)>> = Mutex::new(None);

/// Starts, and begins a capture; false when that fails.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_begin() -> bool {
    let begin = || {
        let config = Config::new("plug-in").no_listener().frequency_hz(1000);
        let guard = config.start()?;
        Capture::begin().map(|capture| (guard, capture))
    };
    let begun = begin();
    if let Err(error) = &begun {
        eprintln!("pilotlight: {error}");
    }
    RUNNING.lock().is_ok_and(|mut running| {
        *running = begun.ok();
        running.is_some()
    })
}

/// Work of this library: uses so much of the calling thread's CPU time.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn plugin_work(ns: u64) -> u64 {
    let (until, mut x) = (thread_cpu_ns() + ns, 1u64);
    while thread_cpu_ns() < until {
        for _ in 0..2000 {
            x = std::hint::black_box(x.wrapping_mul(31).wrapping_add(7));
        }
    }
    x
}

fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Ends the capture and stops; CPU nanoseconds of the profile below [`plugin_work`], 0 when nothing
/// ran.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_end() -> i64 {
    let running = RUNNING.lock().ok().and_then(|mut running| running.take());
    let Some((_guard, capture)) = running else {
        return 0;
    };
    let rows = pilotlight_profile::top(&capture.finish(), 1);
    let is_work = |name: &str| name.contains("plugin_work");
    let work = rows.iter().filter(|row| is_work(&row.name));
    work.map(|row| row.total_value).max().unwrap_or(0)
}
