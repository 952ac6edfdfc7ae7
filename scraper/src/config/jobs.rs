//! One entry of `scrape_configs`.

use super::duration::format_duration;
use super::reader::{Problems, Section, scalar, texts};
use super::tls::read_tls;
use crate::Labels;
use pilotlight_labels::{Problem, Rule};
use pilotlight_wire::{Authorization, TlsClient};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A job: what is scraped, how often, within which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// Unique; the default of the labels `job` and `service_name`.
    pub job_name: String,
    /// Time between two scrapes of a target. Default 10 s.
    pub scrape_interval: Duration,
    /// Time that an answer may take *beyond* the seconds that a profile is asked to last. Default 10 s, at most the
    /// interval.
    pub scrape_timeout: Duration,
    /// Added to the URL of every profile of this job.
    pub params: BTreeMap<String, Vec<String>>,
    /// A profile with more bytes, compressed or not, fails the scrape. 0: only the decoder's limits hold.
    pub body_size_limit: u64,
    /// A profile with more samples fails the scrape. 0: no limit.
    pub sample_limit: u64,
    /// A target with more labels fails its scrapes. 0: no limit.
    pub label_limit: u64,
    /// In bytes. 0: no limit.
    pub label_name_length_limit: u64,
    /// In bytes. 0: no limit.
    pub label_value_length_limit: u64,
    /// With more targets than this, all targets of the job fail. 0: no limit.
    pub target_limit: u64,
    /// What each target is shown.
    pub authorization: Option<Authorization>,
    /// Targets speak TLS, unless their own `__scheme__` says otherwise.
    pub secure: bool,
    /// How they are checked then.
    pub tls: TlsClient,
    /// Targets in the file itself.
    pub static_configs: Vec<Group>,
    /// Targets in files of their own, followed while running.
    pub file_sd_configs: Vec<FileSd>,
    /// Applied to the labels of each profile of each target before anything else is read from them.
    pub relabel_configs: Vec<Rule>,
    /// What is fetched from each target.
    pub profiles: Vec<Profile>,
    /// Captures of this length fill the time before the first tick, for a process that has something to show at once;
    /// not in the file.
    pub first_captures: Option<Duration>,
}

/// Targets that share labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `host:port` each.
    pub targets: Vec<String>,
    /// Labels of all of them.
    pub labels: Labels,
}

/// `file_sd_configs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSd {
    /// Paths; the last part may contain `*`.
    pub files: Vec<PathBuf>,
    /// Read again after this time even when nothing seems to have changed. Default 5 min.
    pub refresh_interval: Duration,
}

/// One profile of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `process_cpu`, `memory`, …: the first part of the profile type.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// Seconds to ask for; `None` asks for the present state.
    pub seconds: Option<u64>,
}

impl Profile {
    /// Holds the process' one CPU profiler while it runs.
    pub fn is_cpu(&self) -> bool {
        self.name == "process_cpu"
    }
}

/// Parca's names and paths, and those that pilotlight's SDK has besides; only the first is on by
/// default.
const KNOWN_PROFILES: [(&str, &str); 11] = [
    ("process_cpu", "/debug/pprof/profile"),
    ("await", "/debug/pprof/await"),
    ("memory", "/debug/pprof/allocs"),
    ("block", "/debug/pprof/block"),
    ("goroutine", "/debug/pprof/goroutine"),
    ("mutex", "/debug/pprof/mutex"),
    ("offcpu", "/debug/pprof/offcpu"),
    ("tasks", "/debug/pprof/tasks"),
    ("threadcreate", "/debug/pprof/threadcreate"),
    ("threads", "/debug/pprof/threads"),
    ("wall", "/debug/pprof/wall"),
];

/// Sampled over the seconds that are asked for, instead of counted all the time.
const SAMPLED: [&str; 3] = ["process_cpu", "offcpu", "wall"];

const INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);
const REFRESH: Duration = Duration::from_secs(300);
/// A capture holds memory and a connection; longer ones are split by the interval.
const MAX_SECONDS: u64 = 3600;

