//! The sampling allocator: what it says is what the program holds.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod common;
mod http_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{profile_of, start_with};
use pilotlight::{Alloc, Config, Profile};

/// The system's allocator, counted.
struct Counted;

thread_local! {
    /// Of this thread: others allocate when they like.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator, called with what the caller gave.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Refuses what no machine has, as the system may refuse any.
        if size > 1 << 40 {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Alloc<Counted> = Alloc::new(Counted);

fn started(interval_bytes: u64) -> common::Started {
    // These loops do nothing but allocate: no budget holds at such intervals.
    let config = Config::new("test").no_listener().budget_cpu_percent(100.0);
    start_with(config.heap_interval_bytes(interval_bytes))
}

/// Columns of stacks that hold a function whose name contains `name`: allocated objects and bytes,
/// objects and bytes in use.
fn sums(profile: &Profile, name: &str) -> [i64; 4] {
    let holds = |stack: &[u32]| {
        let lines = stack
            .iter()
            .flat_map(|at| profile.location(*at as usize).lines);
        lines
            .map(|line| profile.functions[line.function.index()].name)
            .any(|function| profile.strings.text(function).contains(name))
    };
    let mut sums = [0; 4];
    for sample in profile.iter_samples().filter(|sample| holds(sample.stack)) {
        sums.iter_mut()
            .zip(sample.values)
            .for_each(|(s, v)| *s += v);
    }
    sums
}

fn heap() -> Profile {
    pilotlight::take("heap", Duration::ZERO).unwrap()
}

/// How many allocations of this size one that is looked at stands for.
fn weight(size: f64, interval: f64) -> f64 {
    -1.0 / (-size / interval).exp_m1()
}

#[inline(never)]
fn keep_many(count: usize, size: usize) -> Vec<Vec<u8>> {
    let mut kept = Vec::with_capacity(count);
    for _ in 0..count {
        kept.push(black_box(Vec::with_capacity(size)));
    }
    kept
}

#[test]
fn counts_are_inside_the_poisson_bound_and_in_use_returns_to_zero() {
    const INTERVAL: u64 = 16 << 10;
    let _guard = started(INTERVAL);
    for (count, size) in [
        (100_000, 48),
        (20_000, 600),
        (2_000, 16 << 10),
        (50, 1 << 20),
    ] {
        let [objects_before, bytes_before, ..] = sums(&heap(), "keep_many");
        let kept = keep_many(count, size);
        let [objects, bytes, in_use, in_use_bytes] = sums(&heap(), "keep_many");
        // The vector of vectors is one more.
        let (n, size) = (count as f64, size as f64);
        let vector = n * size_of::<Vec<u8>>() as f64;
        let [each, whole] = [size, vector].map(|size| weight(size, INTERVAL as f64) - 1.0);
        let sigma = (n * each + whole).sqrt() + 1.0;
        let off = (in_use as f64 - 1.0 - n).abs();
        assert!(off < 5.0 * sigma, "{in_use} of {n} × {size}, σ {sigma}");
        let sigma = (n * each * size * size + whole * vector * vector).sqrt() + 1.0;
        let off = (in_use_bytes as f64 - n * size - vector).abs();
        assert!(
            off < 5.0 * sigma,
            "{in_use_bytes} of {n} × {size}, σ {sigma}"
        );
        // Each of the three is rounded for itself, in both rows: the vector and what it holds.
        let off = objects - objects_before - in_use;
        assert!(off.abs() <= 3, "{objects} - {objects_before} - {in_use}");
        assert_eq!(bytes - bytes_before, in_use_bytes);

        // Freed by another thread.
        std::thread::spawn(move || drop(kept)).join().unwrap();
        let after = sums(&heap(), "keep_many");
        assert_eq!(after, [objects, bytes, 0, 0]);
    }
    assert!(sums(&heap(), "[before pilotlight started]")[1] >= 0);
}

#[inline(never)]
fn grow(bytes: usize) -> Vec<u8> {
    let mut grown = Vec::new();
    for n in 0..bytes {
        grown.push(black_box(n as u8));
    }
    grown
}

#[inline(never)]
fn zeroed(count: usize) -> Vec<Vec<u8>> {
    let mut zeros = Vec::with_capacity(count);
    for _ in 0..count {
        zeros.push(black_box(vec![0; 4096]));
    }
    zeros
}

#[test]
fn resized_zeroed_and_refused_blocks_are_followed() {
    // Every allocation, or nearly so.
    let _guard = started(1);
    let grown = grow(100_000);
    let [objects, bytes, in_use, in_use_bytes] = sums(&heap(), "heap::grow");
    let capacity = grown.capacity() as i64;
    // 8, 16, 32 … 131,072.
    assert_eq!((objects, bytes), (15, 2 * capacity - 8));
    assert_eq!((in_use, in_use_bytes), (1, capacity));
    let mut grown = grown;
    assert!(grown.try_reserve(1 << 41).is_err());
    assert_eq!(sums(&heap(), "heap::grow")[2..], [1, capacity]);
    grown.truncate(1000);
    grown.shrink_to_fit();
    assert_eq!(sums(&heap(), "heap::grow")[2..], [0, 0]);
    drop(grown);

    let zeros = zeroed(100);
    assert!(zeros.iter().flatten().all(|byte| *byte == 0));
    assert_eq!(sums(&heap(), "heap::zeroed")[3], 100 * 4096 + 100 * 24);
    drop(zeros);
    assert_eq!(sums(&heap(), "heap::zeroed")[2..], [0, 0]);
}

struct FreesAtTheEnd(Vec<Box<[u8]>>);

impl Drop for FreesAtTheEnd {
    fn drop(&mut self) {
        // Allocates and frees while the thread's locals are being destroyed.
        let more = last_words();
        self.0.extend(more);
    }
}

#[inline(never)]
fn last_words() -> Vec<Box<[u8]>> {
    let mut words = Vec::with_capacity(100);
    for _ in 0..100 {
        words.push(black_box(vec![1u8; 100].into_boxed_slice()));
    }
    words
}

thread_local! {
    static LOCAL: std::cell::RefCell<FreesAtTheEnd> =
        const { std::cell::RefCell::new(FreesAtTheEnd(Vec::new())) };
}

#[test]
fn threads_that_end_lose_nothing() {
    let _guard = started(1);
    for _ in 0..20 {
        std::thread::spawn(|| LOCAL.with_borrow_mut(|local| local.0.extend(last_words())))
            .join()
            .unwrap();
    }
    let [objects, bytes, in_use, in_use_bytes] = sums(&heap(), "heap::last_words");
    assert_eq!(objects, 2 * 20 * 101);
    assert_eq!(bytes, 2 * 20 * (100 * 100 + 100 * 16));
    assert_eq!((in_use, in_use_bytes), (0, 0));
}

#[test]
fn looking_allocates_nothing_and_a_sampler_in_the_middle_of_it_does_no_harm() {
    let config = Config::new("t").no_listener().frequency_hz(1000);
    let _guard = start_with(config.heap_interval_bytes(1));
    drop(black_box(Box::new(1u64)));
    let before = CALLS.get();
    let boxes: [Box<u64>; 8] = std::array::from_fn(|n| black_box(Box::new(n as u64)));
    let calls = CALLS.get() - before;
    drop(boxes);
    assert_eq!(calls, 8, "one call below for each above");

    let [before, ..] = sums(&heap(), "heap::keep_many");
    let profile = profile_of(|| {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..400).for_each(|_| drop(keep_many(500, 64))));
            }
        });
    });
    assert!(profile.total(0) > 20, "{}", profile.total(0));
    assert_eq!(pilotlight::stats().incomplete, 0);
    let [objects, _, in_use, _] = sums(&heap(), "heap::keep_many");
    assert_eq!((objects - before, in_use), (3 * 400 * 501, 0));
}

