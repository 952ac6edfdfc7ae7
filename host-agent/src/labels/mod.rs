//! Whose a profile is: the labels of its series.

mod cgroup;
mod kubernetes;

pub use cgroup::{container_id, systemd_unit};
pub use kubernetes::KubernetesOptions;
pub(crate) use kubernetes::Pods;

use crate::process::{Context, Process};
use pilotlight_labels::Labels;

/// Bytes of a value that a process chose itself.
const VALUE_BYTES: usize = 256;

/// What a process is known by, before anything is added or relabelled.
///
/// `source="agent"` tells these profiles from those that a process takes of itself.
pub fn labels_of(process: &Process) -> Labels {
    let mut labels = Labels::new();
    let exe = text(&process.exe);
    let comm = text(process.comm.bytes());
    let program = exe.rsplit('/').next().filter(|name| !name.is_empty());
    let kernel = process.mappings.is_empty() && process.exe.is_empty();
    let service = if kernel {
        "kernel"
    } else {
        program.unwrap_or(&comm)
    };
    labels.set("service_name", service);
    labels.set("exe", exe.as_str());
    if !kernel {
        labels.set("comm", comm.as_str());
    }
    labels.set(
        "container_id",
        container_id(&process.cgroup).unwrap_or_default(),
    );
    labels.set(
        "systemd_unit",
        systemd_unit(&process.cgroup).unwrap_or_default(),
    );
    labels.set("source", "agent");
    labels
}

/// What a process says of itself comes before what is seen of it.
pub(crate) fn say(labels: &mut Labels, context: &Context) {
    for (key, value) in &context.resource {
        let name: String = key
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        // Names that begin with two underscores are the server's own.
        let taken = name.is_empty()
            || name == "source"
            || name.starts_with("__")
            || name.starts_with(|c: char| c.is_ascii_digit());
        if !taken {
            labels.set(&name, value.as_str());
        }
    }
}

/// Bytes of a process as a label value: bounded, without control characters.
pub(crate) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.get(..VALUE_BYTES).unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Comm;

    #[test]
    fn a_process_is_known_by_its_program() {
        let process = Process {
            comm: Comm::new(b"conn-1"),
            exe: b"/usr/lib/postgres".to_vec(),
            cgroup: b"0::/system.slice/postgresql@14-main.service\n".to_vec(),
            ..Process::default()
        };
        let selector = r#"{comm="conn-1",exe="/usr/lib/postgres",service_name="postgres",source="agent",systemd_unit="postgresql@14-main.service"}"#;
        assert_eq!(labels_of(&process).selector(), selector);
        let kernel = labels_of(&Process {
            comm: Comm::new(b"kworker/0:1"),
            ..Process::default()
        });
        assert_eq!(
            kernel.selector(),
            r#"{service_name="kernel",source="agent"}"#
        );
    }

    #[test]
    fn what_a_process_says_comes_first_and_cannot_claim_another_source() {
        let mut labels = labels_of(&Process {
            exe: b"/bin/shop".to_vec(),
            ..Process::default()
        });
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        say(
            &mut labels,
            &Context {
                resource: vec![
                    pair("service.name", "checkout"),
                    pair("source", "sdk"),
                    pair("__sampled__", "true"),
                ],
                samples_itself: false,
            },
        );
        let expected = r#"{exe="/bin/shop",service_name="checkout",source="agent"}"#;
        assert_eq!(labels.selector(), expected);
    }

    #[test]
    fn hostile_names_stay_values() {
        let process = Process {
            exe: b"/tmp/a\"b\\c\nd\xff".to_vec(),
            ..Process::default()
        };
        let labels = labels_of(&process);
        assert_eq!(labels.get("exe"), Some("/tmp/a\"b\\c\u{fffd}d\u{fffd}"));
        assert!(labels.selector().contains(r#"exe="/tmp/a\"b\\c"#));
        assert_eq!(text(&[b'x'; 10_000]).len(), VALUE_BYTES);
    }
}