impl ScrapeConfig {
    /// A job with defaults and fixed targets, as the file would give it.
    pub fn new(job_name: &str, targets: &[&str]) -> Self {
        Self {
            job_name: job_name.to_owned(),
            scrape_interval: INTERVAL,
            scrape_timeout: TIMEOUT,
            params: BTreeMap::new(),
            body_size_limit: 0,
            sample_limit: 0,
            label_limit: 0,
            label_name_length_limit: 0,
            label_value_length_limit: 0,
            target_limit: 0,
            static_configs: vec![Group {
                targets: targets.iter().map(|target| (*target).to_owned()).collect(),
                labels: Labels::new(),
            }],
            file_sd_configs: Vec::new(),
            relabel_configs: Vec::new(),
            profiles: vec![cpu(INTERVAL)],
            authorization: None,
            secure: false,
            tls: TlsClient::default(),
            first_captures: None,
        }
    }

    /// The same job at another interval; the CPU profile lasts a second less.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.scrape_interval = interval;
        self.scrape_timeout = self.scrape_timeout.min(interval);
        for profile in self.profiles.iter_mut().filter(|profile| profile.is_cpu()) {
            profile.seconds = Some(cpu_seconds(interval));
        }
        self
    }
}

fn cpu(interval: Duration) -> Profile {
    let (name, path) = KNOWN_PROFILES[0];
    Profile {
        name: name.to_owned(),
        path: path.to_owned(),
        seconds: Some(cpu_seconds(interval)),
    }
}

/// A second less than the interval, so that a capture ends before the next tick.
fn cpu_seconds(interval: Duration) -> u64 {
    interval.as_secs().saturating_sub(1).max(1)
}

pub(super) struct Defaults {
    interval: Duration,
    timeout: Option<Duration>,
}

/// `global`: only what changes scraping.
pub(super) fn read_global(top: &mut Section) -> Defaults {
    let mut defaults = Defaults {
        interval: INTERVAL,
        timeout: None,
    };
    let problems = top.problems();
    if let Some(value) = top.value("global") {
        let mut global = Section::new("global", value, problems);
        defaults.interval = global.duration("scrape_interval").unwrap_or(INTERVAL);
        defaults.timeout = global.duration("scrape_timeout");
        global.finish(later_job);
    }
    defaults
}

pub(super) fn read_job(
    mut job: Section,
    defaults: &Defaults,
    folder: &Path,
    warnings: &mut Vec<String>,
) -> ScrapeConfig {
    let job_name = job.text("job_name").unwrap_or_default();
    if job_name.is_empty() {
        job.problem("job_name", "every job needs a name");
    } else {
        job.rename(format!("{} ({job_name})", job.place()));
    }
    let (scrape_interval, scrape_timeout) = read_times(&mut job, defaults);
    let scheme = job.text("scheme").unwrap_or_else(|| "http".to_owned());
    if !matches!(&*scheme, "http" | "https") {
        job.problem("scheme", format!("{scheme:?} is neither http nor https"));
    }
    if job.text("metrics_path").is_some() {
        warnings.push(format!(
            "{}.metrics_path has no effect: profiles have their paths in profiling_config.pprof_config",
            job.place()
        ));
    }
    let config = ScrapeConfig {
        params: read_params(&mut job),
        body_size_limit: job.size("body_size_limit").unwrap_or(0),
        sample_limit: job.number("sample_limit").unwrap_or(0),
        label_limit: job.number("label_limit").unwrap_or(0),
        label_name_length_limit: job.number("label_name_length_limit").unwrap_or(0),
        label_value_length_limit: job.number("label_value_length_limit").unwrap_or(0),
        target_limit: job.number("target_limit").unwrap_or(0),
        authorization: read_authorization(&mut job, folder),
        secure: scheme == "https",
        tls: read_tls(&mut job, folder),
        static_configs: read_groups(&mut job),
        file_sd_configs: read_file_sd(&mut job, folder),
        relabel_configs: read_rules(job.list("relabel_configs"), job.problems()),
        profiles: read_profiling(&mut job, scrape_interval),
        job_name,
        scrape_interval,
        scrape_timeout,
        first_captures: None,
    };
    job.finish(later_job);
    config
}

fn read_authorization(job: &mut Section, folder: &Path) -> Option<Authorization> {
    let problems = job.problems();
    let value = job.value("authorization")?;
    let mut section = Section::new(format!("{}.authorization", job.place()), value, problems);
    let kind = section.text("type").unwrap_or_else(|| "Bearer".to_owned());
    let (text, file) = (
        section.text("credentials"),
        section.text("credentials_file"),
    );
    let authorization = match (text, file) {
        (Some(text), None) => Some(Authorization::text(kind, text)),
        (None, Some(file)) => Some(Authorization::file(kind, folder.join(file))),
        _ => {
            section.problem("credentials", "give either credentials or credentials_file");
            None
        }
    };
    section.finish(|_| None);
    authorization
}

