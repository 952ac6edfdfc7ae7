//! What the scraper says of itself: Prometheus' targets JSON and metrics text.

use crate::config::format_duration;
use crate::target::{Rejected, Target};
use crate::time::rfc3339;
use pilotlight_labels::escape;
use pilotlight_wire::Clock;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why a scrape brought nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// No connection, no answer in time, a broken body, a bad status.
    Wire,
    /// An answer that is no profile.
    NotAProfile,
    /// Over a limit of the configuration.
    Limit,
    /// Another capture of the same process was running.
    Overlap,
}

impl Cause {
    /// As a label value.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::NotAProfile => "not_a_profile",
            Self::Limit => "limit",
            Self::Overlap => "overlap",
        }
    }
}

/// A failed scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For counting.
    pub cause: Cause,
    /// For people; names the URL.
    pub text: String,
}

/// A target and how its scrapes went.
#[derive(Debug)]
pub struct TargetState {
    /// Never changes.
    pub target: Target,
    status: Mutex<Status>,
}

/// How the scrapes of a target went.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// `None` before the first scrape ended.
    pub last: Option<Result<(), Failure>>,
    /// Start of the last scrape, nanoseconds since the epoch.
    pub last_scrape_ns: i64,
    /// Of the last scrape.
    pub last_duration: Duration,
    /// Body of the last successful scrape.
    pub body_bytes: u64,
    /// Rows of the last successful scrape.
    pub samples: u64,
    /// Scrapes that brought a profile.
    pub good: u64,
    /// Scrapes that did not, by cause.
    pub failed: BTreeMap<Cause, u64>,
    /// Ticks that passed while a scrape was running.
    pub missed: u64,
}

impl TargetState {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            status: Mutex::default(),
        }
    }

    /// A copy of the present status.
    pub fn status(&self) -> Status {
        lock(&self.status).clone()
    }

    pub(crate) fn missed(&self, ticks: u64) {
        lock(&self.status).missed += ticks;
    }

    /// Writes a scrape down; true when the target went from up (or unknown) to down or back.
    pub(crate) fn record(
        &self,
        start_ns: i64,
        took: Duration,
        result: Result<(u64, u64), Failure>,
    ) -> bool {
        let mut status = lock(&self.status);
        let was_up = status.last.as_ref().map(Result::is_ok);
        status.last_scrape_ns = start_ns;
        status.last_duration = took;
        status.last = Some(match result {
            Ok((bytes, samples)) => {
                status.good += 1;
                status.body_bytes = bytes;
                status.samples = samples;
                Ok(())
            }
            Err(failure) => {
                *status.failed.entry(failure.cause).or_default() += 1;
                Err(failure)
            }
        });
        let up = status.last.as_ref().map(Result::is_ok);
        up != was_up && !(was_up.is_none() && up == Some(true))
    }
}

/// Counts of the way to the server.
#[derive(Debug, Default)]
pub struct Counters {
    /// Profiles that the server acknowledged.
    pub pushed: AtomicU64,
    /// Their bytes.
    pub pushed_bytes: AtomicU64,
    /// Failed tries.
    pub push_failures: AtomicU64,
    /// Tries after a failed one.
    pub retries: AtomicU64,
    dropped: Mutex<BTreeMap<&'static str, u64>>,
    last_error: Mutex<Option<String>>,
}

impl Counters {
    pub(crate) fn drop_one(&self, reason: &'static str) {
        *lock(&self.dropped).entry(reason).or_default() += 1;
    }

    pub(crate) fn last_push_error(&self, text: String) {
        *lock(&self.last_error) = Some(text);
    }

    /// Profiles given up, by reason.
    pub fn dropped(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.dropped).clone()
    }

    /// The last failed push, in words.
    pub fn push_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }
}

/// Everything that is scraped at the moment, over all jobs.
#[derive(Debug, Default)]
pub(crate) struct Board {
    jobs: Mutex<BTreeMap<String, JobBoard>>,
}

#[derive(Debug, Default)]
struct JobBoard {
    active: Vec<Arc<TargetState>>,
    rejected: Vec<Rejected>,
    failing_files: usize,
}

impl Board {
    pub fn set(
        &self,
        job: &str,
        active: Vec<Arc<TargetState>>,
        rejected: Vec<Rejected>,
        failing_files: usize,
    ) {
        let board = JobBoard {
            active,
            rejected,
            failing_files,
        };
        lock(&self.jobs).insert(job.to_owned(), board);
    }

    pub fn active(&self) -> Vec<Arc<TargetState>> {
        let jobs = lock(&self.jobs);
        jobs.values()
            .flat_map(|job| job.active.iter().cloned())
            .collect()
    }

    /// `/api/v1/targets` of Prometheus.
    pub fn targets_json(&self, hostname: &str) -> Value {
        let jobs = lock(&self.jobs);
        let active: Vec<Value> = jobs
            .values()
            .flat_map(|job| &job.active)
            .map(|state| active_json(state, hostname))
            .collect();
        let dropped: Vec<Value> = jobs
            .values()
            .flat_map(|job| &job.rejected)
            .map(dropped_json)
            .collect();
        let counts: serde_json::Map<String, Value> = jobs
            .iter()
            .map(|(name, job)| (name.clone(), json!(job.rejected.len())))
            .collect();
        json!({
            "status": "success",
            "data": {"activeTargets": active, "droppedTargets": dropped, "droppedTargetCounts": counts},
        })
    }