#[test]
fn a_forked_child_goes_on_with_its_copy_of_the_heap() {
    let _guard = started(1);
    // What the first fork allocates is out of the way: musl's fork has no unwind information, and
    // what is found behind it may be a function that has returned.
    // SAFETY: the child ends at once.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child without destructors.
        0 => unsafe { libc::_exit(0) },
        // SAFETY: our own child.
        child => unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) },
    };
    let kept = keep_many(100, 1000);
    // SAFETY: the child allocates, looks and ends.
    match unsafe { libc::fork() } {
        0 => {
            let [_, _, in_use, bytes] = sums(&heap(), "heap::keep_many");
            let mut right = (in_use, bytes) == (101, 100 * 1024);
            let more = keep_many(10, 1000);
            right &= sums(&heap(), "heap::keep_many")[2] == 112;
            drop((kept, more));
            right &= sums(&heap(), "heap::keep_many")[2] == 0;
            // SAFETY: ends the child without destructors.
            unsafe { libc::_exit(if right { 7 } else { 8 }) };
        }
        child => {
            let mut status = 0;
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert!(libc::WIFEXITED(status));
            assert_eq!(libc::WEXITSTATUS(status), 7);
            assert_eq!(sums(&heap(), "heap::keep_many")[2], 101);
        }
    }
}

