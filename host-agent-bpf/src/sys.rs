//! System calls that aya has no safe form of: inner maps made at run time, batches, memory shared with a map.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

const BPF_MAP_CREATE: u32 = 0;
const BPF_MAP_LOOKUP_ELEM: u32 = 1;
const BPF_MAP_UPDATE_ELEM: u32 = 2;
const BPF_MAP_DELETE_ELEM: u32 = 3;
const BPF_MAP_LOOKUP_AND_DELETE_BATCH: u32 = 25;
const BPF_ENABLE_STATS: u32 = 32;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// `union bpf_attr` of `BPF_MAP_CREATE`, as far as it is used.
#[repr(C)]
#[derive(Default)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    rest: [u32; 11],
}

/// The same of element commands.
#[repr(C)]
#[derive(Default)]
struct Element {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The same of batch commands.
#[repr(C)]
#[derive(Default)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Before 5.11 the memory of maps and programs is held against RLIMIT_MEMLOCK, 64 KiB where nobody raised it; since then
/// against the control group, and the limit does not matter. So nothing is said when it stays as it is: where it matters,
/// making the maps fails.
pub fn raise_locked_memory() {
    let all = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: reads a struct of ours.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &all) };
}

fn bpf<T>(command: u32, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is a prefix of `union bpf_attr` of exactly the size that is stated; callers vouch for the pointers
    // that it holds.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// A value that may be copied to and from a map byte by byte.
///
/// # Safety
/// `repr(C)`, without padding, and valid whatever its bytes.
pub unsafe trait Plain: Copy + Default {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}

/// An array of one value of `bytes` bytes that user space can map.
pub fn create_shard(bytes: u32) -> io::Result<OwnedFd> {
    let mut attr = Create {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: bytes,
        max_entries: 1,
        map_flags: BPF_F_MMAPABLE,
        ..Create::default()
    };
    let fd = bpf(BPF_MAP_CREATE, &mut attr)?;
    // SAFETY: the kernel has just handed out this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn element<K, V>(map: BorrowedFd<'_>, key: &K, value: *const V, flags: u64) -> Element {
    Element {
        map_fd: map.as_raw_fd() as u32,
        key: std::ptr::from_ref(key) as u64,
        value: value as u64,
        flags,
        ..Element::default()
    }
}

/// Sets `map[key]`.
pub fn update<K: Plain, V: Plain>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    bpf(BPF_MAP_UPDATE_ELEM, &mut element(map, key, value, 0)).map(drop)
}

/// Removes `map[key]`; it need not be there.
pub fn delete<K: Plain>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    match bpf(
        BPF_MAP_DELETE_ELEM,
        &mut element(map, key, std::ptr::null::<u8>(), 0),
    ) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Reads `map[key]` into `out`, which is as long as the map's value says (of all possible CPUs, where it is per CPU).
pub fn lookup<K: Plain, V: Plain>(map: BorrowedFd<'_>, key: &K, out: &mut [V]) -> io::Result<()> {
    bpf(
        BPF_MAP_LOOKUP_ELEM,
        &mut element(map, key, out.as_mut_ptr(), 0),
    )
    .map(drop)
}

/// Takes everything out of a hash map that holds at most `most` entries and that nobody writes to.
pub fn take_all<K: Plain, V: Plain>(map: BorrowedFd<'_>, most: usize) -> io::Result<Vec<(K, V)>> {
    let (mut keys, mut values) = (vec![K::default(); most], vec![V::default(); most]);
    // Opaque; the kernel asks for 4 bytes of a hash map.
    let (mut from, mut next) = (0u64, 0u64);
    let mut taken = Vec::new();
    let mut first = true;
    loop {
        let mut attr = Batch {
            in_batch: if first {
                0
            } else {
                std::ptr::from_mut(&mut from) as u64
            },
            out_batch: std::ptr::from_mut(&mut next) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: most as u32,
            map_fd: map.as_raw_fd() as u32,
            ..Batch::default()
        };
        let outcome = bpf(BPF_MAP_LOOKUP_AND_DELETE_BATCH, &mut attr);
        let ended = match outcome {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(error),
        };
        let count = (attr.count as usize).min(most);
        taken.extend(keys.iter().copied().zip(values.iter().copied()).take(count));
        if ended {
            return Ok(taken);
        }
        (from, first) = (next, false);
    }
}

/// The kernel counts run time of programs while this descriptor is open.
///
/// # Errors
/// Without CAP_SYS_ADMIN.
pub fn enable_stats() -> io::Result<OwnedFd> {
    let mut run_time = 0u32;
    let fd = bpf(BPF_ENABLE_STATS, &mut run_time)?;
    // SAFETY: the kernel has just handed out this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Memory shared with the kernel.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory; whoever holds the value writes to it through `&mut`.
unsafe impl Send for Shared {}

impl Shared {
    /// Maps the first `bytes` bytes of `fd`.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Shared> {
        // SAFETY: a new mapping, wherever the kernel likes.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr() as isize != -1 => Ok(Shared { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes `words` at word index `at`; `false` when they do not fit.
    pub fn write(&mut self, at: usize, words: &[u32]) -> bool {
        let end = at
            .checked_add(words.len())
            .and_then(|end| end.checked_mul(4));
        if end.is_none_or(|end| end > self.bytes) {
            return false;
        }
        // SAFETY: inside the mapping; the kernel reads these words only once they are published, and never writes.
        unsafe {
            let to = self.start.as_ptr().cast::<u32>().add(at);
            std::ptr::copy_nonoverlapping(words.as_ptr(), to, words.len());
        }
        true
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and nobody holds a reference into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
