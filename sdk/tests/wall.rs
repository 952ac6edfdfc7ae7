//! Wall-clock and off-CPU time: shares, totals, and what a program sees of being looked at.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{burn, start, start_with};
use pilotlight::{Capture, Config, Profile};

/// Nanoseconds (column 1) of stacks that hold a function whose name contains `name`.
fn nanoseconds(profile: &Profile, name: &str) -> f64 {
    let rows = pilotlight_profile::top(profile, 1);
    let of_name = rows.iter().filter(|row| row.name.contains(name));
    of_name.map(|row| row.total_value).max().unwrap_or(0) as f64
}

fn wall_of(work: impl FnOnce()) -> Profile {
    let capture = Capture::begin_wall().unwrap();
    work();
    capture.finish()
}

fn print(profile: &Profile) {
    for row in pilotlight_profile::top(profile, 1).iter().take(25) {
        println!(
            "{:>14} {:>14} {}",
            row.self_value, row.total_value, row.name
        );
    }
    println!("{:?}", pilotlight::stats());
}

#[inline(never)]
fn waits_for_a_message(receiver: &mpsc::Receiver<()>) {
    std::hint::black_box(receiver.recv().is_err());
}

#[inline(never)]
fn sleeps(time: Duration) {
    thread::sleep(time);
    std::hint::black_box(());
}

#[inline(never)]
fn burns(ns: u64) {
    burn(ns);
    std::hint::black_box(());
}

#[test]
fn time_of_threads_adds_up_and_waiting_ones_show_where_they_wait() {
    let _guard = start(97);
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || waits_for_a_message(&receiver));
    thread::sleep(Duration::from_millis(50));
    let before = pilotlight::stats();
    // A busy machine begins and ends a capture late: its window lies between these two.
    let (mut least, began) = (0.0, Instant::now());
    let profile = wall_of(|| {
        let began = Instant::now();
        sleeps(Duration::from_millis(1500));
        least = began.elapsed().as_nanos() as f64;
    });
    let most = began.elapsed().as_nanos() as f64;
    drop(sender);
    waiting.join().unwrap();
    print(&profile);
    let is_whole = |ns: f64, threads: f64| (0.96 * least..1.04 * most).contains(&(ns / threads));
    for name in ["waits_for_a_message", "wall::sleeps"] {
        let ns = nanoseconds(&profile, name);
        assert!(is_whole(ns, 1.0), "{name}: {ns} in {least} to {most}");
    }
    // Main, test, waiting, pilotlight's own; not the sampler.
    let all = profile.total(1) as f64;
    assert!(is_whole(all, 4.0), "{all} in {least} to {most}");
    assert_eq!(profile.strings.text(profile.sample_types[1].ty), "wall");
    let stats = pilotlight::stats();
    assert_eq!(stats.wall_woken, before.wall_woken);
    assert_eq!(stats.wall_partial, before.wall_partial);
}

#[test]
fn off_cpu_is_what_threads_wait_and_not_what_they_run() {
    let _guard = start(97);
    let capture = Capture::begin_off_cpu().unwrap();
    thread::spawn(|| {
        for _ in 0..20 {
            burns(20_000_000);
            sleeps(Duration::from_millis(30));
        }
    })
    .join()
    .unwrap();
    let profile = capture.finish();
    print(&profile);
    let slept = nanoseconds(&profile, "wall::sleeps") / 0.6e9;
    assert!((0.85..1.25).contains(&slept), "{slept}");
    let burned = nanoseconds(&profile, "wall::burns");
    assert!(burned < 0.05e9, "{burned}");
}

/// Threads that wait until the sender is dropped.
fn idle_threads(count: usize) -> (mpsc::Sender<()>, Vec<thread::JoinHandle<()>>) {
    let (sender, receiver) = mpsc::channel();
    let receiver = Arc::new(std::sync::Mutex::new(receiver));
    let ready = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..count {
        let (receiver, ready) = (Arc::clone(&receiver), Arc::clone(&ready));
        let run = move || {
            ready.fetch_add(1, Ordering::Relaxed);
            idles(&receiver);
        };
        let small = thread::Builder::new().stack_size(64 << 10);
        threads.push(small.spawn(run).unwrap());
    }
    while ready.load(Ordering::Relaxed) < count as u64 {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(200));
    (sender, threads)
}