#[test]
fn it_is_switched_by_name_and_what_is_freed_meanwhile_is_noticed() {
    let _guard = started(1);
    let [before, ..] = sums(&heap(), "heap::keep_many");
    let kept = keep_many(10, 100);
    pilotlight::set_enabled("heap", false).unwrap();
    let error = pilotlight::take("allocs", Duration::ZERO)
        .unwrap_err()
        .to_string();
    assert!(error.contains("set_enabled(\"allocs\", true)"), "{error}");
    drop(kept);
    drop(keep_many(1000, 3000));
    pilotlight::set_enabled("heap", true).unwrap();
    let [objects, _, in_use, _] = sums(&heap(), "heap::keep_many");
    assert_eq!((objects - before, in_use), (11, 0));
}

#[test]
fn a_difference_holds_what_was_allocated_meanwhile_and_all_that_is_in_use() {
    let _guard = started(1);
    let kept = keep_many(100, 100);
    let delta = std::thread::scope(|scope| {
        let delta = scope.spawn(|| pilotlight::take("heap", Duration::from_secs(1)).unwrap());
        std::thread::sleep(Duration::from_millis(400));
        drop(keep_many(7, 10));
        delta.join().unwrap()
    });
    let [objects, bytes, in_use, in_use_bytes] = sums(&delta, "heap::keep_many");
    assert_eq!((objects, bytes), (8, 7 * 10 + 7 * 24));
    assert_eq!((in_use, in_use_bytes), (101, 100 * 100 + 100 * 24));
    drop(kept);
}

#[test]
fn profiles_have_the_columns_of_go_and_its_tool_shows_the_right_one() {
    let _guard = started(4096);
    let server = http_support::server(|_| {});
    let kept = keep_many(1000, 10_000);
    for (name, first) in [("heap", "inuse_space"), ("allocs", "alloc_space")] {
        let profile = pilotlight::take(name, Duration::ZERO).unwrap();
        let types: Vec<String> = profile
            .sample_types
            .iter()
            .map(|ty| {
                format!(
                    "{}/{}",
                    profile.strings.text(ty.ty),
                    profile.strings.text(ty.unit)
                )
            })
            .collect();
        let of_go = [
            "alloc_objects/count",
            "alloc_space/bytes",
            "inuse_objects/count",
            "inuse_space/bytes",
        ];
        assert_eq!(types, of_go);
        assert_eq!(profile.strings.text(profile.default_sample_type), first);
        assert_eq!(profile.period, 4096);
        let url = format!("http://{}/debug/pprof/{name}", server.address());
        let Ok(top) = http_support::go_tool_pprof(&["-top", &url]) else {
            continue;
        };
        assert!(top.contains(&format!("Type: {first}")), "{top}");
        assert!(top.contains("keep_many"), "{top}");
    }
    drop(kept);
}

