//! What this host permits the agent, what is lost without it, and the line that grants it.

mod features;

use features::{Around, features};
use std::io::Read;
use std::path::Path;

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub what: &'static str,
    /// It is there.
    pub granted: bool,
    /// What was found.
    pub found: String,
    /// What does not work without it.
    pub lost: &'static str,
    /// The line that grants it.
    pub grant: &'static str,
    /// Sampling by BPF needs it.
    for_bpf: bool,
}

/// What the checks are made of.
#[derive(Clone, Debug, Default)]
struct Facts {
    capabilities: u64,
    paranoid: i64,
    has_btf: bool,
    lockdown: String,
    sees_kernel_addresses: bool,
    opens_map_files: bool,
    root_namespace: bool,
    kernel: (u32, u32),
    locks_memory: bool,
}

const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// Looks at this host with the permissions of this process: these first, then what can be done with them.
pub fn checks() -> Vec<Check> {
    let facts = Facts::of_this_host();
    let mut checks = judge(&facts);
    checks.extend(features(&checks, &facts, &Around::of_this_host()));
    checks
}

impl Facts {
    fn of_this_host() -> Facts {
        let text = |path: &str| {
            let mut text = String::new();
            if let Ok(file) = std::fs::File::open(path) {
                let _ = file.take(1 << 16).read_to_string(&mut text);
            }
            text
        };
        let status = text("/proc/self/status");
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let release = text("/proc/sys/kernel/osrelease");
        let mut numbers = release
            .split(['.', '-'])
            .map(|part| part.trim().parse().unwrap_or(0));
        let lockdown = text("/sys/kernel/security/lockdown");
        let chosen = lockdown
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        Facts {
            capabilities: mask
                .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
                .unwrap_or(0),
            paranoid: text("/proc/sys/kernel/perf_event_paranoid")
                .trim()
                .parse()
                .unwrap_or(4),
            has_btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
            lockdown: chosen.map_or("none", |(state, _)| state).to_owned(),
            sees_kernel_addresses: !crate::names::Kallsyms::read().is_empty(),
            opens_map_files: opens_map_files(),
            root_namespace: is_root_namespace(),
            kernel: (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)),
            locks_memory: locks_memory(),
        }
    }

    fn may(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

/// A mapping of this process, opened by its address.
fn opens_map_files() -> bool {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let (mappings, _) = crate::process::parse_maps(&maps, b"");
    let file = mappings.iter().find(|mapping| mapping.is_file());
    file.is_some_and(|m| {
        std::fs::File::open(format!("/proc/self/map_files/{:x}-{:x}", m.start, m.end)).is_ok()
    })
}

/// Memory without limit may be locked; the agent raises the limit itself where it may.
fn locks_memory() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills a struct of ours.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0;
    !failed && limit.rlim_max == libc::RLIM_INFINITY
}

/// The first pid namespace has a fixed number (`PROC_PID_INIT_INO`).
fn is_root_namespace() -> bool {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.as_os_str() == "pid:[4026531836]"
}

fn has(granted: bool) -> String {
    if granted { "yes" } else { "no" }.to_owned()
}