fn read_times(job: &mut Section, defaults: &Defaults) -> (Duration, Duration) {
    let interval = job.duration("scrape_interval").unwrap_or(defaults.interval);
    if interval.is_zero() {
        job.problem("scrape_interval", "must be longer than 0");
    }
    let own = job.duration("scrape_timeout");
    let timeout = own.or(defaults.timeout).unwrap_or(TIMEOUT);
    if own.is_some_and(|own| own > interval) {
        job.problem(
            "scrape_timeout",
            format!(
                "{} is longer than scrape_interval ({}); it is the time beyond the profile's seconds, lower it",
                format_duration(timeout),
                format_duration(interval)
            ),
        );
    }
    if own.is_some_and(|own| own.is_zero()) {
        job.problem("scrape_timeout", "must be longer than 0");
    }
    (interval, timeout.min(interval))
}

fn read_params(job: &mut Section) -> BTreeMap<String, Vec<String>> {
    let mut params = BTreeMap::new();
    for (name, place, value) in job.entries("params") {
        let list = match value.as_array() {
            Some(list) => list.iter().map(|value| (place.clone(), value)).collect(),
            None => vec![(place.clone(), value)],
        };
        let values = texts(list, job.problems());
        if name == "seconds" {
            job.problems().add(
                &place,
                "would apply to every profile; set profiling_config.pprof_config.process_cpu.seconds instead",
            );
        }
        if name == "debug" && values.iter().any(|value| value != "0") {
            job.problems()
                .add(&place, "asks for text, which is not a profile; remove it");
        }
        params.insert(name.to_owned(), values);
    }
    params
}

fn read_groups(job: &mut Section) -> Vec<Group> {
    job.list("static_configs")
        .into_iter()
        .map(|(place, value)| read_group(place, value, job.problems()))
        .collect()
}

/// A group of `static_configs`, or of a discovery file.
pub(crate) fn read_group(place: String, value: &Value, problems: &Problems) -> Group {
    let mut group = Section::new(place, value, problems);
    let targets = group.texts("targets");
    let mut labels = Labels::new();
    for (name, place, value) in group.entries("labels") {
        match scalar(value) {
            Ok(value) => labels.set(name, value),
            Err(problem) => problems.add(&place, problem),
        }
    }
    group.finish(|_| None);
    Group { targets, labels }
}

/// A list of rules, such as `relabel_configs`.
pub fn read_rules(list: Vec<(String, &Value)>, problems: &Problems) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (place, value) in list {
        match Rule::read(value) {
            Ok(rule) => rules.push(rule),
            Err(wrong) => {
                for Problem { key, text } in wrong {
                    let dot = if key.is_empty() { "" } else { "." };
                    problems.add(&format!("{place}{dot}{key}"), text);
                }
            }
        }
    }
    rules
}

fn read_file_sd(job: &mut Section, folder: &Path) -> Vec<FileSd> {
    let mut out = Vec::new();
    for (place, value) in job.list("file_sd_configs") {
        let mut section = Section::new(place, value, job.problems());
        let files = section.texts("files");
        if files.is_empty() {
            section.problem("files", "needs at least one path");
        }
        for file in &files {
            check_pattern(&section, file);
        }
        let refresh_interval = section.duration("refresh_interval").unwrap_or(REFRESH);
        section.finish(|_| None);
        out.push(FileSd {
            files: files.iter().map(|file| folder.join(file)).collect(),
            refresh_interval,
        });
    }
    out
}

fn check_pattern(section: &Section, file: &str) {
    let path = Path::new(file);
    if !matches!(
        path.extension().and_then(|e| e.to_str()),
        Some("yml" | "yaml" | "json")
    ) {
        section.problem(
            "files",
            format!("{file:?} must end in .yml, .yaml or .json"),
        );
    }
    let parent = path.parent().unwrap_or(Path::new("")).to_string_lossy();
    if parent.contains('*') {
        section.problem(
            "files",
            format!("{file:?}: * may only stand in the last part"),
        );
    }
}

