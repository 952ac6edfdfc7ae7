//! Starts pilotlight when it is loaded and `PRELOAD_REPORT` names a file, and writes there how long
//! threads waited for each other, and how much of it is in the profile `mutex`, when the program ends.

pilotlight::interpose!();

mod plugin;

use std::sync::OnceLock;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

static GUARD: OnceLock<pilotlight::Guard> = OnceLock::new();

extern "C" fn start() {
    if std::env::var_os("PRELOAD_REPORT").is_none() {
        return;
    }
    let config = pilotlight::Config::new("preload");
    match config.no_listener().lock_rate_ns(1).start() {
        Ok(guard) => {
            let _ = GUARD.set(guard);
            // SAFETY: a function of this library, which is never unloaded.
            unsafe { libc::atexit(report) };
        }
        Err(error) => eprintln!("pilotlight: {error}"),
    }
}

extern "C" fn report() {
    let Some(path) = std::env::var_os("PRELOAD_REPORT") else {
        return;
    };
    let stats = pilotlight::stats();
    let mutex = pilotlight::take("mutex", std::time::Duration::ZERO);
    let delay_ns = mutex.map_or(0, |profile| profile.total(1));
    let text = format!("{} {} {delay_ns}\n", stats.waits, stats.waits_ns);
    if let Err(error) = std::fs::write(path, text) {
        eprintln!("pilotlight: {error}");
    }
}

/// Waits for a lock of this library's own standard library; nanoseconds as it sees them.
#[unsafe(no_mangle)]
pub extern "C" fn contend() -> u64 {
    use std::sync::{Barrier, Mutex};
    let (lock, held) = (Mutex::new(()), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.lock();
            held.wait();
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(guard);
        });
        held.wait();
        let began = std::time::Instant::now();
        drop(lock.lock());
        began.elapsed().as_nanos() as u64
    })
}

/// Nanoseconds of waiting that pilotlight counted so far.
#[unsafe(no_mangle)]
pub extern "C" fn waited_ns() -> u64 {
    pilotlight::stats().waits_ns
}
