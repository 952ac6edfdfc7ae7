//! Whose a profile is: the labels of its series.

mod cgroup;
mod kubernetes;

pub use cgroup::{container_id, systemd_unit};
pub use kubernetes::KubernetesOptions;
pub(crate) use kubernetes::Pods;

use crate::process::{Context, Process};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bytes of a value that a process chose itself.
const VALUE_BYTES: usize = 256;

/// Names and values; an empty value is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// What a process is known by, before anything is added or relabelled.
    ///
    /// `source="agent"` tells these profiles from those that a process takes of itself.
    pub fn of(process: &Process) -> Labels {
        let mut labels = Labels::default();
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
    pub fn say(&mut self, context: &Context) {
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
                self.set(&name, value.as_str());
            }
        }
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets a value; an empty one takes the label away. A name is letters, digits and `_`: the server
    /// takes no other.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        if value.is_empty() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// In order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// `{a="1",b="x\"y"}`.
    pub fn selector(&self) -> String {
        let mut out = String::from("{");
        for (index, (name, value)) in self.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(out, "{comma}{name}=\"{}\"", escape(value));
        }
        out.push('}');
        out
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
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
        assert_eq!(Labels::of(&process).selector(), selector);
        let kernel = Labels::of(&Process {
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
        let mut labels = Labels::of(&Process {
            exe: b"/bin/shop".to_vec(),
            ..Process::default()
        });
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        labels.say(&Context {
            resource: vec![
                pair("service.name", "checkout"),
                pair("source", "sdk"),
                pair("__sampled__", "true"),
            ],
            samples_itself: false,
        });
        let expected = r#"{exe="/bin/shop",service_name="checkout",source="agent"}"#;
        assert_eq!(labels.selector(), expected);
    }

    #[test]
    fn hostile_names_stay_values() {
        let process = Process {
            exe: b"/tmp/a\"b\\c\nd\xff".to_vec(),
            ..Process::default()
        };
        let labels = Labels::of(&process);
        assert_eq!(labels.get("exe"), Some("/tmp/a\"b\\c\u{fffd}d\u{fffd}"));
        assert!(labels.selector().contains(r#"exe="/tmp/a\"b\\c"#));
        assert_eq!(text(&[b'x'; 10_000]).len(), VALUE_BYTES);
    }
}
