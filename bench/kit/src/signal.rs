use std::{io, mem, ptr};

/// What the process does on a signal, taken aside so that it can be put back.
pub struct Disposition {
    signal: libc::c_int,
    action: libc::sigaction,
}

impl Disposition {
    /// The present disposition of `signal`.
    ///
    /// # Errors
    /// The kernel does not know `signal`.
    pub fn present(signal: libc::c_int) -> io::Result<Self> {
        // SAFETY: all-zero is a valid sigaction to be overwritten.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: a null new action only reads; `action` is valid for the write.
        check(unsafe { libc::sigaction(signal, ptr::null(), &mut action) })?;
        Ok(Disposition { signal, action })
    }

    /// A handler for `signal` that runs on the interrupted stack: framehop overflows the alternate
    /// stack that std gives a thread.
    pub fn handler(signal: libc::c_int, handler: Handler) -> Self {
        // SAFETY: all-zero is a valid sigaction (empty mask, no flags).
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        Disposition { signal, action }
    }

    /// The same handler code under the same mask and flags as `self`, but doing nothing.
    pub fn emptied(&self) -> Self {
        let mut action = self.action;
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags |= libc::SA_SIGINFO;
        Disposition {
            signal: self.signal,
            action,
        }
    }

    /// Makes this the process's disposition.
    ///
    /// # Errors
    /// The kernel refuses the signal.
    pub fn install(&self) -> io::Result<()> {
        // SAFETY: the action was filled by the kernel or by the constructors above.
        check(unsafe { libc::sigaction(self.signal, &self.action, ptr::null_mut()) })
    }
}

/// A handler as `SA_SIGINFO` wants it.
pub type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

/// Ignores `signal`, so that a late one cannot end the process.
///
/// # Errors
/// The kernel refuses the signal.
pub fn ignore_signal(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: SIG_IGN is a valid disposition.
    let old = unsafe { libc::signal(signal, libc::SIG_IGN) };
    if old == libc::SIG_ERR {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends `signal` to the calling thread; it is delivered before this returns.
pub fn send_to_self(signal: libc::c_int) {
    // SAFETY: plain system calls without memory arguments.
    unsafe {
        let (pid, tid) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_tgkill, pid, tid, signal);
    }
}

/// Sends `signal` to the calling thread as if a POSIX timer with `value` as its `sival_ptr` had
/// expired. The kernel lets a process forge this for itself only.
pub fn send_queued_to_self(signal: libc::c_int, value: usize) {
    let mut info = [0u64; 16];
    // Layout of siginfo_t on 64-bit Linux: signo, errno, code, pad, timer id, overrun, value.
    info[0] = signal as u64;
    info[1] = u64::from(libc::SI_TIMER as u32);
    info[3] = value as u64;
    // SAFETY: `info` is 128 bytes, the size of siginfo_t, and lives over the call.
    unsafe {
        let (pid, tid) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, info.as_ptr());
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