fn read_profiling(job: &mut Section, interval: Duration) -> Vec<Profile> {
    let mut profiles = vec![cpu(interval)];
    let Some(value) = job.value("profiling_config") else {
        return profiles;
    };
    let mut section = Section::new(
        format!("{}.profiling_config", job.place()),
        value,
        job.problems(),
    );
    for (name, place, value) in section.entries("pprof_config") {
        profiles.retain(|profile| profile.name != name);
        let entry = Section::new(place, value, job.problems());
        profiles.extend(read_profile(name, entry, interval));
    }
    let prefix = section.text("path_prefix").unwrap_or_default();
    for profile in &mut profiles {
        profile.path.insert_str(0, prefix.trim_end_matches('/'));
    }
    section.finish(|_| None);
    if profiles.is_empty() {
        job.problem(
            "profiling_config",
            "turns every profile off; enable one or remove the job",
        );
    }
    profiles
}

fn read_profile(name: &str, mut entry: Section, interval: Duration) -> Option<Profile> {
    let known = KNOWN_PROFILES.iter().find(|(known, _)| *known == name);
    let enabled = entry.truth("enabled").unwrap_or(true);
    let path = entry
        .text("path")
        .or(known.map(|(_, path)| (*path).to_owned()));
    let delta = entry.truth("delta");
    let asked = entry.number("seconds");
    let sampled = SAMPLED.contains(&name);
    let seconds = check_seconds(sampled, delta, asked, interval, &entry);
    let path = path.unwrap_or_else(|| {
        entry.problem("path", "a profile that is not built in needs a path");
        String::new()
    });
    check_path(&path, &entry);
    entry.finish(|key| {
        (key == "keep_sample_type")
            .then(|| "not supported yet; all sample types are kept, remove it".to_owned())
    });
    enabled.then(|| Profile {
        name: name.to_owned(),
        path,
        seconds,
    })
}

fn check_seconds(
    sampled: bool,
    delta: Option<bool>,
    asked: Option<u64>,
    interval: Duration,
    entry: &Section,
) -> Option<u64> {
    if asked.is_some_and(|asked| asked == 0 || asked > MAX_SECONDS) {
        entry.problem("seconds", format!("must be from 1 to {MAX_SECONDS}"));
    }
    if asked.is_some_and(|asked| Duration::from_secs(asked) > interval) {
        let text = format!(
            "is longer than scrape_interval ({})",
            format_duration(interval)
        );
        entry.problem("seconds", text);
    }
    if sampled {
        if delta == Some(false) {
            entry.problem(
                "delta",
                "this profile always covers its own seconds; remove it",
            );
        }
        return Some(asked.unwrap_or_else(|| cpu_seconds(interval)));
    }
    if asked.is_some() && delta != Some(true) {
        entry.problem(
            "seconds",
            "asks for a difference; add delta: true, or remove it",
        );
    }
    (delta == Some(true)).then(|| asked.unwrap_or_else(|| cpu_seconds(interval)))
}

fn check_path(path: &str, entry: &Section) {
    if !path.starts_with('/') {
        entry.problem("path", format!("{path:?} must begin with /"));
    }
    if path.contains(['?', '#']) {
        entry.problem("path", format!("{path:?}: parameters go to params"));
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    if matches!(last, "trace" | "cmdline" | "symbol") {
        entry.problem(
            "path",
            format!("{path:?} does not answer with a pprof profile; remove it"),
        );
    }
}

fn later_job(key: &str) -> Option<String> {
    if key.ends_with("_sd_configs") {
        return Some(
            "this kind of discovery is not supported yet; write its targets to file_sd_configs"
                .to_owned(),
        );
    }
    let text = match key {
        "metric_relabel_configs" => {
            "a profile has the labels of its target; use relabel_configs, and remove it"
        }
        "basic_auth" | "oauth2" | "http_headers" => {
            "of authentication only authorization and tls_config are supported yet"
        }
        "proxy_url" | "no_proxy" | "proxy_from_environment" | "proxy_connect_header" => {
            "proxies are not supported yet"
        }
        "external_labels"
        | "honor_labels"
        | "honor_timestamps"
        | "follow_redirects"
        | "enable_http2"
        | "keep_dropped_targets"
        | "scrape_protocols"
        | "evaluation_interval"
        | "track_timestamps_staleness"
        | "enable_compression" => "Prometheus' key, not supported yet; remove it here",
        _ => return None,
    };
    Some(text.to_owned())
}