fn judge(facts: &Facts) -> Vec<Check> {
    let admin = facts.may(CAP_SYS_ADMIN);
    let perf = admin || facts.may(CAP_PERFMON) || facts.paranoid <= 0;
    let bpf = admin || facts.may(CAP_BPF);
    let check = |what: &'static str, granted, found: String, lost, grant| Check {
        what,
        granted,
        found,
        lost,
        grant,
        for_bpf: what == "CAP_BPF"
            || what == "CAP_PERFMON"
            || what == "lockdown"
            || what == "locked memory"
            || what.starts_with("kernel "),
    };
    vec![
        check(
            "CAP_PERFMON",
            perf,
            format!(
                "{}, kernel.perf_event_paranoid={}",
                has(facts.may(CAP_PERFMON)),
                facts.paranoid
            ),
            "other users' processes and the kernel's frames are not sampled; above paranoid 2 nothing is",
            "setcap cap_perfmon=ep ./pilotlight   (or: sysctl kernel.perf_event_paranoid=-1)",
        ),
        check(
            "CAP_BPF",
            bpf,
            has(bpf),
            "stacks are copied out and walked by the agent: more CPU time, stacks up to 32 KiB",
            "setcap cap_bpf,cap_perfmon=ep ./pilotlight",
        ),
        check(
            "kernel 5.10 or newer with BTF",
            facts.has_btf && facts.kernel >= (5, 10),
            format!(
                "{}.{}, BTF: {}",
                facts.kernel.0,
                facts.kernel.1,
                has(facts.has_btf)
            ),
            "no sampling by BPF; perf events are used instead",
            "a kernel built with CONFIG_DEBUG_INFO_BTF=y",
        ),
        check(
            "locked memory",
            facts.kernel >= (5, 11) || facts.locks_memory || facts.may(CAP_SYS_RESOURCE),
            match facts.kernel >= (5, 11) {
                true => "counts from 5.11 on to the control group",
                false if facts.locks_memory => "not limited",
                false => "limited (before 5.11 maps count to it)",
            }
            .to_owned(),
            "no sampling by BPF; perf events are used instead",
            "ulimit -l unlimited   (systemd: LimitMEMLOCK=infinity; or CAP_SYS_RESOURCE)",
        ),
        check(
            "lockdown",
            facts.lockdown != "confidentiality",
            facts.lockdown.clone(),
            "BPF programs cannot read memory; perf events are used instead",
            "echo integrity > /sys/kernel/security/lockdown at boot (kernel parameter lockdown=integrity)",
        ),
        check(
            "CAP_SYS_PTRACE",
            facts.may(CAP_SYS_PTRACE),
            has(facts.may(CAP_SYS_PTRACE)),
            "mappings of other users' processes are not seen: their frames have no file and no name",
            "setcap cap_sys_ptrace=ep ./pilotlight   (Kubernetes: securityContext.capabilities.add: [SYS_PTRACE])",
        ),
        check(
            "CAP_CHECKPOINT_RESTORE",
            facts.opens_map_files,
            format!("map_files can be opened: {}", has(facts.opens_map_files)),
            "files that were deleted or replaced while they run have no unwind tables and are not uploaded",
            "setcap cap_checkpoint_restore=ep ./pilotlight",
        ),
        check(
            "CAP_DAC_READ_SEARCH",
            facts.may(CAP_DAC_READ_SEARCH),
            has(facts.may(CAP_DAC_READ_SEARCH)),
            "files that only their users may read have no unwind tables",
            "setcap cap_dac_read_search=ep ./pilotlight",
        ),
        check(
            "addresses of the kernel",
            facts.sees_kernel_addresses,
            has(facts.sees_kernel_addresses),
            "the kernel's frames have no names",
            "setcap cap_syslog=ep ./pilotlight   (and: sysctl kernel.kptr_restrict=1)",
        ),
        check(
            "pid namespace of the host",
            facts.root_namespace,
            has(facts.root_namespace),
            "only processes of this container are sampled",
            "docker run --pid=host   (Kubernetes: hostPID: true)",
        ),
    ]
}

/// The capabilities that the agent keeps, as a mask.
pub const KEPT: u64 = 1 << CAP_DAC_READ_SEARCH
    | 1 << CAP_SYS_PTRACE
    | 1 << CAP_SYSLOG
    | 1 << CAP_PERFMON
    | 1 << CAP_BPF
    | 1 << CAP_CHECKPOINT_RESTORE;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn missing(facts: &Facts) -> Vec<&'static str> {
        let all = judge(facts);
        all.iter()
            .filter(|check| !check.granted)
            .map(|check| check.what)
            .collect()
    }

    pub(super) fn all() -> Facts {
        Facts {
            capabilities: KEPT,
            paranoid: 4,
            has_btf: true,
            lockdown: "none".to_owned(),
            sees_kernel_addresses: true,
            opens_map_files: true,
            root_namespace: true,
            kernel: (6, 1),
            locks_memory: false,
        }
    }

    #[test]
    fn each_missing_permission_is_named_with_the_line_that_grants_it() {
        assert_eq!(missing(&all()), [""; 0]);
        let without = |bit: u32| Facts {
            capabilities: KEPT & !(1 << bit),
            ..all()
        };
        assert_eq!(missing(&without(CAP_PERFMON)), ["CAP_PERFMON"]);
        assert_eq!(missing(&without(CAP_BPF)), ["CAP_BPF"]);
        assert_eq!(missing(&without(CAP_SYS_PTRACE)), ["CAP_SYS_PTRACE"]);
        assert_eq!(
            missing(&without(CAP_DAC_READ_SEARCH)),
            ["CAP_DAC_READ_SEARCH"]
        );
        let locked = Facts {
            lockdown: "confidentiality".to_owned(),
            kernel: (5, 4),
            ..all()
        };
        assert_eq!(
            missing(&locked),
            ["kernel 5.10 or newer with BTF", "locked memory", "lockdown"]
        );
        let old = Facts {
            kernel: (5, 10),
            ..all()
        };
        assert_eq!(missing(&old), ["locked memory"]);
        let raised = Facts {
            locks_memory: true,
            ..old
        };
        assert_eq!(missing(&raised), [""; 0]);
        let container = Facts {
            root_namespace: false,
            sees_kernel_addresses: false,
            ..all()
        };
        assert_eq!(
            missing(&container),
            ["addresses of the kernel", "pid namespace of the host"]
        );
        assert!(
            judge(&Facts::default())
                .iter()
                .all(|check| !check.grant.is_empty() && !check.lost.is_empty())
        );
    }

    #[test]
    fn this_host_is_looked_at() {
        assert_eq!(checks().len(), 20);
    }
}
