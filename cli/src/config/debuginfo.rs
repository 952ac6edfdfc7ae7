//! `server.debuginfo`.

use pilotlight_scraper::config::reader::Section;
use std::path::Path;

use pilotlight_server::{DebuginfoSettings, DebuginfoSources};
use pilotlight_wire::Url;

/// What debug information may take, and where it is looked for; folders are relative to `folder`.
pub fn read(mut section: Section<'_>, folder: &Path, settings: &mut DebuginfoSettings) {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    if let Some(size) = section.size("max_file_bytes") {
        settings.max_file_bytes = size;
    }
    if let Some(size) = section.size("max_bytes") {
        settings.max_bytes = size;
    }
    if let Some(size) = section.size("table_cache_bytes") {
        settings.table_cache_bytes = bytes(size);
    }
    if let Some(size) = section.size("named_cache_bytes") {
        settings.named_cache_bytes = bytes(size);
    }
    if let Some(size) = section.size("parse_memory_bytes") {
        settings.parse_limits.memory_bytes = size;
    }
    if let Some(cpu) = section.duration("parse_cpu_time") {
        settings.parse_limits.cpu = cpu;
        settings.parse_limits.wall = cpu * 3;
    }
    sources(&mut section, folder, &mut settings.sources);
    section.finish(|_| None);
}

fn sources(section: &mut Section<'_>, folder: &Path, sources: &mut DebuginfoSources) {
    let folders = section.texts("debuginfo_dirs").into_iter();
    sources.folders = folders.map(|of| folder.join(of)).collect();
    for text in section.texts("debuginfod_urls") {
        match Url::parse(&text) {
            Ok(url) if url.query().is_empty() => sources.debuginfod.push(url),
            Ok(_) => section.problem("debuginfod_urls", format!("{text:?} must not have a query")),
            Err(error) => section.problem("debuginfod_urls", error.to_string()),
        }
    }
    for text in section.texts("debuginfod_networks") {
        match text.parse() {
            Ok(network) => sources.networks.push(network),
            Err(reason) => section.problem("debuginfod_networks", reason),
        }
    }
    if let Some(size) = section.size("debuginfod_max_file_bytes") {
        sources.max_file_bytes = size;
    }
    if let Some(timeout) = section.duration("debuginfod_timeout") {
        sources.timeout = timeout;
    }
    if let Some(ask_again) = section.duration("debuginfod_ask_again") {
        sources.ask_again = ask_again;
    }
    match section.number("debuginfod_requests_per_minute") {
        Some(0) => section.problem(
            "debuginfod_requests_per_minute",
            "must be at least 1; without debuginfod_urls nobody is asked",
        ),
        Some(number) => sources.requests_per_minute = u32::try_from(number).unwrap_or(u32::MAX),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_scraper::config::reader::Problems;
    use serde_json::{Value, json};

    use super::*;

    fn parsed(value: &Value) -> (DebuginfoSettings, Vec<String>) {
        let problems = Problems::default();
        let mut settings = DebuginfoSettings::default();
        let section = Section::new("server.debuginfo", value, &problems);
        read(section, Path::new("/etc/pilotlight"), &mut settings);
        (settings, problems.into_vec())
    }

    #[test]
    fn nobody_is_asked_unless_the_file_says_whom() {
        assert!(!parsed(&Value::Null).0.sources.any());
        let (settings, problems) = parsed(&json!({
            "debuginfo_dirs": ["/usr/lib/debug", "own"],
            "debuginfod_urls": ["http://10.1.2.3:8002"],
            "debuginfod_networks": ["10.1.0.0/16"],
            "debuginfod_requests_per_minute": 6,
            "debuginfod_timeout": "1m",
        }));
        assert_eq!(problems, [""; 0]);
        let sources = settings.sources;
        assert_eq!(sources.folders[1], Path::new("/etc/pilotlight/own"));
        assert_eq!(sources.debuginfod[0].to_string(), "http://10.1.2.3:8002/");
        assert_eq!(
            (sources.networks.len(), sources.requests_per_minute),
            (1, 6)
        );
        assert_eq!(sources.timeout.as_secs(), 60);
    }

    #[test]
    fn mistakes_are_named() {
        let (_, problems) = parsed(&json!({
            "debuginfod_urls": ["ftp://a", "http://a/?x=1"],
            "debuginfod_networks": ["10.0.0.0/99"],
            "debuginfod_requests_per_minute": 0,
        }));
        assert_eq!(problems.len(), 4, "{problems:?}");
        let named = |text: &str| problems.iter().any(|problem| problem.contains(text));
        assert!(
            named("ftp") && named("must not have a query"),
            "{problems:?}"
        );
        assert!(named("10.0.0.0/99") && named("at least 1"), "{problems:?}");
    }
}
