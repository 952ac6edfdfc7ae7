//! Section `agent`.

use super::{read as read_file, refused};
use crate::fail::Failure;
use pilotlight_host_agent::labels::KubernetesOptions;
use pilotlight_host_agent::{Event, Options, Protocol};
use pilotlight_scraper::config::reader::{Problems, Section};
use pilotlight_scraper::config::{parse_duration, read_rules, read_tls};
use pilotlight_wire::Url;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// What the binary does around the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// Where it answers `/metrics`.
    pub listen: Option<SocketAddr>,
    /// System calls that it does not need are refused.
    pub confine: bool,
}

impl Default for More {
    fn default() -> More {
        More {
            listen: None,
            confine: true,
        }
    }
}

/// Reads the section of `file` into `options`; without one they stay as they are.
pub fn read(file: &Path, options: &mut Options) -> Result<More, Failure> {
    let config = read_file(file)?;
    let mut more = More::default();
    let sections = config.sections.iter();
    for (_, section) in sections.filter(|(name, _)| *name == "agent") {
        more = apply(section, options).map_err(|problems| {
            let text = format!("{}:\n  {}", file.display(), problems.join("\n  "));
            refused(file, &text)
        })?;
    }
    Ok(more)
}

/// Reads the section into `options`.
pub fn apply(section: &Value, options: &mut Options) -> Result<More, Vec<String>> {
    let problems = Problems::default();
    let mut more = More::default();
    let mut agent = Section::new("agent", section, &problems);
    if let Some(frequency_hz) = agent.number("frequency_hz") {
        match u32::try_from(frequency_hz) {
            Ok(frequency_hz @ 1..=997) => options.sampler.frequency_hz = frequency_hz,
            _ => agent.problem("frequency_hz", "must be 1 to 997"),
        }
    }
    if let Some(event) = agent.text("event") {
        match Event::parse(&event) {
            Ok(event) => options.sampler.event = event,
            Err(reason) => agent.problem("event", &reason),
        }
    }
    match agent.duration("off_cpu") {
        Some(wait) if wait.is_zero() => agent.problem("off_cpu", "must be longer than 0"),
        Some(wait) => options.sampler.off_cpu_threshold_ns = Some(wait.as_nanos() as u64),
        None => {}
    }
    if let Some(kernel) = agent.truth("kernel") {
        options.sampler.kernel = kernel;
    }
    if let Some(bpf) = agent.truth("bpf") {
        options.no_bpf = !bpf;
    }
    if let Some(verify) = agent.text("verify") {
        match share(&verify) {
            Ok(share) => options.sampler.verify = share,
            Err(reason) => agent.problem("verify", &reason),
        }
    }
    if let Some(interval) = agent.duration("interval") {
        if interval.is_zero() {
            agent.problem("interval", "must be longer than 0");
        } else {
            options.interval = interval;
        }
    }
    if let Some(bytes) = agent.size("queue_size") {
        options.queue_bytes = bytes;
    }
    if let Some(folder) = agent.text("queue_dir") {
        options.tables_folder = Some(Path::new(&folder).join("tables"));
        options.queue_folder = Some(folder.into());
    }
    if let Some(folder) = agent.text("tables_dir") {
        options.tables_folder = Some(folder.into());
    }
    if let Some(bytes) = agent.size("tables_size") {
        options.tables_bytes = bytes;
    }
    if let Some(word) = agent.text("protocol") {
        match Protocol::parse(&word) {
            Some(protocol) => options.protocol = protocol,
            None => agent.problem("protocol", "must be pilotlight, otlp, pyroscope or parca"),
        }
    }
    let variables = agent.value("label_env").and_then(Value::as_array);
    for variable in variables.into_iter().flatten() {
        match label_env(variable.as_str().unwrap_or_default()) {
            Ok(label) => options.label_env.push(label),
            Err(reason) => agent.problem("label_env", reason),
        }
    }
    options.relabel = read_rules(agent.list("relabel_configs"), &problems);
    if let Some(java) = agent.truth("java_perf_map") {
        options.java_perf_map = java;
    }
    if let Some(instrumented) = agent.truth("instrumented") {
        options.instrumented = instrumented;
    }
    let nothing = Value::Null;
    if let Some(section) = agent.value("kubernetes") {
        kubernetes(
            Section::new("agent.kubernetes", section, &problems),
            options,
        );
    }
    let debuginfo = agent.value("debuginfo").unwrap_or(&nothing);
    upload(
        Section::new("agent.debuginfo", debuginfo, &problems),
        options,
    );
    if let Some(listen) = agent.text("listen") {
        match listen.parse() {
            Ok(address) => more.listen = Some(address),
            Err(_) => agent.problem("listen", "write it like 127.0.0.1:4041"),
        }
    }
    if let Some(confine) = agent.truth("confine") {
        more.confine = confine;
    }
    agent.finish(|_| None);
    let problems = problems.into_vec();
    if problems.is_empty() {
        Ok(more)
    } else {
        Err(problems)
    }
}