    /// One line per target and measure, in Prometheus' text format.
    pub fn metrics(&self, out: &mut String) {
        let states = self.active();
        let states: Vec<(String, Status)> = states
            .iter()
            .map(|s| (metric_labels(s), s.status()))
            .collect();
        let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Status) -> f64| {
            header(out, name, kind, help);
            for (labels, status) in &states {
                let _ = writeln!(out, "{name}{{{labels}}} {}", value(status));
            }
        };
        family(
            "up",
            "gauge",
            "1 when the last scrape brought a profile.",
            &|s| f64::from(u8::from(matches!(s.last, Some(Ok(()))))),
        );
        family(
            "scrape_duration_seconds",
            "gauge",
            "Of the last scrape, the profile's own seconds included.",
            &|s| s.last_duration.as_secs_f64(),
        );
        family(
            "scrape_body_size_bytes",
            "gauge",
            "Of the last profile, as it came.",
            &|s| s.body_bytes as f64,
        );
        family(
            "scrape_samples_scraped",
            "gauge",
            "Rows of the last profile.",
            &|s| s.samples as f64,
        );
        family(
            "pilotlight_scrape_missed_total",
            "counter",
            "Ticks that passed while a scrape ran.",
            &|s| s.missed as f64,
        );
        family(
            "pilotlight_scrapes_total",
            "counter",
            "Scrapes that brought a profile.",
            &|s| s.good as f64,
        );
        header(
            out,
            "pilotlight_scrape_failures_total",
            "counter",
            "Scrapes that did not, by cause.",
        );
        for (labels, status) in &states {
            for (cause, count) in &status.failed {
                let cause = cause.name();
                let _ = writeln!(
                    out,
                    "pilotlight_scrape_failures_total{{{labels},cause=\"{cause}\"}} {count}"
                );
            }
        }
        header(
            out,
            "pilotlight_sd_failing_files",
            "gauge",
            "Discovery files that cannot be used as they are.",
        );
        for (name, job) in lock(&self.jobs).iter() {
            let _ = writeln!(
                out,
                "pilotlight_sd_failing_files{{job=\"{}\"}} {}",
                escape(name),
                job.failing_files
            );
        }
    }
}

impl Counters {
    pub(crate) fn metrics(&self, out: &mut String, (waiting_bytes, waiting): (u64, u64)) {
        let mut one = |name: &str, kind: &str, help: &str, value: u64| {
            header(out, name, kind, help);
            let _ = writeln!(out, "{name} {value}");
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        one(
            "pilotlight_push_profiles_total",
            "counter",
            "Acknowledged by the server.",
            load(&self.pushed),
        );
        one(
            "pilotlight_push_bytes_total",
            "counter",
            "Their bytes.",
            load(&self.pushed_bytes),
        );
        one(
            "pilotlight_push_failures_total",
            "counter",
            "Failed tries.",
            load(&self.push_failures),
        );
        one(
            "pilotlight_push_retries_total",
            "counter",
            "Tries after a failed one.",
            load(&self.retries),
        );
        one(
            "pilotlight_push_queue_profiles",
            "gauge",
            "Waiting or being sent.",
            waiting,
        );
        one(
            "pilotlight_push_queue_bytes",
            "gauge",
            "Their bytes.",
            waiting_bytes,
        );
        header(
            out,
            "pilotlight_push_dropped_total",
            "counter",
            "Profiles given up, by reason.",
        );
        for (reason, count) in self.dropped() {
            let _ = writeln!(
                out,
                "pilotlight_push_dropped_total{{reason=\"{reason}\"}} {count}"
            );
        }
    }
}

fn active_json(state: &TargetState, hostname: &str) -> Value {
    let (target, status) = (&state.target, state.status());
    let (health, error) = match &status.last {
        None => ("unknown", ""),
        Some(Ok(())) => ("up", ""),
        Some(Err(failure)) => ("down", failure.text.as_str()),
    };
    let local = matches!(target.url.host(), "localhost" | "127.0.0.1" | "[::1]");
    let global = if local {
        target.url.at_host(hostname)
    } else {
        target.url.clone()
    };
    json!({
        "discoveredLabels": target.discovered.json(),
        "labels": target.labels.json(),
        "scrapePool": target.job,
        "scrapeUrl": target.url.to_string(),
        "globalUrl": global.to_string(),
        "lastError": error,
        "lastScrape": rfc3339(status.last_scrape_ns),
        "lastScrapeDuration": status.last_duration.as_secs_f64(),
        "health": health,
        "scrapeInterval": format_duration(target.interval),
        "scrapeTimeout": format_duration(target.timeout),
    })
}

/// Prometheus' two fields, and why.
fn dropped_json(rejected: &Rejected) -> Value {
    json!({
        "discoveredLabels": rejected.discovered.json(),
        "scrapePool": rejected.job,
        "lastError": rejected.reason,
    })
}

fn metric_labels(state: &TargetState) -> String {
    let mut out = format!("profile=\"{}\"", escape(&state.target.profile.name));
    for (name, value) in state
        .target
        .labels
        .iter()
        .filter(|(name, _)| *name != "profile")
    {
        let name: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '_' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let _ = write!(out, ",{name}=\"{}\"", escape(value));
    }
    out
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Milliseconds of the clock, for progress lines.
pub(crate) fn elapsed(clock: &dyn Clock, start: Duration) -> Duration {
    clock.monotonic().saturating_sub(start)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
