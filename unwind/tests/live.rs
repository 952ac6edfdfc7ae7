//! Walks of this very process, from inside a real signal handler.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]

mod common;

use common::step::{Report, every_instruction};
use common::{Capture, capture, own_modules};
use pilotlight_unwind::{Cache, End, Modules};
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::Mutex;

#[inline(never)]
fn recurse(n: usize, capture_at_bottom: &mut dyn FnMut()) -> usize {
    if n == 0 {
        capture_at_bottom();
        return 0;
    }
    // Not a tail call: the result is used.
    black_box(recurse(n - 1, capture_at_bottom)) + 1
}

#[test]
fn a_recursion_of_500_reaches_the_root_with_every_frame() {
    let modules = own_modules();
    let cache = Cache::new(&modules);
    let at = |depth| {
        let mut found = Capture::default();
        recurse(depth, &mut || found = capture(&modules, &cache));
        found
    };
    let (shallow, deep) = (at(0), at(500));
    assert_eq!(shallow.end, Some(End::Root), "{:x?}", shallow.frames);
    assert_eq!(deep.end, Some(End::Root));
    assert_eq!(deep.frames.len(), shallow.frames.len() + 500);
}

/// Walks at every instruction of `call`; every one must reach the root.
fn check_every_instruction(modules: &Modules, call: &mut dyn FnMut()) -> Report {
    let cache = Cache::new(modules);
    let report = every_instruction(modules, &cache, call);
    println!("{} steps, deepest {}", report.steps, report.deepest);
    assert_eq!(report.failure_count, 0, "{}", report.describe(modules));
    report
}

#[test]
fn every_instruction_of_a_vdso_clock_read_reaches_the_root() {
    let modules = own_modules();
    let report = check_every_instruction(&modules, &mut || {
        black_box(std::time::Instant::now());
    });
    assert!(report.crossed(&modules, "vdso"));
}

#[test]
fn every_instruction_of_formatting_and_allocating_reaches_the_root() {
    let modules = own_modules();
    let report = check_every_instruction(&modules, &mut || {
        black_box(
            (0..40)
                .map(|i| format!("{i:>8} {:?}", Some(1.5 * f64::from(i))))
                .collect::<Vec<_>>(),
        );
    });
    assert!(report.steps > 10_000);
    assert!(report.crossed(&modules, "libc.so"));
}

#[test]
fn a_panic_breaks_walks_only_where_libgcc_overwrites_its_own_frame() {
    let modules = own_modules();
    let cache = Cache::new(&modules);
    let report = every_instruction(&modules, &cache, &mut || {
        // No hook runs: it would print.
        let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(black_box(1))));
        black_box(caught.is_err());
    });
    println!(
        "{} steps, {} ended early",
        report.steps, report.failure_count
    );
    assert!(report.steps > 10_000 && report.crossed(&modules, "libgcc_s"));
    // uw_install_context copies the landing pad's registers over the slots from which the
    // unwinder's own frame would be restored: no CFI can describe those few hundred instructions.
    assert!(report.failure_count < 400, "{}", report.describe(&modules));
    for failure in &report.failures {
        let module = modules.find(failure.ip).unwrap();
        assert!(
            String::from_utf8_lossy(&module.path).contains("libgcc_s"),
            "{failure:x?}"
        );
        assert!(
            matches!(failure.end, End::BadStack | End::NoRule),
            "{failure:x?}"
        );
    }
}

