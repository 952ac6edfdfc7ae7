//! What the agent can do, on top of the permissions: each feature with what it does without and the line that grants it.

use super::{CAP_SYS_PTRACE, Check, Facts};
use crate::Event;
use std::path::Path;

/// What the checks of features are made of, beside [`Facts`].
#[derive(Clone, Debug, Default)]
pub(super) struct Around {
    /// Why the processor's counters are missing.
    pub no_counters: Option<String>,
    /// The agent's user is root.
    pub is_root: bool,
    /// It runs in a pod.
    pub in_pod: bool,
    /// The pod has a token.
    pub has_token: bool,
}

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

impl Around {
    pub fn of_this_host() -> Around {
        let cycles = Event::parse("cycles").ok();
        Around {
            no_counters: cycles.and_then(Event::missing),
            // SAFETY: no preconditions.
            is_root: unsafe { libc::geteuid() } == 0,
            in_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            has_token: Path::new(TOKEN).exists(),
        }
    }
}

/// By what the permissions came to.
pub(super) fn features(permissions: &[Check], facts: &Facts, around: &Around) -> Vec<Check> {
    let missing: Vec<&str> = permissions
        .iter()
        .filter(|check| !check.granted && check.for_bpf)
        .map(|check| check.what)
        .collect();
    let by_bpf = match missing.is_empty() {
        true => "walks in the kernel: yes".to_owned(),
        false => format!(
            "walks in the kernel: no, for want of {}",
            missing.join(", ")
        ),
    };
    let perf = !missing.contains(&"CAP_PERFMON");
    let bpf = missing.is_empty();
    let ptrace = facts.may(CAP_SYS_PTRACE) || around.is_root;
    let memory = format!("memory of other processes: {}", super::has(ptrace));
    let check = |what, granted, found: String, lost, grant| Check {
        what,
        granted,
        found,
        lost,
        grant,
        for_bpf: false,
    };
    vec![
        check(
            "page faults, switches and migrations (--event)",
            perf,
            super::has(perf),
            "only the user's own processes are sampled by them",
            SETCAP_BPF,
        ),
        check(
            "the processor's counters (--event cycles, instructions, cache-misses …)",
            around.no_counters.is_none(),
            around
                .no_counters
                .clone()
                .unwrap_or_else(|| "yes".to_owned()),
            "cpu-clock is sampled instead of them, and said",
            "a machine that has them; of a virtual one its host grants them (QEMU: -cpu host,pmu=on)",
        ),
        check(
            "stacks that are walked twice (--verify)",
            bpf,
            by_bpf.clone(),
            "nothing is checked: there is one walk only, by the agent",
            SETCAP_BPF,
        ),
        check(
            "waits of threads (--off-cpu)",
            bpf,
            by_bpf.clone(),
            "waits are not sampled",
            SETCAP_BPF,
        ),
        check(
            "scripts of CPython",
            bpf && ptrace,
            format!("{by_bpf}; {memory}"),
            "frames of scripts are not seen: functions of the interpreter stand in their place",
            "setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep ./pilotlight",
        ),
        check(
            "perf maps and jitdumps (Node, .NET, LuaJIT …)",
            ptrace,
            memory.clone(),
            "code that other users' processes made has no name",
            SETCAP_PTRACE,
        ),
        check(
            "names of Java (attach: Compiler.perfmap)",
            around.is_root,
            if around.is_root {
                "as root"
            } else {
                "as another user than root"
            }
            .to_owned(),
            "only Java processes of the agent's own user are asked for their names",
            "sudo ./pilotlight agent   (it gives away what it does not need), or as the user of the Java process",
        ),
        check(
            "labels from variables and OTEL_CTX (--label-env)",
            ptrace,
            memory,
            "other users' processes are called by their file names alone, and SDKs in them are counted twice",
            SETCAP_PTRACE,
        ),
        check(
            "files that name addresses (upload)",
            ptrace && facts.opens_map_files,
            format!(
                "through their paths: {}, when these are gone: {}",
                super::has(ptrace),
                super::has(facts.opens_map_files)
            ),
            "files of other users' processes, and those that were deleted or replaced, are not sent",
            "setcap cap_sys_ptrace,cap_checkpoint_restore=ep ./pilotlight",
        ),
        check(
            "names of pods (kubernetes.pods_url)",
            !around.in_pod || around.has_token,
            match (around.in_pod, around.has_token) {
                (false, _) => "not in Kubernetes".to_owned(),
                (true, token) => format!("in a pod, its token: {}", super::has(token)),
            },
            "labels namespace, pod and container are missing: the kubelet and the API server want a token",
            "automountServiceAccountToken: true, and a ClusterRole with get on nodes/proxy, or list on pods",
        ),
    ]
}

const SETCAP_BPF: &str = "setcap cap_bpf,cap_perfmon=ep ./pilotlight";
const SETCAP_PTRACE: &str = "setcap cap_sys_ptrace=ep ./pilotlight";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{CAP_BPF, KEPT, judge};

    fn missing(capabilities: u64, around: &Around) -> Vec<&'static str> {
        let facts = Facts {
            capabilities,
            ..crate::doctor::tests::all()
        };
        let all = features(&judge(&facts), &facts, around);
        let lacks = all.iter().filter(|check| !check.granted);
        assert!(
            all.iter()
                .all(|check| !check.lost.is_empty() && !check.grant.is_empty())
        );
        lacks
            .map(|check| check.what.split(' ').next().unwrap_or_default())
            .collect()
    }

    #[test]
    fn each_feature_stands_on_what_it_needs() {
        let root = Around {
            is_root: true,
            ..Around::default()
        };
        assert_eq!(missing(KEPT, &root), [""; 0]);
        assert_eq!(
            missing(KEPT & !(1 << CAP_BPF), &root),
            ["stacks", "waits", "scripts"]
        );
        let user = Around {
            no_counters: Some("no".to_owned()),
            in_pod: true,
            ..Around::default()
        };
        assert_eq!(missing(KEPT, &user), ["the", "names", "names"]);
        assert_eq!(
            missing(KEPT & !(1 << CAP_SYS_PTRACE), &user),
            [
                "the", "scripts", "perf", "names", "labels", "files", "names"
            ]
        );
    }

    #[test]
    fn what_walks_in_the_kernel_lack_is_named() {
        // A system that lets everybody use perf events.
        let facts = Facts::default();
        let all = features(&judge(&facts), &facts, &Around::default());
        let verify = all.iter().find(|check| check.what.contains("--verify"));
        let found = &verify.unwrap().found;
        assert!(found.contains("CAP_BPF, kernel 5."), "{found}");
    }
}