#[inline(never)]
fn idles(receiver: &std::sync::Mutex<mpsc::Receiver<()>>) {
    if let Ok(receiver) = receiver.lock() {
        std::hint::black_box(receiver.recv().is_err());
    }
}

/// CPU time of the thread that is named so, nanoseconds.
fn cpu_of_thread(name: &str) -> u64 {
    let of_thread = |folder: std::path::PathBuf| {
        let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
        (comm.trim_end() == name).then_some(())?;
        let stat = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .flatten()
        .filter_map(|entry| of_thread(entry.path()))
        .sum()
}

#[test]
fn cpu_of_the_sampler_among_a_thousand_idle_threads_stays_under_one_percent() {
    let _guard = start_with(Config::new("test").no_listener().wall_frequency_hz(100));
    let (sender, idle) = idle_threads(1000);
    let stop = AtomicBool::new(false);
    let length = Duration::from_secs(4);
    let mut used_ns = 0;
    let began = Instant::now();
    let profile = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burns(1_000_000);
                }
            });
        }
        let profile = wall_of(|| {
            let before = cpu_of_thread("pilotlight-wall");
            thread::sleep(length);
            used_ns = cpu_of_thread("pilotlight-wall") - before;
        });
        stop.store(true, Ordering::Relaxed);
        profile
    });
    drop(sender);
    for thread in idle {
        thread.join().unwrap();
    }
    print(&profile);
    let share = used_ns as f64 / length.as_nanos() as f64;
    println!("sampler: {:.3} % of a CPU", share * 100.0);
    assert!(used_ns > 0 && share <= 0.01, "{share}");
    let idle = nanoseconds(&profile, "wall::idles");
    let busy = nanoseconds(&profile, "wall::burns");
    println!("idle {idle} busy {busy}");
    // On a busy machine a capture begins and ends late.
    let (least, most) = (length.as_nanos() as f64, began.elapsed().as_nanos() as f64);
    for (ns, threads) in [(idle, 1000.0), (busy, 4.0)] {
        let each = ns / threads;
        assert!(
            (0.9 * least..1.01 * most).contains(&each),
            "{each} of {least} to {most}"
        );
    }
}

