//! What was sampled, lost and sent, and what the agent itself takes: Prometheus' text format.

use crate::files::TableCounts;
use crate::{Counters, Event, Instead, Losses, UploadCounters};
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// What is known of the agent at one moment.
pub(crate) struct State<'a> {
    pub sampler: &'static str,
    pub event: Event,
    /// What was asked for instead of it.
    pub instead: Option<&'a Instead>,
    pub counters: &'a Counters,
    pub uploads: &'a UploadCounters,
    /// Processes that are remembered.
    pub processes: usize,
    pub tables: TableCounts,
}

/// The whole text.
pub(crate) fn text(state: &State<'_>) -> String {
    let mut out = Text(String::new());
    samples(&mut out, state.counters);
    verified(&mut out, state.counters);
    pushes(&mut out, state.counters);
    uploads(&mut out, state.uploads);
    let sampler = [(format!("{{sampler=\"{}\"}}", state.sampler), 1)];
    out.gauge("pilotlight_agent_info", "How it samples.", &sampler);
    event(&mut out, state);
    tables(&mut out, &state.tables);
    let processes = "Processes that are remembered.";
    out.one("pilotlight_agent_processes", processes, state.processes);
    let help = "System calls beyond those that the agent needs, by number; each got EPERM.";
    let label = |(call, n)| (format!("{{call=\"{call}\"}}"), n);
    let refused: Vec<_> = crate::confine::refused().into_iter().map(label).collect();
    out.family(
        "pilotlight_agent_refused_calls_total",
        help,
        "counter",
        &refused,
    );
    costs(&mut out);
    out.0
}

/// What is sampled, and that another event was wanted.
fn event(out: &mut Text, state: &State<'_>) {
    let wanted = state
        .instead
        .map_or(state.event, |instead| instead.wanted)
        .word();
    let sampled = state.event.word();
    let row = format!("{{event=\"{sampled}\",wanted=\"{wanted}\"}}");
    let help = "What is sampled, and what was to be.";
    out.gauge("pilotlight_agent_event_info", help, &[(row, 1)]);
    let help = "1: this machine lacks the event that is wanted, and a clock is sampled instead.";
    let missing = u8::from(state.instead.is_some());
    out.one("pilotlight_agent_event_missing", help, missing);
}

fn samples(out: &mut Text, counters: &Counters) {
    let states = [
        ("exported", &counters.samples),
        ("left_to_sdk", &counters.left_to_sdk),
        ("dropped_by_rule", &counters.dropped_by_rule),
    ];
    let help = "Samples that were taken, by what became of them; those lost stand beside.";
    out.counter("pilotlight_agent_samples_total", help, "state", &states);
    let help = "Samples whose stack ended before its root.";
    let cut = number(&counters.cut_samples);
    out.total("pilotlight_agent_cut_samples_total", help, cut);
    let help = "Samples in code of an interpreter whose scripts are not seen.";
    let shallow = number(&counters.shallow_samples);
    out.total("pilotlight_agent_shallow_samples_total", help, shallow);
    let help = "Samples that were lost, by reason.";
    let losses = counters.losses();
    out.named(
        "pilotlight_agent_lost_samples_total",
        help,
        "reason",
        &losses,
    );
    let help = "What the sampler met on its way, by name; what of it is a loss stands there too.";
    let met = counters.met();
    out.named("pilotlight_agent_sampler_events_total", help, "event", &met);
}

/// Stacks that the kernel walked and that were walked again here.
fn verified(out: &mut Text, counters: &Counters) {
    let (all, different) = counters.verified();
    let help =
        "Samples whose stack was walked twice, in the kernel and by the agent, by what came of it.";
    let name = "pilotlight_agent_verified_samples_total";
    let outcomes = [("same", all - different), ("different", different)];
    out.counts(name, help, "outcome", &outcomes);
    if all > 0 {
        let help = "The share of these that differ, 0 to 1.";
        let share = different as f64 / all as f64;
        out.one("pilotlight_agent_verify_mismatch_ratio", help, share);
    }
}

fn pushes(out: &mut Text, counters: &Counters) {
    let states = [
        ("acknowledged", &counters.pushed),
        ("dropped", &counters.dropped),
        ("damaged", &counters.damaged),
    ];
    let help = "Profiles that were made, by what became of them.";
    out.counter("pilotlight_agent_profiles_total", help, "state", &states);
    let help = "Profiles that wait for the server.";
    out.one(
        "pilotlight_agent_waiting_profiles",
        help,
        number(&counters.waiting),
    );
    let help = "Bytes of profiles that wait for the server.";
    out.one(
        "pilotlight_agent_waiting_bytes",
        help,
        number(&counters.waiting_bytes),
    );
    let help = "The last push failed.";
    let failing = u8::from(counters.push_error().is_some());
    out.one("pilotlight_agent_push_failing", help, failing);
}

fn uploads(out: &mut Text, uploads: &UploadCounters) {
    let states = [
        ("sent", &uploads.sent),
        ("not_wanted", &uploads.not_wanted),
        ("failed", &uploads.failed),
    ];
    let help = "Files that name addresses, by what became of them.";
    out.counter("pilotlight_agent_files_total", help, "state", &states);
}