#[test]
fn the_innermost_frame_is_the_programs_and_not_the_profilers() {
    let _guard = started(1);
    let kept = keep_many(10, 77);
    let profile = heap();
    for sample in profile.iter_samples() {
        let Some(&leaf) = sample.stack.first() else {
            continue;
        };
        let lines = profile.location(leaf as usize).lines;
        let function = profile.functions[lines.last().unwrap().function.index()].name;
        let name = profile.strings.text(function);
        assert!(
            !name.contains("pilotlight::heap") && !name.contains("__rust_alloc"),
            "{name}"
        );
    }
    drop(kept);
}

/// The note's words, by the section table of the file.
#[test]
fn the_probe_point_is_in_the_file_and_is_a_nop() {
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let short = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap()) as usize;
    let (sections, size, count, names) = (word(40), short(58), short(60), short(62));
    let section = |index: usize| sections + index * size;
    let name = |index: usize| {
        let at = word(section(names) + 24) + half(section(index));
        let end = file[at..].iter().position(|byte| *byte == 0).unwrap();
        &file[at..at + end]
    };
    let notes = (0..count)
        .find(|index| name(*index) == b".note.stapsdt")
        .unwrap();
    let (start, length) = (word(section(notes) + 24), word(section(notes) + 32));
    let note = &file[start..start + length];
    let ours = b"pilotlight\0alloc\x008@%rdi 8@%rsi 8@%rdx\0";
    let at = note
        .windows(ours.len())
        .position(|bytes| bytes == ours)
        .unwrap();
    // Before the names: address of the probe, address of the base, semaphore.
    let probe = word(start + at - 24);
    assert_eq!(word(start + at - 8), 0, "no semaphore");
    let holds = |index: &usize| {
        let (address, length) = (word(section(*index) + 16), word(section(*index) + 32));
        address != 0 && (address..address + length).contains(&probe)
    };
    let code = (0..count).find(holds).unwrap();
    let in_file = probe - word(section(code) + 16) + word(section(code) + 24);
    assert_eq!(name(code), b".text");
    assert_eq!(file[in_file], 0x90);
}

#[cfg(not(target_feature = "crt-static"))]
type Callback = extern "C" fn();

#[cfg(not(target_feature = "crt-static"))]
static KEPT: std::sync::Mutex<Vec<Vec<Vec<u8>>>> = std::sync::Mutex::new(Vec::new());

#[cfg(not(target_feature = "crt-static"))]
extern "C" fn keep_for_the_library() {
    KEPT.lock().unwrap().push(keep_many(3, 100));
}