/// The shortest wait that is profiled, such as `1ms`, in nanoseconds.
pub fn wait(text: &str) -> Result<u64, String> {
    let wait = parse_duration(text).ok().filter(|wait| !wait.is_zero());
    let wait = wait.ok_or_else(|| "write a duration like 1ms, longer than 0".to_owned())?;
    Ok(wait.as_nanos() as u64)
}

/// A share like `1%`, as a part of 1.
pub fn share(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|n| n.parse().ok());
    match percent {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("write a share like 1%, 0% to 100%".to_owned()),
    }
}

fn kubernetes(mut section: Section<'_>, options: &mut Options) {
    let url = section.text("pods_url").map(|url| Url::parse(&url));
    match url {
        Some(Ok(pods_url)) => {
            options.kubernetes = Some(KubernetesOptions {
                pods_url,
                token_file: section.text("token_file").map(Into::into),
                tls: read_tls(&mut section, Path::new("")),
                interval: section
                    .duration("interval")
                    .unwrap_or(Duration::from_secs(15)),
            });
        }
        Some(Err(error)) => section.problem("pods_url", error.to_string()),
        None => section.problem(
            "pods_url",
            "is missing: the kubelet's or the API server's list of pods",
        ),
    }
    section.finish(|_| None);
}

/// `VARIABLE=label`, or `VARIABLE`, whose label is its name in lower case.
pub fn label_env(text: &str) -> Result<(String, String), &'static str> {
    let (variable, label) = match text.split_once('=') {
        Some((variable, label)) => (variable, label.to_owned()),
        None => (text, text.to_ascii_lowercase()),
    };
    let mut letters = label.bytes();
    let first = letters
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    let rest = letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match !variable.is_empty() && first && rest && label != "source" {
        true => Ok((variable.to_owned(), label)),
        false => {
            Err("write VARIABLE or VARIABLE=label; a label is a letter, then letters, digits and _")
        }
    }
}