#[test]
fn calls_that_wait_are_not_ended_early() {
    let _guard = start_with(Config::new("test").no_listener().wall_frequency_hz(500));
    let interrupted = Arc::new(AtomicU64::new(0));
    let calls = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for kind in 0..6 {
        let (interrupted, calls, stop) = (
            Arc::clone(&interrupted),
            Arc::clone(&calls),
            Arc::clone(&stop),
        );
        threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                calls.fetch_add(1, Ordering::Relaxed);
                if !waits(kind) {
                    interrupted.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    let profile = wall_of(|| thread::sleep(Duration::from_secs(3)));
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    print(&profile);
    let calls = calls.load(Ordering::Relaxed);
    println!("{calls} calls");
    assert!(calls > 500);
    assert_eq!(interrupted.load(Ordering::Relaxed), 0, "EINTR");
    assert!(nanoseconds(&profile, "wall::waits") > 15e9);
}

/// A call that no `SA_RESTART` restarts; false when something interrupted it.
#[inline(never)]
fn waits(kind: u32) -> bool {
    let millis = 1 + kind as libc::c_int % 2 * 3;
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::c_long::from(millis) * 1_000_000,
    };
    // SAFETY: plain data that lives; the descriptors are closed again.
    unsafe {
        match kind {
            0 => libc::nanosleep(&time, std::ptr::null_mut()) == 0,
            1 => {
                let epoll = libc::epoll_create1(0);
                let mut event = std::mem::zeroed();
                let result = libc::epoll_wait(epoll, &mut event, 1, millis);
                libc::close(epoll);
                result == 0
            }
            2 => libc::poll(std::ptr::null_mut(), 0, millis) == 0,
            // With a timeout these three say EINTR when a signal comes, EAGAIN if not.
            3 => times_out(millis, |socket, _| {
                let mut byte = 0u8;
                libc::recv(socket, (&raw mut byte).cast(), 1, 0)
            }),
            4 => times_out(millis, |socket, address| {
                let size = size_of::<libc::sa_family_t>() as libc::socklen_t;
                libc::bind(socket, address.cast(), size);
                libc::listen(socket, 0);
                libc::accept(socket, std::ptr::null_mut(), std::ptr::null_mut()) as isize
            }),
            _ => connects(millis),
        }
    }
}

/// `call` on a socket with a timeout ends with that and not with a signal.
unsafe fn times_out(
    millis: libc::c_int,
    call: impl FnOnce(libc::c_int, *const libc::sockaddr_un) -> isize,
) -> bool {
    // SAFETY: plain data that lives.
    unsafe {
        let kind = libc::SOCK_SEQPACKET;
        let mut pair = [0; 2];
        libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr());
        let fresh = libc::socket(libc::AF_UNIX, kind, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // A listening socket for accept, a connected one for recv: both get the timeout.
        let socket = if millis % 2 == 0 { pair[0] } else { fresh };
        set_timeout(socket, millis);
        let failed = call(socket, &address) < 0;
        let error = *libc::__errno_location();
        for socket in [fresh, pair[0], pair[1]] {
            libc::close(socket);
        }
        failed && error == libc::EAGAIN
    }
}

unsafe fn set_timeout(socket: libc::c_int, millis: libc::c_int) {
    let time = libc::timeval {
        tv_sec: 0,
        tv_usec: libc::suseconds_t::from(millis) * 1000,
    };
    let size = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: reads `time`.
    unsafe {
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            libc::setsockopt(
                socket,
                libc::SOL_SOCKET,
                option,
                (&raw const time).cast(),
                size,
            );
        }
    }
}

/// Connects to a socket whose queue is full.
unsafe fn connects(millis: libc::c_int) -> bool {
    // SAFETY: plain data that lives; the descriptors are closed again.
    unsafe {
        let kind = libc::SOCK_STREAM;
        let listener = libc::socket(libc::AF_UNIX, kind, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        // The kernel chooses a name.
        let mut size = size_of::<libc::sa_family_t>() as libc::socklen_t;
        libc::bind(listener, (&raw const address).cast(), size);
        libc::listen(listener, 0);
        size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        libc::getsockname(listener, (&raw mut address).cast(), &mut size);
        let clients = [(); 3].map(|()| libc::socket(libc::AF_UNIX, kind, 0));
        let mut error = 0;
        for client in clients {
            set_timeout(client, millis);
            if libc::connect(client, (&raw const address).cast(), size) < 0 {
                error = *libc::__errno_location();
                break;
            }
        }
        for socket in clients.into_iter().chain([listener]) {
            libc::close(socket);
        }
        error == libc::EAGAIN
    }
}

/// The thread of this process that is named so.
fn thread_named(name: &str) -> Option<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    tasks.flatten().find_map(|entry| {
        let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        let tid = entry.file_name().to_str()?.parse().ok()?;
        (comm.trim_end() == name).then_some(tid)
    })
}

