//! Section `agent`.

use super::{read as read_file, refused};
use crate::fail::Failure;
use pilotlight_host_agent::Options;
use pilotlight_scraper::config::reader::{Problems, Section};
use serde_json::Value;
use std::path::Path;

/// Reads the section of `file` into `options`; without one they stay as they are.
pub fn read(file: &Path, options: &mut Options) -> Result<(), Failure> {
    let config = read_file(file)?;
    let sections = config.sections.iter();
    for (_, section) in sections.filter(|(name, _)| *name == "agent") {
        apply(section, options).map_err(|problems| {
            let text = format!("{}:\n  {}", file.display(), problems.join("\n  "));
            refused(file, &text)
        })?;
    }
    Ok(())
}

/// Reads the section into `options`.
pub fn apply(section: &Value, options: &mut Options) -> Result<(), Vec<String>> {
    let problems = Problems::default();
    let mut agent = Section::new("agent", section, &problems);
    if let Some(frequency_hz) = agent.number("frequency_hz") {
        match u32::try_from(frequency_hz) {
            Ok(frequency_hz @ 1..=997) => options.sampler.frequency_hz = frequency_hz,
            _ => agent.problem("frequency_hz", "must be 1 to 997"),
        }
    }
    if let Some(kernel) = agent.truth("kernel") {
        options.sampler.kernel = kernel;
    }
    if let Some(bpf) = agent.truth("bpf") {
        options.no_bpf = !bpf;
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
    if let Some(java) = agent.truth("java_perf_map") {
        options.java_perf_map = java;
    }
    if let Some(instrumented) = agent.truth("instrumented") {
        options.instrumented = instrumented;
    }
    let nothing = Value::Null;
    let debuginfo = agent.value("debuginfo").unwrap_or(&nothing);
    upload(
        Section::new("agent.debuginfo", debuginfo, &problems),
        options,
    );
    agent.finish(|_| None);
    let problems = problems.into_vec();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
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
    use serde_json::json;

    fn options() -> Options {
        Options::new(pilotlight_scraper::Url::parse("http://127.0.0.1:1/").unwrap())
    }

    #[test]
    fn the_section_is_read_and_mistakes_are_named() {
        let mut read = options();
        let section =
            json!({"frequency_hz": 97, "bpf": false, "interval": "5s", "queue_size": "1MB"});
        assert_eq!(apply(&section, &mut read), Ok(()));
        assert_eq!((read.sampler.frequency_hz, read.no_bpf), (97, true));
        assert_eq!((read.interval.as_secs(), read.queue_bytes), (5, 1 << 20));
        let section = json!({"frequency_hz": 5000, "frequncy": 1});
        let problems = apply(&section, &mut options()).unwrap_err().join("\n");
        assert!(
            problems.contains("agent.frequency_hz: must be 1 to 997"),
            "{problems}"
        );
        assert!(problems.contains("agent.frequncy"), "{problems}");
    }
}
