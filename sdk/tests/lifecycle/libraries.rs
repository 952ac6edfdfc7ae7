//! Libraries that come and go.

use std::ffi::CString;
use std::process::Command;
use std::time::{Duration, Instant};

use super::common::{expiries, profile_of, start, thread_cpu_ns};

/// Builds a library whose function `spin_here` works for a while.
fn library(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("pilotlight-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("spin.c"), folder.join("libspin.so"));
    let code = "long spin_here(long n) { volatile long x = 0; for (long i = 0; i < n; i++) x += i; return x; }";
    std::fs::write(&source, code).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wl,--build-id", "-o"]);
    assert!(
        compiler
            .arg(&library)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    library
}

/// Opens the library, runs its function, and closes it: unmapped before the capture ends.
fn run_and_close(path: &std::path::Path) {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the library has no constructors, and the function has this type.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let spin: extern "C" fn(i64) -> i64 =
            std::mem::transmute(libc::dlsym(library, c"spin_here".as_ptr()));
        // Long enough for a snapshot that knows the library, and for samples.
        let (until, cpu_ns) = (Instant::now() + Duration::from_millis(600), thread_cpu_ns());
        while Instant::now() < until || thread_cpu_ns() - cpu_ns < 300_000_000 {
            std::hint::black_box(spin(1_000_000));
        }
        libc::dlclose(library);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(path.to_str().unwrap()), "still mapped");
}

#[test]
fn code_of_a_library_that_was_closed_keeps_its_mapping_and_its_name() {
    let path = library("closed");
    let _guard = start(1000);
    let profile = profile_of(|| run_and_close(&path));
    assert!(expiries(&profile, "spin_here") > 50);
    let mapping = profile.mappings.iter().find(|mapping| {
        let file = profile.strings.get(mapping.file);
        file == path.to_str().unwrap().as_bytes()
    });
    let mapping = mapping.expect("a mapping of the library");
    assert_eq!(profile.strings.get(mapping.build_id).len(), 40);
    assert!(mapping.limit > mapping.start);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}