#[test]
fn signals_to_the_sampler_do_not_change_its_rate() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler is a function of this program; the signals go to a thread of it.
    unsafe { libc::signal(libc::SIGUSR1, nothing as *const () as usize) };
    let _guard = start_with(Config::new("test").no_listener().wall_frequency_hz(100));
    let capture = Capture::begin_wall().unwrap();
    // A thread gets its name when it first runs.
    let sampler = loop {
        match thread_named("pilotlight-wall") {
            Some(sampler) => break sampler,
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    let own = std::process::id() as i32;
    let (began, before) = (Instant::now(), pilotlight::stats().wall_ticks);
    while began.elapsed() < Duration::from_secs(2) {
        for signal in [libc::SIGUSR1, libc::SIGPROF] {
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_tgkill, own, sampler, signal) };
        }
        thread::sleep(Duration::from_micros(100));
    }
    let ticks = (pilotlight::stats().wall_ticks - before) as f64;
    let expected = began.elapsed().as_secs_f64() * 100.0;
    drop(capture);
    println!("{ticks} ticks, {expected} expected");
    // Each interrupted sleep would be a tick too many: thousands.
    assert!(ticks < expected * 1.15 + 5.0 && ticks > expected * 0.5);
}

// A function whose frame no look from outside can measure: it takes an amount of stack from a
// register, as `alloca` does, then sleeps in the kernel. Answers what the kernel said.
std::arch::global_asm!(
    ".globl sleeps_on_a_stack_of",
    "sleeps_on_a_stack_of:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov r8, rdi",
    "sub rsp, r8",
    "and rsp, -16",
    "mov rdi, rsi",
    "xor esi, esi",
    "mov eax, 35",
    "syscall",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
);

unsafe extern "C" {
    fn sleeps_on_a_stack_of(bytes: usize, time: *const libc::timespec) -> isize;
}

#[inline(never)]
fn calls_the_odd_function(bytes: usize) -> isize {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 200_000_000,
    };
    // SAFETY: reads `time`, and uses so much stack.
    std::hint::black_box(unsafe { sleeps_on_a_stack_of(bytes, &time) })
}

#[test]
fn a_wait_that_cannot_be_read_from_outside_is_interrupted_once_and_then_known() {
    let _guard = start(97);
    let mut ended_early = 0;
    let before = pilotlight::stats().wall_woken;
    let profile = wall_of(|| {
        for _ in 0..5 {
            ended_early += u32::from(calls_the_odd_function(1 << 12) != 0);
        }
    });
    print(&profile);
    let woken = pilotlight::stats().wall_woken - before;
    println!("{woken} woken, {ended_early} calls ended early");
    assert!((1..=2).contains(&woken), "{woken}");
    assert!(ended_early <= 1, "{ended_early}");
    assert!(nanoseconds(&profile, "calls_the_odd_function") > 0.7e9);
}

#[test]
fn a_forked_child_takes_profiles_of_its_own() {
    let guard = start(97);
    let capture = Capture::begin_wall().unwrap();
    thread::sleep(Duration::from_millis(50));
    // SAFETY: the child only starts anew, and ends without destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let own = Config::new("child").no_listener().start();
        let profile = Capture::begin_wall().map(|capture| {
            sleeps(Duration::from_millis(300));
            capture.finish()
        });
        let seen = profile.map_or(0.0, |profile| nanoseconds(&profile, "wall::sleeps"));
        let fine = own.is_ok() && (0.25e9..0.5e9).contains(&seen);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: fills `status`.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert!(capture.finish().total(1) > 0);
    drop(guard);
}

#[test]
fn with_a_label_only_what_threads_do_under_it_is_counted() {
    let config = Config::new("test").no_listener();
    let _guard = start_with(config.wall_label("route", "checkout"));
    let profile = wall_of(|| {
        thread::scope(|scope| {
            for route in ["checkout", "search"] {
                scope.spawn(move || {
                    let labels = pilotlight::labels! { "route" => route };
                    let _entered = labels.enter();
                    match route {
                        "checkout" => sleeps(Duration::from_millis(600)),
                        _ => waits_under_another_label(),
                    }
                });
            }
        });
    });
    print(&profile);
    let counted = nanoseconds(&profile, "wall::sleeps");
    assert!((0.5e9..0.9e9).contains(&counted), "{counted}");
    assert_eq!(nanoseconds(&profile, "waits_under_another_label"), 0.0);
    assert_eq!(profile.total(1) as f64, counted);
}

#[inline(never)]
fn waits_under_another_label() {
    thread::sleep(Duration::from_millis(600));
    std::hint::black_box(());
}