fn upload(mut section: Section<'_>, options: &mut Options) {
    let upload = &mut options.upload;
    if let Some(on) = section.truth("upload") {
        upload.off = !on;
    }
    if let Some(bytes) = section.size("bytes_per_second") {
        upload.bytes_per_second = bytes;
    }
    if let Some(bytes) = section.size("file_size_limit") {
        upload.file_bytes = bytes;
    }
    if let Some(jitter) = section.duration("jitter") {
        upload.jitter = jitter;
    }
    section.finish(|_| None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotlight_labels::Rule;
    use serde_json::json;

    fn options() -> Options {
        Options::new(Url::parse("http://127.0.0.1:1/").unwrap())
    }

    #[test]
    fn the_section_is_read_and_mistakes_are_named() {
        let mut read = options();
        let section =
            json!({"frequency_hz": 97, "bpf": false, "interval": "5s", "queue_size": "1MB"});
        assert_eq!(apply(&section, &mut read), Ok(More::default()));
        assert_eq!((read.sampler.frequency_hz, read.no_bpf), (97, true));
        assert_eq!((read.interval.as_secs(), read.queue_bytes), (5, 1 << 20));
        let section =
            json!({"protocol": "otlp", "queue_dir": "/q", "label_env": ["POD_NAME=pod", "ZONE"]});
        let mut read = options();
        assert_eq!(apply(&section, &mut read), Ok(More::default()));
        assert_eq!(
            (read.protocol, read.queue_folder.take()),
            (Protocol::Otlp, Some("/q".into()))
        );
        assert_eq!(read.tables_folder, Some("/q/tables".into()));
        let section = json!({"queue_dir": "/q", "tables_dir": "/t", "tables_size": "1MB"});
        assert_eq!(apply(&section, &mut read), Ok(More::default()));
        assert_eq!(
            (read.tables_folder.take(), read.tables_bytes),
            (Some("/t".into()), 1 << 20)
        );
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            read.label_env,
            [pair("POD_NAME", "pod"), pair("ZONE", "zone")]
        );
        let section = json!({"kubernetes": {"pods_url": "http://127.0.0.1:10255/pods", "token_file": "t", "tls_config": {"ca_file": "/ca"}}});
        assert_eq!(apply(&section, &mut read), Ok(More::default()));
        let kubernetes = read.kubernetes.clone().unwrap();
        assert_eq!(
            kubernetes.pods_url.to_string(),
            "http://127.0.0.1:10255/pods"
        );
        assert_eq!(kubernetes.tls.ca_file, Some("/ca".into()));
        assert_eq!(
            (kubernetes.token_file, kubernetes.interval.as_secs()),
            (Some("t".into()), 15)
        );
        for wrong in ["", "=a", "A=", "A=a-b", "A=__a", "A=source"] {
            assert!(label_env(wrong).is_err(), "{wrong}");
        }
        let drop = json!({"source_labels": ["comm"], "regex": "cc1", "action": "drop"});
        let section = json!({"relabel_configs": [drop]});
        assert_eq!(apply(&section, &mut read), Ok(More::default()));
        assert_eq!(read.relabel, [Rule::read(&drop).unwrap()]);
        let section = json!({"event": "page-faults@7", "off_cpu": "2ms"});
        assert_eq!(apply(&section, &mut read), Ok(More::default()));
        assert_eq!(read.sampler.event, Event::parse("page-faults@7").unwrap());
        assert_eq!(read.sampler.off_cpu_threshold_ns, Some(2_000_000));
        assert_eq!(wait("2ms"), Ok(2_000_000));
        for wrong in ["0s", "x", ""] {
            assert!(wait(wrong).is_err(), "{wrong}");
        }
        let problems = apply(&json!({"event": "cycles@9hz"}), &mut read).unwrap_err();
        assert!(
            problems[0].starts_with("agent.event: write cycles@"),
            "{problems:?}"
        );
        let section = json!({"relabel_configs": [{"action": "burn"}]});
        let problems = apply(&section, &mut read).unwrap_err();
        assert!(problems[0].starts_with("agent.relabel_configs[0].action: \"burn\""));
        assert_eq!(read.sampler.verify, 0.01);
        assert_eq!(
            apply(&json!({"verify": "5%"}), &mut read),
            Ok(More::default())
        );
        assert_eq!(read.sampler.verify, 0.05);
        for wrong in ["1", "-1%", "101%", "%", "NaN%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        let section = json!({"frequency_hz": 5000, "frequncy": 1});
        let problems = apply(&section, &mut options()).unwrap_err().join("\n");
        assert!(
            problems.contains("agent.frequency_hz: must be 1 to 997"),
            "{problems}"
        );
        assert!(problems.contains("agent.frequncy"), "{problems}");
    }
}
