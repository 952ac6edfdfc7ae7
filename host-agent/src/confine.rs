//! What the agent may ask of the kernel once it samples: reading, its sockets, its maps, and nothing that writes a file,
//! executes a program or changes another process.
//!
//! Another call gets EPERM and is counted. Landlock has no part in this: a process in a domain of Landlock may not look
//! into processes outside of it (`hook_ptrace_access_check`), which is what the agent is for.

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::calls;

/// Numbers of calls that are counted one by one; those beyond count as the last.
const CALLS: usize = 512;

static REFUSED: [AtomicU64; CALLS] = [const { AtomicU64::new(0) }; CALLS];

/// What is needed beyond sampling and sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// HotSpot opens its socket after SIGQUIT and an empty file beside it: making such files, removing files and that
    /// signal are allowed.
    pub java: bool,
}

/// From here on, for all threads and for good, other calls are refused and counted.
///
/// # Errors
/// When the kernel has no seccomp, or no_new_privs is not set: then nothing has changed.
pub fn enter(confinement: Confinement) -> Result<(), String> {
    let filter = program(confinement)?;
    count_refused().map_err(|error| error.to_string())?;
    seccompiler::apply_filter_all_threads(&filter).map_err(|error| error.to_string())
}

/// Numbers of calls that were refused, and how often.
pub fn refused() -> Vec<(usize, u64)> {
    let counts = REFUSED.iter().map(|count| count.load(Ordering::Relaxed));
    counts.enumerate().filter(|(_, n)| *n > 0).collect()
}

fn program(confinement: Confinement) -> Result<BpfProgram, String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in calls::PLAIN {
        rules.insert(*call, Vec::new());
    }
    let java = calls::JAVA.iter().filter(|_| confinement.java);
    for limited in calls::LIMITED.iter().chain(java) {
        let op = match limited.mask {
            Some(mask) => MaskedEq(mask),
            None => Eq,
        };
        let condition = SeccompCondition::new(limited.argument, Dword, op, limited.value);
        let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
        let rule = rule.map_err(|error| error.to_string())?;
        rules.entry(limited.call).or_default().push(rule);
    }
    // Threads of this process may be signalled, as our SDK does.
    for call in [libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo] {
        let own = SeccompCondition::new(0, Dword, Eq, u64::from(std::process::id()));
        let own = own.and_then(|own| SeccompRule::new(vec![own]));
        rules.insert(call, vec![own.map_err(|error| error.to_string())?]);
    }
    let filter = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, ARCH);
    let program = filter.and_then(BpfProgram::try_from);
    program.map_err(|error| error.to_string())
}

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

/// A refused call raises SIGSYS: the handler makes it fail with EPERM.
fn count_refused() -> std::io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_refused;
    // SAFETY: zeros are a value of this struct: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the handler does what a handler may: atomics, and its own arguments.
    match unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// `_sigsys` of `siginfo_t`: address of the call, number, architecture.
#[repr(C)]
struct SigSys {
    head: [u64; 2],
    address: u64,
    call: i32,
}

extern "C" fn on_refused(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel filled both for SIGSYS; nothing else refers to them while the handler runs.
    let (call, context) = unsafe {
        let call = (*info.cast::<SigSys>()).call;
        (call, &mut *context.cast::<libc::ucontext_t>())
    };
    let place = usize::try_from(call).unwrap_or(CALLS).min(CALLS - 1);
    REFUSED[place].fetch_add(1, Ordering::Relaxed);
    let answer = -i64::from(libc::EPERM);
    #[cfg(target_arch = "x86_64")]
    {
        context.uc_mcontext.gregs[libc::REG_RAX as usize] = answer;
    }
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.regs[0] = answer as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::io::ErrorKind::PermissionDenied;
    use std::process::Command;

    #[test]
    fn reading_goes_on_while_writing_executing_and_tracing_are_refused_and_counted() {
        // In a process of its own: the filter holds for all threads, and for good.
        const CONFINED: &str = "PILOTLIGHT_CONFINED";
        if std::env::var_os(CONFINED).is_none() {
            let name = "confine::tests::reading_goes_on_while_writing_executing_and_tracing_are_refused_and_counted";
            let mut again = Command::new(std::env::current_exe().unwrap());
            again
                .args([name, "--exact", "--nocapture"])
                .env(CONFINED, "1");
            let output = again.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
            return;
        }
        let path = std::env::temp_dir().join(format!("pilotlight-confine-{}", std::process::id()));
        crate::privileges::give_away().unwrap();
        enter(Confinement::default()).unwrap();
        // In a thread that did not ask for it.
        let parent = std::os::unix::process::parent_id();
        let results = std::thread::spawn(move || {
            let kind = |result: std::io::Result<()>| result.err().map(|error| error.kind());
            // SAFETY: neither is carried out; the test that waits for this process would notice.
            let (traced, signalled) = unsafe {
                let traced = libc::ptrace(libc::PTRACE_SEIZE, parent, 0, 0);
                (traced, libc::kill(parent as libc::pid_t, libc::SIGCONT))
            };
            let refused = [
                kind(File::create(&path).map(drop)),
                kind(
                    OpenOptions::new()
                        .write(true)
                        .open("/proc/self/mem")
                        .map(drop),
                ),
                kind(OpenOptions::new().append(true).open("/etc/hosts").map(drop)),
                kind(fs::create_dir(&path)),
                kind(fs::remove_file("/etc/pilotlight-is-not-there")),
                kind(Command::new("/bin/true").status().map(drop)),
            ];
            (
                refused,
                traced + signalled as i64,
                fs::read("/proc/self/maps").unwrap().len(),
            )
        });
        let (kinds, traced, read) = results.join().unwrap();
        assert_eq!(kinds, [Some(PermissionDenied); 6]);
        assert_eq!(traced, -2);
        assert!(read > 100);
        let refused: u64 = refused().iter().map(|(_, n)| n).sum();
        assert!(refused >= 8, "{refused}");
    }
}
