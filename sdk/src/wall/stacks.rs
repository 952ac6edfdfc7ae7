//! The stacks of all threads at this moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::dump;
use super::look::{self, Found, Looker};
use crate::capture::Capture;
use crate::kind::Sampled;
use crate::modules::Generation;
use crate::sys::own_tid;
use crate::threads::timer::thread_clock_ns;
use crate::{Error, config, here};

/// A thread and where it stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadStack {
    pub(crate) tid: i32,
    /// As set by the program; threads without one have the program's.
    pub(crate) name: String,
    pub(crate) state: String,
    /// Leaf first; empty when the thread could not be asked.
    pub(crate) frames: Vec<u64>,
    pub(crate) truncated: bool,
}

/// All threads, by id.
///
/// # Errors
/// When pilotlight does not run in this process.
pub(crate) fn all() -> Result<Vec<ThreadStack>, Error> {
    let _turn = Turn::take();
    // Handlers answer, and know the modules as they are.
    let _armed = Capture::of(Sampled::Stacks)?;
    let known = crate::modules::current();
    let generation = Generation::new(0, known.as_slice().to_vec());
    let mut looker = Looker::default();
    let mut threads: Vec<ThreadStack> = tids()
        .into_iter()
        .filter_map(|tid| of_thread(tid, &mut looker, &generation))
        .collect();
    ask_running(&mut threads);
    threads.sort_by_key(|thread| thread.tid);
    Ok(threads)
}

/// One caller at a time. Not held around a fork, which would wait for all that is done in a turn.
struct Turn(());

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Turn {
    fn take() -> Turn {
        while TAKEN.swap(true, Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Turn(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// In a forked child: whose turn it was is not there any more.
pub(super) fn forget_in_child() {
    TAKEN.store(false, Ordering::Relaxed);
}

fn tids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// `None` when the thread ended.
fn of_thread(tid: i32, looker: &mut Looker, generation: &Generation) -> Option<ThreadStack> {
    let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).ok()?;
    let mut thread = ThreadStack {
        tid,
        name: name.trim_end().to_string(),
        state: "running".into(),
        ..ThreadStack::default()
    };
    if tid == own_tid() {
        thread.frames = vec![0; config::MAX_DEPTH];
        let here = here::here(&mut thread.frames);
        thread.frames.truncate(here.len);
        thread.truncated = here.truncated;
        return Some(thread);
    }
    let file = look::open(tid)?;
    let clock_ns = thread_clock_ns(tid)?;
    let (modules, depth) = (&generation.modules, config::MAX_DEPTH);
    let cut = match looker.look(tid, clock_ns, &file, modules, &|_| None, depth) {
        Found::Blocked { truncated } => truncated,
        Found::Partial { .. } => true,
        Found::Running | Found::Hidden => return Some(thread),
    };
    thread.frames.clone_from(&looker.frames);
    thread.truncated = cut;
    thread.state = looker.call.map_or("blocked".into(), call_name);
    Some(thread)
}

/// Threads that run put their stacks down themselves, some at a time.
fn ask_running(threads: &mut [ThreadStack]) {
    let mut running: Vec<&mut ThreadStack> =
        threads.iter_mut().filter(|t| t.frames.is_empty()).collect();
    for some in running.chunks_mut(dump::PLACES) {
        let tids: Vec<i32> = some.iter().map(|thread| thread.tid).collect();
        for (thread, (frames, truncated)) in some.iter_mut().zip(dump::of_running(&tids)) {
            (thread.frames, thread.truncated) = (frames, truncated);
        }
    }
}

/// The name of a system call that threads wait in.
fn call_name(number: i64) -> String {
    let name = match number {
        libc::SYS_futex => "futex",
        libc::SYS_epoll_pwait => "epoll_wait",
        libc::SYS_ppoll => "poll",
        libc::SYS_pselect6 => "select",
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => "sleep",
        libc::SYS_read | libc::SYS_readv => "read",
        libc::SYS_write | libc::SYS_writev => "write",
        libc::SYS_recvfrom | libc::SYS_recvmsg => "recv",
        libc::SYS_sendto | libc::SYS_sendmsg => "send",
        libc::SYS_accept | libc::SYS_accept4 => "accept",
        libc::SYS_connect => "connect",
        libc::SYS_wait4 | libc::SYS_waitid => "wait for a child",
        libc::SYS_rt_sigtimedwait => "wait for a signal",
        libc::SYS_fsync | libc::SYS_fdatasync => "fsync",
        libc::SYS_flock => "flock",
        libc::SYS_io_uring_enter => "io_uring",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => "epoll_wait",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => "poll",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => "select",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_pause => "pause",
        // Not in a call: a page that is fetched from disk.
        -1 => "page fault",
        _ => return format!("system call {number}"),
    };
    name.to_string()
}