#[cfg(not(target_feature = "crt-static"))]
/// A library with a function that calls back; `None` without a C compiler.
fn library_that_calls() -> Option<std::ffi::CString> {
    let folder = std::env::temp_dir().join(format!("pilotlight-heap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("calls.c"), folder.join("libcalls.so"));
    let text = "void call_from_library(void (*f)(void)) { f(); __asm__ volatile(\"\"); }\n";
    std::fs::write(&source, text).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wl,--build-id", "-o"])
        .args([&library, &source])
        .status();
    let name = library.to_str().unwrap().to_string();
    built
        .is_ok_and(|status| status.success())
        .then(|| std::ffi::CString::new(name).unwrap())
}

#[cfg(not(target_feature = "crt-static"))]
#[test]
fn stacks_through_a_library_that_is_closed_by_now_keep_their_names() {
    let Some(name) = library_that_calls() else {
        println!("SKIP: no C compiler");
        return;
    };
    let _guard = started(1);
    // SAFETY: the library has no constructor, and its function has this type.
    let (library, call) = unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let call = libc::dlsym(library, c"call_from_library".as_ptr());
        assert!(!call.is_null());
        let call: extern "C" fn(Callback) = std::mem::transmute(call);
        (library, call)
    };
    let began = std::time::Instant::now();
    // Until a snapshot holds the library, and stacks go on behind it.
    let snapshots = || pilotlight::stats().snapshots;
    let at_first = snapshots();
    while snapshots() == at_first {
        assert!(began.elapsed().as_secs() < 20);
        call(keep_for_the_library);
        std::thread::sleep(Duration::from_millis(50));
    }
    call(keep_for_the_library);
    let open = sums(&heap(), "call_from_library");
    assert!(open[2] >= 8, "{open:?}");
    let before = snapshots();
    // SAFETY: nothing of it runs or will run.
    unsafe { libc::dlclose(library) };
    while snapshots() == before {
        assert!(began.elapsed().as_secs() < 40);
        std::thread::sleep(Duration::from_millis(50));
    }
    let profile = heap();
    assert_eq!(sums(&profile, "call_from_library"), open);
    let path = name.to_str().unwrap();
    let mut mappings = profile.mappings.iter();
    let closed = mappings
        .find(|m| profile.strings.text(m.file) == path)
        .unwrap();
    assert_eq!(profile.strings.get(closed.build_id).len(), 40);
    KEPT.lock().unwrap().clear();
    // The vector of vectors keeps its room.
    assert_eq!(sums(&heap(), "call_from_library")[2], 1);
    std::fs::remove_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
}

/// Looked-at allocations inside a panic, a backtrace and the loader: what asks for a lock there, or
/// allocates in the walk, hangs or recurses for ever.
#[test]
fn allocations_of_the_loader_and_of_panics_are_looked_at_without_harm() {
    let _guard = started(1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let until_stop = |work: &(dyn Fn() + Sync)| {
        while !stop.load(Ordering::Relaxed) {
            work();
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until_stop(&|| {
                let payload = Box::new(keep_many(3, 10));
                let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(payload));
                assert!(caught.is_err());
            })
        });
        scope.spawn(|| {
            until_stop(&|| {
                let trace = std::backtrace::Backtrace::force_capture();
                drop(black_box(Box::new(trace)));
            })
        });
        #[cfg(not(target_feature = "crt-static"))]
        scope.spawn(|| {
            until_stop(&|| {
                // SAFETY: a library without a constructor that matters.
                unsafe {
                    let library = libc::dlopen(c"libanl.so.1".as_ptr(), libc::RTLD_NOW);
                    drop(keep_many(3, 10));
                    if !library.is_null() {
                        libc::dlclose(library);
                    }
                }
            })
        });
        std::thread::sleep(Duration::from_millis(1500));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(rounds.load(Ordering::Relaxed) > 100);
    assert_eq!(sums(&heap(), "heap::keep_many")[2], 0);
}

/// One of two ways down for each bit of `path`: as many stacks as paths.
#[inline(never)]
fn one_way(path: u32, depth: u32) -> Box<u64> {
    match (depth, path & 1) {
        (0, _) => black_box(Box::new(u64::from(path))),
        (_, 0) => black_box(one_way(black_box(path >> 1), depth - 1)),
        _ => black_box(other_way(black_box(path >> 1), depth - 1)),
    }
}

#[inline(never)]
fn other_way(path: u32, depth: u32) -> Box<u64> {
    black_box(one_way(black_box(path), black_box(depth)))
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn more_stacks_than_fit_are_counted_in_bounded_memory() {
    // The table stays full: other tests need it.
    let own = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fills_the_table_of_stacks", "--ignored"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&own.stdout);
    assert!(own.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "part of another"]
fn fills_the_table_of_stacks() {
    const STACKS: u32 = 100_000;
    let _guard = started(1);
    let profile = heap();
    let over = |profile: &Profile| {
        let [objects, bytes, ..] = sums(profile, "one_way");
        let [more, more_bytes, ..] = sums(profile, "[over the memory budget]");
        [objects + more, bytes + more_bytes]
    };
    let [objects, bytes] = over(&profile);
    drop(profile);
    let before = resident_kib();
    for path in 0..STACKS {
        drop(one_way(path, 17));
    }
    let grown = resident_kib() - before;
    assert!(grown < 8 << 10, "{grown} KiB");
    let profile = heap();
    let [all, all_bytes] = over(&profile);
    assert!(all - objects >= i64::from(STACKS), "{}", all - objects);
    assert!(all_bytes - bytes >= 8 * i64::from(STACKS));
    assert!(sums(&profile, "[over the memory budget]")[0] > 10_000);
    let types = pilotlight::profile_types();
    let ty = types.iter().find(|ty| ty.name == "heap").unwrap();
    assert!(ty.cost.contains("found no room"), "{}", ty.cost);
}

/// Looks that so much work of this thread causes, and the CPU time of all.
fn looks_of(work: impl FnOnce()) -> (u64, u64) {
    let (looks, cpu_ns) = (pilotlight::stats().heap_looks, common::process_cpu_ns());
    work();
    (
        pilotlight::stats().heap_looks - looks,
        common::process_cpu_ns() - cpu_ns,
    )
}

#[inline(never)]
fn churn(cpu_ns: u64, size: usize) -> u64 {
    let (until, mut count) = (common::thread_cpu_ns() + cpu_ns, 0);
    while common::thread_cpu_ns() < until {
        for _ in 0..1000 {
            drop(black_box(Vec::<u8>::with_capacity(size)));
        }
        count += 1000;
    }
    count
}

#[test]
fn the_interval_grows_until_looks_fit_into_the_budget_and_sums_stay_right() {
    const ASKED: u64 = 512;
    const SIZE: usize = 256;
    // Half of it is for looks: 2 %.
    let config = Config::new("test").no_listener().budget_cpu_percent(4.0);
    let _guard = start_with(config.heap_interval_bytes(ASKED));
    let mut count = churn(600_000_000, SIZE);
    let held = pilotlight::stats().heap_interval_bytes;
    assert!(held > 8 * ASKED && held.is_multiple_of(ASKED), "{held}");

    // A look costs 0.2 µs at least, so there were at most so many; at the interval that was asked for
    // it would be every third allocation.
    let mut more = 0;
    let (looks, cpu_ns) = looks_of(|| more = churn(600_000_000, SIZE));
    count += more;
    assert!(looks * 200 < cpu_ns / 100 * 4, "{looks} in {cpu_ns} ns");

    let profile = heap();
    let [objects, bytes, in_use, _] = sums(&profile, "heap::churn");
    // What each stands for is of the interval that it was drawn for: at most the longest, twice what
    // holds now.
    let sigma = (count as f64 * (weight(SIZE as f64, 2.0 * held as f64) - 1.0)).sqrt();
    let off = (objects as f64 - count as f64).abs();
    println!("{objects} of {count}, σ {sigma:.0}, {held} in effect");
    assert!(off < 5.0 * sigma, "{objects} of {count}, σ {sigma}");
    assert!(
        5.0 * sigma < 0.1 * count as f64,
        "a weak test: {sigma} of {count}"
    );
    assert!((bytes as f64 / objects as f64 / SIZE as f64 - 1.0).abs() < 0.001);
    assert_eq!(in_use, 0);
    let period = pilotlight::stats().heap_interval_bytes as i64;
    assert_eq!(profile.period, period);
    let comments: Vec<_> = profile
        .comments
        .iter()
        .map(|at| profile.strings.text(*at))
        .collect();
    let says = format!("one allocation in {ASKED} bytes asked, one in {period} within the budget");
    assert!(
        comments.iter().any(|text| text.contains(&says)),
        "{comments:?}"
    );

    // With room again it comes back; the background thread sees that, however little is looked at.
    for _ in 0..400 {
        common::burn(30_000_000);
        std::thread::sleep(Duration::from_millis(20));
        if pilotlight::stats().heap_interval_bytes == ASKED {
            return;
        }
    }
    panic!("{}", pilotlight::stats().heap_interval_bytes);
}
