//! What the child may ask of the kernel.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;

/// Each call and why it is needed. None opens, makes or names anything.
pub const ALLOWED: &[(i64, &str)] = &[
    (libc::SYS_write, "the table and the report"),
    (libc::SYS_writev, "the same, by the standard library"),
    (libc::SYS_mmap, "memory"),
    (libc::SYS_munmap, "memory"),
    (libc::SYS_mremap, "memory that grows"),
    (libc::SYS_mprotect, "memory of the allocator"),
    (libc::SYS_madvise, "giving pages back"),
    (libc::SYS_brk, "memory"),
    (libc::SYS_futex, "locks of the standard library"),
    (libc::SYS_getrandom, "seeds of hash maps"),
    (libc::SYS_clock_gettime, "time, where there is no vDSO"),
    (libc::SYS_sigaltstack, "the end of the main thread"),
    (libc::SYS_rt_sigaction, "abort"),
    (libc::SYS_rt_sigprocmask, "abort"),
    (libc::SYS_rt_sigreturn, "signal handlers"),
    (libc::SYS_gettid, "abort"),
    (libc::SYS_getpid, "abort"),
    (libc::SYS_tgkill, "abort"),
    (libc::SYS_close, "the end"),
    (libc::SYS_exit, "the end"),
    (libc::SYS_exit_group, "the end"),
];

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// From here on another call kills the process.
pub(crate) fn enter() -> Result<(), String> {
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> = ALLOWED
        .iter()
        .map(|(call, _)| (*call, Vec::new()))
        .collect();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        ARCH,
    );
    let program = filter.and_then(BpfProgram::try_from);
    let program = program.map_err(|e| e.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())
}

/// No file can be opened, made or removed any more. `false` where the kernel has no Landlock.
pub(crate) fn leave_file_system() -> bool {
    use landlock::{ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetStatus};
    let all = AccessFs::from_all(ABI::V5);
    let rules = Ruleset::default()
        .handle_access(all)
        .and_then(Ruleset::create);
    let status = rules.and_then(|rules| rules.restrict_self());
    status.is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

/// The filter alone, in the calling process.
#[doc(hidden)]
pub fn enter_for_tests() {
    let entered = enter();
    assert_eq!(entered, Ok(()));
}