#[test]
fn every_instruction_of_lazy_binding_reaches_the_root() {
    let dir = common::scratch("lazy");
    let (source, library) = (dir.join("lazy.c"), dir.join("liblazy.so"));
    let code = "#include <stdlib.h>\nint call(const char *s) { return atoi(s) + (int)labs(-1); }";
    std::fs::write(&source, code).unwrap();
    let flags = [
        "-shared",
        "-fPIC",
        "-O1",
        "-fno-builtin",
        "-Wl,-z,lazy",
        "-o",
    ];
    common::run(
        std::process::Command::new("cc")
            .args(flags)
            .arg(&library)
            .arg(&source),
    );
    let path = std::ffi::CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library has no constructors, and `call` the type it is given.
    let call: extern "C" fn(*const std::ffi::c_char) -> i32 = unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        assert!(!library.is_null());
        std::mem::transmute(libc::dlsym(library, c"call".as_ptr()))
    };
    let modules = own_modules();
    let mut result = 0;
    let report = check_every_instruction(&modules, &mut || result = call(c"41".as_ptr()));
    assert_eq!(result, 42);
    assert!(report.crossed(&modules, "ld-linux") && report.crossed(&modules, "liblazy"));
    assert!(
        report.steps > 500,
        "symbols were looked up: {} steps",
        report.steps
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn every_instruction_of_opening_a_library_reaches_the_root() {
    let modules = own_modules();
    let report = check_every_instruction(&modules, &mut || {
        // SAFETY: opens and closes a library that is loaded.
        unsafe { libc::dlclose(libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW)) };
    });
    assert!(report.crossed(&modules, "ld-linux"));
}

static INNER: Mutex<Option<Capture>> = Mutex::new(None);

extern "C" fn capture_in_a_handler(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    let modules = own_modules();
    let cache = Cache::new(&modules);
    *INNER.lock().unwrap() = Some(capture(&modules, &cache));
}

#[test]
fn a_walk_crosses_the_signal_trampoline_to_the_interrupted_function() {
    let modules = own_modules();
    let outer = capture(&modules, &Cache::new(&modules));
    common::install(libc::SIGUSR2, capture_in_a_handler);
    // SAFETY: raises a signal that has a handler.
    unsafe { libc::raise(libc::SIGUSR2) };
    let inner = INNER.lock().unwrap().take().unwrap();
    assert_eq!(inner.end, Some(End::Root));
    // The leaf; then the trampoline and, below it, the instruction that was interrupted.
    let exact: Vec<usize> = (0..inner.frames.len())
        .filter(|&i| inner.exact[i])
        .collect();
    assert_eq!(exact.len(), 3);
    assert_eq!((exact[0], exact[2]), (0, exact[1] + 1));
    let trampoline = modules.find(inner.frames[exact[1]]).unwrap();
    assert!(String::from_utf8_lossy(&trampoline.path).contains("libc.so"));
    // Both walks end alike: raise, this test, the test harness, the thread's start.
    let root = |frames: &[u64]| frames[frames.len() - 6..].to_vec();
    assert_eq!(root(&inner.frames), root(&outer.frames));
    assert!(exact[2] + 6 < inner.frames.len());
}

#[test]
fn a_full_output_is_marked_truncated_and_an_exactly_fitting_one_is_not() {
    let modules = own_modules();
    let cache = Cache::new(&modules);
    let whole = capture(&modules, &cache);
    let depth = whole.frames.len();
    for (room, end) in [
        (depth, End::Root),
        (depth - 1, End::Truncated),
        (1, End::Truncated),
    ] {
        let found = common::capture_into(&modules, &cache, room);
        assert_eq!((found.frames.len(), found.end), (room, Some(end)));
    }
}

#[test]
fn walks_allocate_nothing() {
    let modules = own_modules();
    let (cache, foreign) = (Cache::new(&modules), Cache::new(&own_modules()));
    for cache in [&cache, &cache, &foreign] {
        let found = capture(&modules, cache);
        assert_eq!(found.allocations, 0);
        assert_eq!(found.end, Some(End::Root));
    }
}

#[test]
fn a_new_thread_has_a_root_too() {
    let modules = own_modules();
    let cache = Cache::new(&modules);
    let found = std::thread::spawn(move || capture(&modules, &cache))
        .join()
        .unwrap();
    assert_eq!(found.end, Some(End::Root));
    assert!(found.frames.len() >= 4);
}
