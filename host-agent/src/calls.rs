//! System calls of a running agent, as data; see `confine`.

/// A call that is allowed where one of its arguments is as said.
pub(crate) struct Limited {
    pub call: i64,
    pub argument: u8,
    /// Bits that are compared; all of them where there is none.
    pub mask: Option<u64>,
    pub value: u64,
}

const fn exactly(call: i64, argument: u8, value: u64) -> Limited {
    Limited {
        call,
        argument,
        mask: None,
        value,
    }
}

const fn masked(call: i64, argument: u8, mask: u64, value: u64) -> Limited {
    Limited {
        call,
        argument,
        mask: Some(mask),
        value,
    }
}

/// Flags of `open` that write or make something.
const WRITES: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u64;
/// `_IOC_TYPE` of perf events' requests.
const PERF_IOCTL: u64 = (b'$' as u64) << 8;
const IOCTL_TYPE: u64 = 0xff00;
/// `PR_SET_VMA`, by which mappings get names.
const PR_SET_VMA: u64 = 0x5356_4d41;

/// Requests whose type in `libc` differs between C libraries.
const FIONBIO: u64 = 0x5421;
const TCGETS: u64 = 0x5401;

/// Calls with one argument that decides.
pub(crate) const LIMITED: &[Limited] = &[
    masked(libc::SYS_openat, 2, WRITES, 0),
    #[cfg(target_arch = "x86_64")]
    masked(libc::SYS_open, 1, WRITES, 0),
    masked(libc::SYS_ioctl, 1, IOCTL_TYPE, PERF_IOCTL),
    exactly(libc::SYS_ioctl, 1, FIONBIO),
    // Whether standard output is a terminal.
    exactly(libc::SYS_ioctl, 1, TCGETS),
    exactly(libc::SYS_prctl, 0, libc::PR_SET_NAME as u64),
    exactly(libc::SYS_prctl, 0, PR_SET_VMA),
    // Limits of this process alone.
    exactly(libc::SYS_prlimit64, 0, 0),
    // Maps: create, look up, update, delete, next key; look up and delete, batches, freeze; what a descriptor is.
    exactly(libc::SYS_bpf, 0, 0),
    exactly(libc::SYS_bpf, 0, 1),
    exactly(libc::SYS_bpf, 0, 2),
    exactly(libc::SYS_bpf, 0, 3),
    exactly(libc::SYS_bpf, 0, 4),
    exactly(libc::SYS_bpf, 0, 15),
    exactly(libc::SYS_bpf, 0, 21),
    exactly(libc::SYS_bpf, 0, 22),
    exactly(libc::SYS_bpf, 0, 24),
    exactly(libc::SYS_bpf, 0, 25),
    exactly(libc::SYS_bpf, 0, 26),
    exactly(libc::SYS_bpf, 0, 27),
];

/// What HotSpot's attach mechanism takes: an empty file, its removal, and SIGQUIT.
pub(crate) const JAVA: &[Limited] = &[
    masked(
        libc::SYS_mknodat,
        2,
        libc::S_IFMT as u64,
        libc::S_IFREG as u64,
    ),
    #[cfg(target_arch = "x86_64")]
    masked(
        libc::SYS_mknod,
        1,
        libc::S_IFMT as u64,
        libc::S_IFREG as u64,
    ),
    // No folder: AT_REMOVEDIR.
    exactly(libc::SYS_unlinkat, 2, 0),
    // Whatever its argument is.
    #[cfg(target_arch = "x86_64")]
    masked(libc::SYS_unlink, 0, 0, 0),
    exactly(libc::SYS_kill, 1, libc::SIGQUIT as u64),
];

/// Calls that are allowed as they are. None of them makes, names or removes a file.
pub(crate) const PLAIN: &[i64] = &[
    // Files, of processes and of the system; descriptors that are open.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    // Sampling.
    libc::SYS_perf_event_open,
    libc::SYS_process_vm_readv,
    libc::SYS_pidfd_open,
    // Threads and time.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_get_priority_max,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_times,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    // The network; the listener is bound before.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_socketpair,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
];
