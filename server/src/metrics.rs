//! Counters of the server, and their Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Counters since the start of the process.
#[derive(Default)]
pub struct Metrics {
    /// Profiles acknowledged.
    pub profiles: AtomicU64,
    /// Samples acknowledged.
    pub samples: AtomicU64,
    /// Bytes of bodies, as they came.
    pub received_bytes: AtomicU64,
    /// Pushes that were counted before.
    pub duplicates: AtomicU64,
    /// Segment files written.
    pub segments_written: AtomicU64,
    /// Bytes of them.
    pub segment_bytes: AtomicU64,
    /// Microseconds spent in durable puts.
    pub put_micros: AtomicU64,
    /// Segments that could not be written.
    pub write_errors: AtomicU64,
    /// Segments found damaged.
    pub damaged_segments: AtomicU64,
    /// Merges done.
    pub merges: AtomicU64,
    /// Of them, of segments whose profiles were still in memory.
    pub merges_from_memory: AtomicU64,
    /// Whether another server over the same store is the one that merges and deletes.
    pub merging_elsewhere: AtomicBool,
    /// Segments deleted by retention.
    pub expired_segments: AtomicU64,
    /// Queries running now.
    pub running_queries: AtomicU64,
    /// Queries answered.
    pub queries: AtomicU64,
    /// Microseconds spent in them, waiting for files included.
    pub query_micros: AtomicU64,
    reasons: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl Metrics {
    /// Counts a durable put.
    pub fn put(&self, took: Duration, bytes: usize) {
        self.segments_written.fetch_add(1, Relaxed);
        self.segment_bytes.fetch_add(bytes as u64, Relaxed);
        self.put_micros.fetch_add(took.as_micros() as u64, Relaxed);
    }

    /// Counts things of a kind (`dropped`, `repaired`, `refused`) by reason.
    pub fn reason(&self, kind: &'static str, reason: &'static str, count: u64) {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        *reasons.entry((kind, reason)).or_default() += count;
    }

    /// Counts by (kind, reason).
    pub fn reasons(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.reasons
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Writes Prometheus text.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// A metric without labels.
    pub fn value(&mut self, kind: &str, name: &str, help: &str, value: f64) {
        self.head(kind, name, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn head(&mut self, kind: &str, name: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A counter with one label.
    pub fn labelled(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        self.head("counter", name, help);
        for (of, value) in values {
            let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
        }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// One text of several, each with its tenant as a label; lines of a metric stay together.
pub fn of_tenants(texts: &[(&str, String)]) -> String {
    let mut families: Vec<(&str, String)> = Vec::new();
    for (tenant, text) in texts {
        let mut at = None;
        for line in text.lines() {
            let said = line
                .strip_prefix("# ")
                .and_then(|line| line.split(' ').nth(1));
            if let Some(name) = said {
                let known = families.iter().position(|(known, _)| *known == name);
                let is_new = known.is_none();
                let place = known.unwrap_or(families.len());
                if is_new {
                    families.push((name, String::new()));
                }
                // The second line of a new family's head is as new as the first.
                if let Some((_, lines)) = families.get_mut(place)
                    && (is_new || lines.lines().count() == 1)
                {
                    let _ = writeln!(lines, "{line}");
                }
                at = Some(place);
            } else if let Some((_, lines)) = at.and_then(|at| families.get_mut(at)) {
                let _ = match (line.split_once('{'), line.split_once(' ')) {
                    (Some((name, rest)), _) => {
                        writeln!(lines, "{name}{{tenant=\"{tenant}\",{rest}")
                    }
                    (None, Some((name, value))) => {
                        writeln!(lines, "{name}{{tenant=\"{tenant}\"}} {value}")
                    }
                    (None, None) => Ok(()),
                };
            }
        }
    }
    families.into_iter().map(|(_, lines)| lines).collect()
}

/// All counters as Prometheus text.
pub fn counters(text: &mut Text, metrics: &Metrics) {
    let load = |counter: &AtomicU64| counter.load(Relaxed) as f64;
    let seconds = |counter: &AtomicU64| counter.load(Relaxed) as f64 / 1e6;
    for (name, help, value) in [
        (
            "profiles_accepted_total",
            "Profiles acknowledged.",
            load(&metrics.profiles),
        ),
        (
            "samples_accepted_total",
            "Samples acknowledged.",
            load(&metrics.samples),
        ),
        (
            "received_bytes_total",
            "Bytes of pushed bodies.",
            load(&metrics.received_bytes),
        ),
        (
            "duplicates_total",
            "Pushes that were counted before.",
            load(&metrics.duplicates),
        ),
        (
            "segments_written_total",
            "Segment files written.",
            load(&metrics.segments_written),
        ),
        (
            "segment_bytes_total",
            "Bytes of written segments.",
            load(&metrics.segment_bytes),
        ),
        (
            "put_seconds_total",
            "Time in durable writes, fsync included.",
            seconds(&metrics.put_micros),
        ),
        (
            "write_errors_total",
            "Segments that could not be written.",
            load(&metrics.write_errors),
        ),
        (
            "damaged_segments_total",
            "Segments found damaged.",
            load(&metrics.damaged_segments),
        ),
        (
            "merges_total",
            "Merges of small segments.",
            load(&metrics.merges),
        ),
        (
            "merges_from_memory_total",
            "Merges of segments whose profiles were still in memory.",
            load(&metrics.merges_from_memory),
        ),
        (
            "expired_segments_total",
            "Segments deleted by retention.",
            load(&metrics.expired_segments),
        ),
        ("queries_total", "Queries answered.", load(&metrics.queries)),
        (
            "query_seconds_total",
            "Time in queries.",
            seconds(&metrics.query_micros),
        ),
    ] {
        text.value("counter", &format!("pilotlight_{name}"), help, value);
    }
    let reasons = metrics.reasons();
    for (kind, help) in [
        (
            "dropped",
            "Samples and frames left out of accepted profiles.",
        ),
        ("repaired", "Things repaired in accepted profiles."),
        ("refused", "Pushes refused."),
        (
            "limited",
            "Pushes refused by a limit of ingest; also in refused.",
        ),
        (
            "thinned",
            "Profiles of which a sampling rule kept the totals only.",
        ),
    ] {
        let of_kind = reasons.iter().filter(|((of, _), _)| *of == kind);
        let values: Vec<(&str, u64)> = of_kind.map(|((_, reason), n)| (*reason, *n)).collect();
        text.labelled(&format!("pilotlight_{kind}_total"), help, "reason", &values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_several_tenants_are_one_text() {
        let text = |n: u32| {
            format!(
                "# HELP a A.\n# TYPE a gauge\na {n}\n# HELP b B.\n# TYPE b counter\nb{{r=\"x\"}} {n}\n"
            )
        };
        let merged = of_tenants(&[("default", text(1)), ("t", text(2))]);
        let expected = "# HELP a A.\n# TYPE a gauge\na{tenant=\"default\"} 1\na{tenant=\"t\"} 2\n\
             # HELP b B.\n# TYPE b counter\nb{tenant=\"default\",r=\"x\"} 1\nb{tenant=\"t\",r=\"x\"} 2\n";
        assert_eq!(merged, expected);
    }
}
