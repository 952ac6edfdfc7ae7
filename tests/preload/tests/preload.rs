//! Waits of programs that know nothing of pilotlight, and of a library that carries it.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn library() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_contender")).parent().unwrap();
    let name = "libpilotlight_preload.so";
    [beside.join("deps").join(name), beside.join(name)]
        .into_iter()
        .find(|path| path.exists())
        .unwrap()
}

fn assert_close(seen: u64, expected: u64) {
    let ratio = seen as f64 / expected as f64;
    println!("{seen} of {expected}: {ratio:.4}");
    assert!((0.95..=1.05).contains(&ratio), "{seen} of {expected}");
}

#[test]
fn a_preloaded_library_sees_the_waits_of_a_program_that_knows_nothing_of_it() {
    let report = std::env::temp_dir().join(format!("pilotlight-preload-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_contender"))
        .env("LD_PRELOAD", library())
        .env("PRELOAD_REPORT", &report)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let expected: u64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    let numbers: Vec<u64> = text
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    assert!(expected > 200_000_000, "{expected}");
    assert!(numbers[0] >= 12, "{text}");
    assert_close(numbers[1], expected);
    assert_close(numbers[2], expected);
}

#[test]
fn a_library_that_is_loaded_later_sees_the_waits_of_its_own_code() {
    // The library starts pilotlight as it is loaded.
    // SAFETY: no other thread reads the environment yet.
    unsafe { std::env::set_var("PRELOAD_REPORT", "/dev/null") };
    let path = CString::new(library().as_os_str().as_bytes()).unwrap();
    // SAFETY: the library's constructor starts a thread, and its functions have these types.
    let (contend, waited_ns) = unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let find = |name: &std::ffi::CStr| libc::dlsym(library, name.as_ptr());
        type Number = extern "C" fn() -> u64;
        (
            std::mem::transmute::<*mut libc::c_void, Number>(find(c"contend")),
            std::mem::transmute::<*mut libc::c_void, Number>(find(c"waited_ns")),
        )
    };
    let before = waited_ns();
    let expected = contend();
    let seen = waited_ns() - before;
    println!("{seen} of {expected}");
    assert!(expected > 40_000_000, "{expected}");
    // Its barrier and its scope wait too.
    assert!(seen as f64 > 0.95 * expected as f64, "{seen} of {expected}");
}

/// Functions of the library that holds pilotlight, as its host finds them.
struct Plugin {
    library: *mut libc::c_void,
    begin: extern "C" fn() -> bool,
    work: extern "C" fn(u64) -> u64,
    end: extern "C" fn() -> i64,
}

fn plugin() -> Plugin {
    let path = CString::new(library().as_os_str().as_bytes()).unwrap();
    // SAFETY: the library's constructor does nothing without its variable, and its functions have
    // these types.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let find = |name: &std::ffi::CStr| {
            let found = libc::dlsym(library, name.as_ptr());
            assert!(!found.is_null(), "{name:?}");
            found
        };
        Plugin {
            library,
            begin: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> bool>(find(
                c"plugin_begin",
            )),
            work: std::mem::transmute::<*mut libc::c_void, extern "C" fn(u64) -> u64>(find(
                c"plugin_work",
            )),
            end: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i64>(find(
                c"plugin_end",
            )),
        }
    }
}

fn close(plugin: &Plugin) {
    // SAFETY: opened once for each call.
    assert_eq!(unsafe { libc::dlclose(plugin.library) }, 0);
}

fn is_mapped() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains("libpilotlight_preload.so")
}

const THREADS: u64 = 4;
const WORK_NS: u64 = 250_000_000;

/// What the host sees: it closes the library for good while signals arrive in its threads.
#[test]
fn a_host_that_closes_the_library_while_samples_arrive_goes_on_and_has_its_profile() {
    // Before it started, nothing keeps it.
    close(&plugin());
    assert!(!is_mapped());

    for _ in 0..3 {
        let plugin = plugin();
        assert!((plugin.begin)());
        let work = plugin.work;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(move || work(WORK_NS));
            }
            close(&plugin);
            // Others come and go meanwhile, and so does this one by name.
            for _ in 0..50 {
                close(&self::plugin());
            }
        });
        assert!(is_mapped(), "signals may arrive at any time");
        let seen = (plugin.end)();
        // A library that comes later cannot see the host's threads start: each is found by a look at all.
        let share = seen as f64 / (THREADS * WORK_NS) as f64;
        println!("{share:.3} of the work");
        assert!((0.8..=1.02).contains(&share), "{share}");
    }
}
