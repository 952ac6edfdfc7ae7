//! What is counted until a sample is taken: time on a CPU, or an event of the kernel or of the hardware.

use crate::perf;
use std::io;

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const SECOND_NS: u64 = 1_000_000_000;

/// One kind of event, as perf knows it and as its profiles are called.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    word: &'static str,
    /// `type` and `config` of `perf_event_attr`.
    perf: (u32, u64),
    /// Name of the profile, kind and unit of its values.
    profile: &'static str,
    value: &'static str,
    unit: &'static str,
    /// Events a sample, where none is asked for; of clocks the frequency decides. Prime numbers, so that loops of the
    /// program do not fall in step with it.
    period: u64,
}

const fn clock(word: &'static str, config: u64) -> Kind {
    Kind {
        word,
        perf: (SOFTWARE, config),
        profile: "process_cpu",
        value: "cpu",
        unit: "nanoseconds",
        period: 0,
    }
}

const fn counted(
    word: &'static str,
    perf: (u32, u64),
    profile: &'static str,
    value: &'static str,
    period: u64,
) -> Kind {
    Kind {
        word,
        perf,
        profile,
        value,
        unit: "count",
        period,
    }
}

/// `enum perf_sw_ids` and `enum perf_hw_id` of `include/uapi/linux/perf_event.h`. The first is the default.
static KINDS: [Kind; 14] = [
    clock("cpu-clock", 0),
    clock("task-clock", 1),
    counted("page-faults", (SOFTWARE, 2), "page_faults", "faults", 101),
    counted(
        "context-switches",
        (SOFTWARE, 3),
        "context_switches",
        "switches",
        101,
    ),
    counted(
        "cpu-migrations",
        (SOFTWARE, 4),
        "cpu_migrations",
        "migrations",
        1,
    ),
    counted(
        "minor-faults",
        (SOFTWARE, 5),
        "minor_faults",
        "minor_faults",
        101,
    ),
    counted(
        "major-faults",
        (SOFTWARE, 6),
        "major_faults",
        "major_faults",
        1,
    ),
    counted("cycles", (HARDWARE, 0), "cpu_cycles", "cycles", 100_000_007),
    counted(
        "instructions",
        (HARDWARE, 1),
        "instructions",
        "instructions",
        100_000_007,
    ),
    counted(
        "cache-references",
        (HARDWARE, 2),
        "cache_references",
        "references",
        10_000_019,
    ),
    counted(
        "cache-misses",
        (HARDWARE, 3),
        "cache_misses",
        "misses",
        1_000_003,
    ),
    counted(
        "branches",
        (HARDWARE, 4),
        "branches",
        "branches",
        10_000_019,
    ),
    counted(
        "branch-misses",
        (HARDWARE, 5),
        "branch_misses",
        "branch_misses",
        1_000_003,
    ),
    counted(
        "ref-cycles",
        (HARDWARE, 9),
        "ref_cycles",
        "ref_cycles",
        100_000_007,
    ),
];

/// What is sampled: the CPU's clock, or every so many of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    kind: &'static Kind,
    period: Option<u64>,
}

impl Default for Event {
    /// The CPU's clock.
    fn default() -> Event {
        Event {
            kind: &KINDS[0],
            period: None,
        }
    }
}

impl Event {
    /// From `cycles`, `cycles@1000003` (every so many), or `cpu-clock@97hz` (so many samples a second; clocks only).
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> Result<Event, String> {
        let (word, every) = match text.split_once('@') {
            Some((word, every)) => (word, Some(every)),
            None => (text, None),
        };
        let Some(kind) = KINDS.iter().find(|kind| kind.word == word) else {
            let words: Vec<&str> = KINDS.iter().map(|kind| kind.word).collect();
            return Err(format!("there is no event {word:?}: {}", words.join(", ")));
        };
        let period = every.map(|every| period(kind, every)).transpose()?;
        Ok(Event { kind, period })
    }

