//! jemalloc's own heap profile, for programs that allocate through it and not through
//! [`super::Alloc`]: why there is none, its switch, and the dump.

mod text;

use std::ffi::CStr;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null_mut;
use std::time::{SystemTime, UNIX_EPOCH};

use pilotlight_profile::Profile;
use tikv_jemalloc_sys::mallctl;

use super::{Shown, shape};
use crate::sites::{COUNTERS, profile_of};
use crate::types::State;

/// A value that jemalloc holds, read by its name.
fn read<T: Copy + Default>(name: &CStr) -> Result<T, i32> {
    let mut value = T::default();
    let mut length = size_of::<T>();
    // SAFETY: jemalloc fills at most `length` bytes of `value`, or says that the size is another.
    let error = unsafe {
        mallctl(
            name.as_ptr(),
            (&raw mut value).cast(),
            &mut length,
            null_mut(),
            0,
        )
    };
    if error == 0 { Ok(value) } else { Err(error) }
}

fn write<T: Copy>(name: &CStr, mut value: T) -> Result<(), i32> {
    // SAFETY: jemalloc reads one value of the given size, or says that the size is another.
    let error = unsafe {
        mallctl(
            name.as_ptr(),
            null_mut(),
            null_mut(),
            (&raw mut value).cast(),
            size_of::<T>(),
        )
    };
    if error == 0 { Ok(()) } else { Err(error) }
}

/// Whether the program's blocks come from jemalloc.
fn is_the_allocator() -> bool {
    const BYTES: usize = 1 << 16;
    let allocated = || read::<u64>(c"thread.allocated").unwrap_or(0);
    let before = allocated();
    drop(black_box(Vec::<u8>::with_capacity(BYTES)));
    allocated() - before >= BYTES as u64
}

/// What stands between the reader and jemalloc's profile.
pub(crate) fn state(name: &str) -> State {
    let off = |why: &str, how: String| State::Off {
        why: why.into(),
        how_to_switch_on: how,
    };
    if !is_the_allocator() {
        return off(
            "the program's allocator is neither pilotlight's nor jemalloc",
            "#[global_allocator] static ALLOCATOR: pilotlight::Alloc = pilotlight::Alloc::system(); \
             or tikv_jemallocator::Jemalloc"
                .into(),
        );
    }
    if !read::<bool>(c"config.prof").unwrap_or(false) {
        return off(
            "jemalloc was compiled without profiling",
            "feature `profiling` of tikv-jemallocator; or pilotlight::Alloc over it, which needs none"
                .into(),
        );
    }
    if !read::<bool>(c"opt.prof").unwrap_or(false) {
        return off(
            "jemalloc was started without profiling (opt.prof is false), and it cannot be had later",
            "start the program with _RJEM_MALLOC_CONF=prof:true,prof_active:false (MALLOC_CONF where \
             tikv-jemallocator has the feature unprefixed_malloc_on_supported_platforms); or \
             pilotlight::Alloc over it"
                .into(),
        );
    }
    if !read::<bool>(c"prof.active").unwrap_or(false) {
        return off(
            "jemalloc's profiling is not active (prof.active is false)",
            format!("pilotlight::set_enabled(\"{name}\", true)"),
        );
    }
    State::On
}

/// Switches `prof.active`, for all threads; those that start later take part too.
pub(crate) fn set_enabled(on: bool) -> Result<(), String> {
    if on {
        // Threads that were made while it was false stay out: `thread.prof.active` is theirs.
        let _ = write(c"prof.thread_active_init", true);
    }
    write(c"prof.active", on).map_err(|error| match state("heap") {
        State::Off {
            why,
            how_to_switch_on,
        } => format!("{why}; to switch it on: {how_to_switch_on}"),
        State::On => format!("jemalloc refuses to set prof.active: error {error}"),
    })
}

/// What it costs, in words.
pub(crate) fn cost() -> String {
    if state("heap") != State::On {
        return "nothing".into();
    }
    let interval = 1u64 << read::<usize>(c"prof.lg_sample").unwrap_or(19).min(63);
    let accumulates = read::<bool>(c"opt.prof_accum").unwrap_or(false);
    let accumulated = match accumulates {
        true => "",
        false => "; alloc columns are zero without prof_accum:true",
    };
    format!(
        "jemalloc's own sampling, one in {} KiB{accumulated}",
        interval >> 10
    )
}

/// The profile that jemalloc dumps, with names.
pub(crate) fn profile(shown: Shown) -> Result<Profile, String> {
    let dumped = dump()?;
    let heap = text::parse(&dumped).map_err(|line| {
        format!("jemalloc's dump is not of a known form at line {line}; please report its version")
    })?;
    let shape = shape(shown, heap.interval_bytes as i64, is_own);
    let scale = |counters: &[u64; COUNTERS]| {
        let [in_use, in_use_bytes, all, all_bytes] = *counters;
        let scaled = |objects, bytes| text::scale(objects, bytes, heap.interval_bytes);
        let ([a, b], [c, d]) = (scaled(all, all_bytes), scaled(in_use, in_use_bytes));
        [a, b, c, d]
    };
    let mut profile = profile_of(&heap.rows, &shape, scale);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    profile.time_ns = now.unwrap_or_default().as_nanos() as i64;
    Ok(profile)
}

/// jemalloc writes to a path only. This one leads to memory: the root may be read-only.
fn dump() -> Result<Vec<u8>, String> {
    // SAFETY: a name that ends with NUL.
    let memory = unsafe { libc::memfd_create(c"pilotlight-heap".as_ptr(), libc::MFD_CLOEXEC) };
    if memory < 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("no memory file for jemalloc's dump: {error}"));
    }
    // SAFETY: just made, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(memory) };
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    write(c"prof.dump", path.as_ptr()).map_err(|error| {
        format!(
            "jemalloc cannot dump to {}: error {error}; is /proc mounted?",
            &path[..path.len() - 1]
        )
    })?;
    let mut bytes = Vec::new();
    // jemalloc opened the path for itself: this file still stands at its beginning.
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|error| format!("jemalloc's dump cannot be read: {error}"))?;
    Ok(bytes)
}

/// jemalloc's way from the program's call to its dump.
fn is_own(function: &str) -> bool {
    let own = [
        "_rjem_",
        "je_",
        "prof_",
        "tikv_jemallocator::",
        "<tikv_jemallocator::",
    ];
    let functions = [
        "imalloc",
        "imalloc_body",
        "malloc_default",
        "do_mallocx",
        "do_rallocx",
        "irallocx_prof",
        "irallocx_prof_sample",
        "mallocx",
        "rallocx",
        "calloc",
        "malloc",
        "realloc",
    ];
    own.iter().any(|own| function.starts_with(own))
        || functions.contains(&function)
        || super::rows::is_shim(function)
}