fn tables(out: &mut Text, counts: &TableCounts) {
    let help = "Bytes of unwind tables in memory.";
    out.one("pilotlight_agent_table_bytes", help, counts.bytes);
    let help = "Files whose unwind tables are in memory.";
    out.one("pilotlight_agent_files", help, counts.files);
    let help =
        "Unwind tables, by where they came from: compiled, or read from the folder of tables.";
    let name = "pilotlight_agent_tables_total";
    let from = [("built", counts.built), ("cached", counts.cached)];
    out.counts(name, help, "from", &from);
    let help = "Unwind tables in the folder of tables.";
    out.one("pilotlight_agent_kept_tables", help, counts.kept);
    let help = "Bytes of the files in the folder of tables.";
    out.one("pilotlight_agent_kept_table_bytes", help, counts.kept_bytes);
    let help = "What of the folder of tables went: damaged places, files of other versions, tables for want of room.";
    let gone = [
        ("damaged", counts.damaged),
        ("outdated", counts.outdated),
        ("evicted", counts.evicted),
    ];
    let name = "pilotlight_agent_kept_tables_gone_total";
    out.counts(name, help, "reason", &gone);
}

/// CPU time in user and kernel mode; what BPF takes counts for whom it interrupts.
fn costs(out: &mut Text) {
    // SAFETY: zeros are a value of this struct of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills the struct.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } == 0 {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
        let help = "CPU time of the agent's own threads.";
        out.total("process_cpu_seconds_total", help, cpu);
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    if let Some(pages) = pages {
        // SAFETY: no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
        let bytes = page.saturating_mul(pages);
        out.one("process_resident_memory_bytes", "Memory in use.", bytes);
    }
}

fn number(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}

struct Text(String);

impl Text {
    fn family<V: Display>(&mut self, name: &str, help: &str, kind: &str, rows: &[(String, V)]) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    fn gauge<V: Display>(&mut self, name: &str, help: &str, rows: &[(String, V)]) {
        self.family(name, help, "gauge", rows);
    }

    fn one(&mut self, name: &str, help: &str, value: impl Display) {
        self.gauge(name, help, &[(String::new(), value)]);
    }

    fn total(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, "counter", &[(String::new(), value)]);
    }

    fn named(&mut self, name: &str, help: &str, label: &str, counts: &Losses) {
        let rows: Vec<_> = counts.iter().collect();
        self.counts(name, help, label, &rows);
    }

    fn counter(&mut self, name: &str, help: &str, label: &str, rows: &[(&str, &AtomicU64)]) {
        let rows: Vec<_> = rows.iter().map(|(value, n)| (*value, number(n))).collect();
        self.counts(name, help, label, &rows);
    }

    fn counts(&mut self, name: &str, help: &str, label: &str, rows: &[(&str, u64)]) {
        let row = |(value, n): &(&str, u64)| (format!("{{{label}=\"{value}\"}}"), *n);
        let rows: Vec<_> = rows.iter().map(row).collect();
        self.family(name, help, "counter", &rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_stand_by_reason_and_all_families_have_a_type() {
        let counters = Counters::default();
        counters.samples.store(7, Ordering::Relaxed);
        let mut lost = Losses::default();
        lost.add("ring_full", 3);
        counters.lose(&lost);
        counters.lose(&lost);
        let mut met = Losses::default();
        met.add("verified_same", 3);
        met.add("verified_different", 1);
        counters.meet(&met);
        let text = text(&State {
            sampler: "perf",
            event: Event::default(),
            instead: Some(&Instead {
                wanted: Event::parse("cycles").unwrap(),
                reason: String::new(),
            }),
            counters: &counters,
            uploads: &UploadCounters::default(),
            processes: 2,
            tables: TableCounts {
                bytes: 4096,
                ..TableCounts::default()
            },
        });
        let lines = [
            "pilotlight_agent_samples_total{state=\"exported\"} 7",
            "pilotlight_agent_lost_samples_total{reason=\"ring_full\"} 6",
            "pilotlight_agent_info{sampler=\"perf\"} 1",
            "pilotlight_agent_event_info{event=\"cpu-clock\",wanted=\"cycles\"} 1",
            "pilotlight_agent_event_missing 1",
            "pilotlight_agent_table_bytes 4096",
            "pilotlight_agent_verified_samples_total{outcome=\"different\"} 1",
            "pilotlight_agent_verify_mismatch_ratio 0.25",
        ];
        for line in lines {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(text.contains("process_cpu_seconds_total "));
        let typed = |line: &&str| !line.starts_with('#');
        for line in text.lines().filter(typed) {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(text.contains(&format!("# TYPE {name} ")), "{line}");
        }
    }

    #[test]
    fn every_counter_is_exported() {
        let (counters, uploads) = (Counters::default(), UploadCounters::default());
        let UploadCounters {
            sent,
            not_wanted,
            failed,
        } = &uploads;
        let mut all = counters.all().to_vec();
        all.extend([
            ("sent", sent),
            ("not_wanted", not_wanted),
            ("failed", failed),
        ]);
        for (number, (_, counter)) in (7001..).zip(&all) {
            counter.store(number, Ordering::Relaxed);
        }
        let tables = TableCounts {
            files: 9001,
            bytes: 9002,
            built: 9003,
            cached: 9004,
            kept: 9005,
            kept_bytes: 9006,
            damaged: 9007,
            outdated: 9008,
            evicted: 9009,
        };
        let (mut lost, mut met) = (Losses::default(), Losses::default());
        lost.add("ring_full", 8001);
        met.add("raw_limit", 8002);
        counters.lose(&lost);
        counters.meet(&met);
        let text = text(&State {
            sampler: "bpf",
            event: Event::default(),
            instead: None,
            counters: &counters,
            uploads: &uploads,
            processes: 0,
            tables,
        });
        // The sum of losses stands there by reason.
        let single = all.iter().filter(|(name, _)| *name != "lost_samples");
        let wanted = single.map(|(name, counter)| (*name, number(counter)));
        let of_tables = (9001..=9009).map(|value| ("tables", value));
        let summed = [("losses", 8001), ("met", 8002)];
        for (name, value) in wanted.chain(summed).chain(of_tables) {
            let end = format!(" {value}");
            assert!(text.lines().any(|l| l.ends_with(&end)), "{name} in {text}");
        }
    }
}