    /// As it is written, without its period.
    pub fn word(self) -> &'static str {
        self.kind.word
    }

    /// Its samples stand for CPU time.
    pub fn is_clock(self) -> bool {
        self.kind.unit == "nanoseconds"
    }

    /// Events a sample, or nanoseconds; of a clock without a period of its own by `frequency_hz`, 1–997.
    pub fn period(self, frequency_hz: u32) -> u64 {
        match self.period {
            Some(period) => period,
            None if self.is_clock() => SECOND_NS / u64::from(frequency_hz.clamp(1, 997)),
            None => self.kind.period,
        }
    }

    /// `type` and `config` of `perf_event_attr`.
    pub(crate) fn perf(self) -> (u32, u64) {
        self.kind.perf
    }

    /// The name of a profile of it, such as `page_faults`.
    pub(crate) fn profile(self) -> &'static str {
        self.kind.profile
    }

    /// Kind and unit of its values, such as `faults` and `count`.
    pub(crate) fn value(self) -> (&'static str, &'static str) {
        (self.kind.value, self.kind.unit)
    }

    /// Why this machine has no such event; `None` when it has, or does not say.
    pub fn missing(self) -> Option<String> {
        let error = perf::try_event(self).err()?;
        why_missing(&error)
    }

    /// How often, for people: `19 times a second of each CPU`, `once in 101 page-faults`.
    pub fn how_often(self, frequency_hz: u32) -> String {
        let period = self.period(frequency_hz);
        match self.is_clock() {
            true => format!("{} times a second of each CPU", SECOND_NS / period.max(1)),
            false => format!("once in {period} {}", self.kind.word),
        }
    }
}

/// A number of events, or `97hz`.
fn period(kind: &Kind, text: &str) -> Result<u64, String> {
    let is_clock = kind.unit == "nanoseconds";
    let wrong = || match is_clock {
        true => format!("write {}@97hz, 1 to 997", kind.word),
        false => format!(
            "write {}@{}: one sample in so many; a frequency is for clocks, whose samples weigh the same at any",
            kind.word,
            kind.period.max(101)
        ),
    };
    match (text.strip_suffix("hz"), is_clock) {
        (Some(hz), true) => match hz.parse() {
            Ok(hz @ 1..=997) => Ok(SECOND_NS / hz),
            _ => Err(wrong()),
        },
        (None, false) => match text.parse() {
            Ok(period @ 1..=1_000_000_000_000) => Ok(period),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// Other refusals are of permissions, and the same for every event.
fn why_missing(error: &io::Error) -> Option<String> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Some(format!(
            "this machine does not count it ({error}): virtual machines seldom have the processor's counters"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_a_period_of_their_own_and_clocks_a_frequency() {
        let period = |text: &str| Event::parse(text).unwrap().period(19);
        assert_eq!(period("cpu-clock"), 52_631_578);
        assert_eq!(period("task-clock@97hz"), 10_309_278);
        assert_eq!(period("page-faults"), 101);
        assert_eq!(period("page-faults@1"), 1);
        assert_eq!(period("cycles@1000003"), 1_000_003);
        assert_eq!(Event::default(), Event::parse("cpu-clock").unwrap());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write() {
        for (text, says) in [
            ("tea", "there is no event \"tea\": cpu-clock, task-clock"),
            ("", "there is no event"),
            ("cycles@97hz", "write cycles@100000007: one sample in so"),
            ("cycles@0", "write cycles@100000007"),
            ("page-faults@", "write page-faults@101"),
            ("cpu-clock@97", "write cpu-clock@97hz"),
            ("cpu-clock@5000hz", "1 to 997"),
        ] {
            let error = Event::parse(text).unwrap_err();
            assert!(error.starts_with(says) || error.contains(says), "{error}");
        }
    }

    #[test]
    fn only_a_machine_without_the_event_lacks_it() {
        let why = |code| why_missing(&io::Error::from_raw_os_error(code));
        assert!(why(libc::ENOENT).is_some() && why(libc::EOPNOTSUPP).is_some());
        assert_eq!((why(libc::EACCES), why(libc::EMFILE)), (None, None));
    }

    #[test]
    fn names_are_not_shared_between_events() {
        for (index, kind) in KINDS.iter().enumerate() {
            let same = |other: &&Kind| other.value == kind.value || other.word == kind.word;
            let others: Vec<_> = KINDS[index + 1..].iter().filter(same).collect();
            assert!(others.is_empty() || kind.word == "cpu-clock", "{others:?}");
        }
    }

    #[test]
    fn how_often_is_told() {
        let text = |text: &str| Event::parse(text).unwrap().how_often(19);
        assert_eq!(text("cpu-clock"), "19 times a second of each CPU");
        assert_eq!(text("task-clock@97hz"), "97 times a second of each CPU");
        assert_eq!(text("page-faults@7"), "once in 7 page-faults");
    }
}
