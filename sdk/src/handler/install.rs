//! Taking SIGPROF's place, and handing on what is not ours.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::signal::on_sigprof;
use crate::sys;

static PREVIOUS: Previous = Previous::new();

/// The handler that ours replaced.
struct Previous {
    function: AtomicUsize,
    takes_info: AtomicBool,
}

impl Previous {
    const fn new() -> Previous {
        Previous {
            function: AtomicUsize::new(libc::SIG_IGN),
            takes_info: AtomicBool::new(false),
        }
    }
}

/// Installs the handler, for good; each start takes the place back from a handler that replaced it,
/// and hands on to that one what is not ours.
pub(crate) fn install() -> std::io::Result<()> {
    let own = on_sigprof as *const () as usize;
    let present = disposition(None)?;
    sys::pin_code(own);
    // Never our own address, or a foreign signal would call itself for ever.
    if present.sa_sigaction == own {
        return Ok(());
    }
    // Before the handler can run: its first signal may already be a foreign one.
    let takes_info = present.sa_flags & libc::SA_SIGINFO != 0;
    PREVIOUS.takes_info.store(takes_info, Ordering::Relaxed);
    PREVIOUS
        .function
        .store(present.sa_sigaction, Ordering::Release);
    // SAFETY: a zeroed sigaction is a valid value of the type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = own;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    disposition(Some(&action)).map(|_| ())
}

/// What SIGPROF does, and from now on what `new` says.
fn disposition(new: Option<&libc::sigaction>) -> std::io::Result<libc::sigaction> {
    // SAFETY: a zeroed sigaction is a valid value of the type.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: null or a live value each; the handler keeps to its README.
    if unsafe { libc::sigaction(libc::SIGPROF, new, &mut old) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(old)
}

/// Calls the handler that ours replaced. Async-signal-safe as far as that one is.
pub(super) fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let function = PREVIOUS.function.load(Ordering::Acquire);
    // The default action of a foreign SIGPROF would be to end the process: it is ignored.
    if function == libc::SIG_DFL || function == libc::SIG_IGN {
        return;
    }
    if PREVIOUS.takes_info.load(Ordering::Relaxed) {
        type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: installed by the program with SA_SIGINFO, so it has this type.
        unsafe { std::mem::transmute::<usize, WithInfo>(function)(signal, info, context) };
    } else {
        // SAFETY: installed by the program without SA_SIGINFO, so it has this type.
        unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(function)(signal) };
    }
}
