//! The process context: which service this process is, in a mapping that readers outside find by its
//! name in `/proc/PID/maps`. Layout and order of steps are those of OTEP 4719, version 2.

use std::ffi::CStr;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use super::message;
use crate::fork::{Held, Lock};

const NAME: &CStr = c"OTEL_CTX";
const VERSION: u32 = 2;
/// Refuses to be executed; newer kernels warn without it, older ones refuse it.
const MFD_NOEXEC_SEAL: libc::c_uint = 8;
const PR_SET_VMA: libc::c_int = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: libc::c_ulong = 0;

/// What stands at the begin of the mapping.
#[repr(C)]
struct Header {
    signature: AtomicU64,
    version: AtomicU32,
    payload_size: AtomicU32,
    /// `CLOCK_BOOTTIME`, nanoseconds; 0 while the payload is replaced.
    published_at_ns: AtomicU64,
    payload: AtomicPtr<u8>,
}

/// The mapping of this process.
struct Published {
    header: NonNull<Header>,
    /// What the header points to.
    _payload: Box<[u8]>,
    /// A forked child has the record of its parent's mapping, but not the mapping.
    process: u32,
}

// SAFETY: used under the lock only; the header holds atomics.
unsafe impl Send for Published {}

static PUBLISHED: Lock<Option<Published>> = Lock::new(None);

/// Held around a fork.
pub(crate) fn lock() -> &'static dyn Held {
    &PUBLISHED
}

fn published() -> MutexGuard<'static, Option<Published>> {
    let mut published = PUBLISHED.lock();
    if published
        .as_ref()
        .is_some_and(|p| p.process != std::process::id())
    {
        *published = None;
    }
    published
}

/// The service's version, where `OTEL_RESOURCE_ATTRIBUTES` says it.
pub(crate) fn service_version() -> Option<String> {
    message::service_version()
}

/// Publishes which service this process is; replaces what was published before.
///
/// # Errors
/// When the system refuses the memory, or something else in this process has published already.
pub(crate) fn publish(service: &str, version: Option<&str>) -> io::Result<()> {
    let payload = message::process_context(service, version).into_boxed_slice();
    let mut published = published();
    if let Some(before) = published.as_mut() {
        before.replace(payload)?;
        return Ok(());
    }
    if is_published_by_others() {
        return Err(io::Error::other(
            "this process has an OpenTelemetry process context of another library already",
        ));
    }
    *published = Some(Published::new(payload)?);
    Ok(())
}

/// Takes the mapping away.
pub(crate) fn withdraw() {
    if let Some(before) = published().take() {
        // SAFETY: mapped by `map` with this size, and nobody keeps a reference.
        unsafe { libc::munmap(before.header.as_ptr().cast(), size_of::<Header>()) };
    }
}

/// Whether readers outside find this process.
pub(crate) fn is_published() -> bool {
    published().is_some()
}

fn is_published_by_others() -> bool {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    maps.windows(NAME.count_bytes() + 1)
        .any(|text| matches!(text[0], b':') && text[1..] == *NAME.to_bytes())
}

impl Published {
    fn new(payload: Box<[u8]>) -> io::Result<Published> {
        let header = map()?;
        // SAFETY: fresh, zeroed, large enough, aligned to a page.
        let place = unsafe { header.as_ref() };
        place.version.store(VERSION, Ordering::Relaxed);
        point_to(place, &payload);
        let now_ns = boot_time_ns();
        place.published_at_ns.store(now_ns, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let signature = u64::from_ne_bytes(*b"OTEL_CTX");
        place.signature.store(signature, Ordering::Release);
        name(header);
        Ok(Published {
            header,
            _payload: payload,
            process: std::process::id(),
        })
    }

    fn replace(&mut self, payload: Box<[u8]>) -> io::Result<()> {
        // SAFETY: mapped until `withdraw`.
        let place = unsafe { self.header.as_ref() };
        let before_ns = place.published_at_ns.swap(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        point_to(place, &payload);
        fence(Ordering::SeqCst);
        // Readers tell two publications apart by their times.
        let now_ns = boot_time_ns().max(before_ns + 1);
        place.published_at_ns.store(now_ns, Ordering::SeqCst);
        name(self.header);
        self._payload = payload;
        Ok(())
    }
}

fn point_to(header: &Header, payload: &[u8]) {
    header
        .payload_size
        .store(payload.len() as u32, Ordering::Relaxed);
    header
        .payload
        .store(payload.as_ptr().cast_mut(), Ordering::Relaxed);
}

/// Zeroed memory under the name, which forked children do not have.
fn map() -> io::Result<NonNull<Header>> {
    let size = size_of::<Header>();
    let file = memory_file(size as libc::off_t);
    let flags = match file {
        Some(_) => libc::MAP_PRIVATE,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, of the file or of nothing.
    let mapped = unsafe { libc::mmap(null_mut(), size, access, flags, file.unwrap_or(-1), 0) };
    if let Some(file) = file {
        // SAFETY: opened below; the mapping stays.
        unsafe { libc::close(file) };
    }
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping above.
    if unsafe { libc::madvise(mapped, size, libc::MADV_DONTFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: as above, and nobody knows of it.
        unsafe { libc::munmap(mapped, size) };
        return Err(error);
    }
    NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

/// A file in memory, whose name shows in `/proc/PID/maps` on every kernel.
fn memory_file(size: libc::off_t) -> Option<libc::c_int> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a constant name.
    let open = |flags| unsafe { libc::memfd_create(NAME.as_ptr(), flags) };
    let mut file = open(flags | MFD_NOEXEC_SEAL);
    if file < 0 {
        file = open(flags);
    }
    if file < 0 {
        return None;
    }
    // SAFETY: just opened.
    if unsafe { libc::ftruncate(file, size) } != 0 {
        // SAFETY: just opened.
        unsafe { libc::close(file) };
        return None;
    }
    Some(file)
}

/// Names the mapping. Kernels without names for memory refuse; readers then go by the file's name, and
/// those that watch the call itself see it in any case.
fn name(header: NonNull<Header>) {
    // SAFETY: names the mapping, whatever the outcome.
    unsafe {
        libc::prctl(
            PR_SET_VMA,
            PR_SET_VMA_ANON_NAME,
            header.as_ptr(),
            size_of::<Header>(),
            NAME.as_ptr(),
        )
    };
}

fn boot_time_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}
