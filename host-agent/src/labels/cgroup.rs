//! Container and systemd unit from the text of `/proc/PID/cgroup`, both versions of it.

/// Digits of the ids that Docker, containerd, CRI-O and Podman give.
const ID_DIGITS: usize = 64;

/// Paths of the hierarchies: `0::/path` (v2), `4:memory:/path` (v1).
fn paths(cgroup: &[u8]) -> impl Iterator<Item = &str> {
    let lines = cgroup.split(|&byte| byte == b'\n').take(64);
    lines.filter_map(|line| std::str::from_utf8(line).ok()?.splitn(3, ':').nth(2))
}

/// The id of the innermost container.
pub fn container_id(cgroup: &[u8]) -> Option<String> {
    paths(cgroup).find_map(|path| path.rsplit('/').find_map(id_in).map(str::to_owned))
}

/// `ID`, `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID`, `libpod-ID.scope`, `cri-containerd:ID`, and AWS'
/// `ID-1234567890`.
fn id_in(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    if part.starts_with("crio-conmon-") || part.starts_with("libpod-conmon-") {
        return None;
    }
    let is_id = |text: &&str| text.len() == ID_DIGITS && is_hex(text);
    if let Some(id) = part.split(['-', ':']).find(is_id) {
        return Some(id);
    }
    // AWS Fargate: 32 hexadecimal digits, then a number.
    let (task, number) = part.split_once('-')?;
    let fargate = task.len() == 32 && is_hex(task) && !number.is_empty();
    (fargate && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(part)
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The systemd service or scope, innermost, unless it only holds a container.
pub fn systemd_unit(cgroup: &[u8]) -> Option<String> {
    let unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    let found = paths(cgroup).find_map(|path| path.rsplit('/').find(unit));
    found
        .filter(|part| id_in(part).is_none())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn ids_of_containers_are_found_in_the_paths_of_all_runtimes() {
        let found = [
            "0::/system.slice/docker-ID.scope",
            "12:pids:/docker/ID\n11:cpu:/docker/ID",
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2f_1.slice/cri-containerd-ID.scope",
            "0::/kubepods/besteffort/pod6f2e/ID",
            "0::/kubepods.slice/kubepods-pod77.slice/crio-ID.scope",
            "0::/machine.slice/libpod-ID.scope/container",
            "0::/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:ID",
            "1:name=systemd:/ecs/task/ID",
            "0::/docker/ID/system.slice/nginx.service",
        ];
        for text in found {
            let text = text.replace("ID", ID);
            assert_eq!(container_id(text.as_bytes()).as_deref(), Some(ID), "{text}");
        }
        let fargate = "1:cpu:/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-2531612879";
        let expected = "0123456789abcdef0123456789abcdef-2531612879";
        assert_eq!(container_id(fargate.as_bytes()).as_deref(), Some(expected));
        let none = [
            "0::/",
            "0::/user.slice/user-1000.slice/session-1.scope",
            "0::/machine.slice/libpod-conmon-ID.scope",
            "0::/system.slice/docker-0123.scope",
            "",
            "::::",
            "\u{0}",
        ];
        for text in none {
            assert_eq!(
                container_id(text.replace("ID", ID).as_bytes()),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn units_are_the_innermost_service_or_scope() {
        let unit = |text: &str| systemd_unit(text.replace("ID", ID).as_bytes());
        assert_eq!(
            unit("0::/system.slice/nginx.service").as_deref(),
            Some("nginx.service")
        );
        assert_eq!(
            unit("0::/user.slice/user-0.slice/user@0.service/app.slice/x.service/sub").as_deref(),
            Some("x.service")
        );
        assert_eq!(unit("0::/system.slice/docker-ID.scope"), None);
        assert_eq!(unit("0::/"), None);
    }
}
