//! A process profiled from inside and by the host agent counts once.
//!
//! The rule, as `docs/api.md` tells it to senders: of one profile type, a profile of the agent
//! (`source="agent"`) is left out where it overlaps in time with one from inside of the same process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::engine::{Cancel, Coverage, Engine, QueryError, Selection};
use super::touched::Touched;
use crate::segment::{Labels, service_of};

/// The label that says who took a profile.
pub const SOURCE_LABEL: &str = "source";
/// Its value for the host agent's.
const AGENT: &str = "agent";

/// Labels that tell processes of one service apart, where both series have them.
const IDENTITY: [&str; 7] = [
    "service_instance_id",
    "namespace",
    "pod",
    "container",
    "host",
    "node",
    "pid",
];

/// Times, as sorted (first, first that is not) without overlap.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<(i64, i64)>);

impl Spans {
    fn new(mut spans: Vec<(i64, i64)>) -> Self {
        spans.sort_unstable();
        let mut out: Vec<(i64, i64)> = Vec::new();
        for (from, until) in spans {
            match out.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => out.push((from, until)),
            }
        }
        Self(out)
    }

    /// Whether any of `length_ns` (at least 1) from `from_ns` on is in a span.
    pub fn overlap(&self, from_ns: i64, length_ns: i64) -> bool {
        let until_ns = from_ns.saturating_add(length_ns.max(1));
        let at = self.0.partition_point(|&(_, until)| until <= from_ns);
        self.0.get(at).is_some_and(|&(from, _)| from < until_ns)
    }
}

fn value<'a>(labels: &'a Labels, name: &str) -> Option<&'a str> {
    let found = labels.iter().find(|(label, _)| label == name);
    found.map(|(_, value)| value.as_str())
}

fn of_agent(labels: &Labels) -> bool {
    value(labels, SOURCE_LABEL) == Some(AGENT)
}

/// Whether two series of one service may be of one process.
fn may_be_one(a: &Labels, b: &Labels) -> bool {
    IDENTITY.iter().all(|name| {
        let (a, b) = (value(a, name), value(b, name));
        a.is_none() || b.is_none() || a == b
    })
}

/// For each series of an agent, the series from inside that may be of its process.
type Pairs<'a> = HashMap<&'a Labels, Vec<&'a Labels>>;

fn pairs(touched: &[Touched]) -> Pairs<'_> {
    // By service: series of the agent, series from inside.
    let mut services: BTreeMap<&str, [Vec<&Labels>; 2]> = BTreeMap::new();
    for part in touched {
        let entries = part.header().series.iter().zip(&part.series);
        for (entry, _) in entries.filter(|(_, selected)| **selected) {
            let sides = services.entry(service_of(&entry.labels)).or_default();
            sides[usize::from(!of_agent(&entry.labels))].push(&entry.labels);
        }
    }
    let mut pairs = Pairs::new();
    for [agent, inside] in services.into_values() {
        if agent.is_empty() || inside.is_empty() {
            continue;
        }
        for one in agent {
            if pairs.contains_key(one) {
                continue;
            }
            let mut same: Vec<&Labels> = inside
                .iter()
                .copied()
                .filter(|b| may_be_one(one, b))
                .collect();
            same.sort_unstable();
            same.dedup();
            if !same.is_empty() {
                pairs.insert(one, same);
            }
        }
    }
    pairs
}

impl Engine {
    /// The parts that a selection touches, each profile of them counting a process once.
    pub(super) fn counted_once(
        &self,
        selection: &Selection,
        rolled: bool,
        coverage: &mut Coverage,
        cancel: &Cancel,
    ) -> Result<Vec<Touched>, QueryError> {
        let mut touched = self.touched(selection, rolled, coverage);
        if pairs(&touched).is_empty() {
            return Ok(touched);
        }
        // A step of a roll-up is too coarse to say which of its profiles overlap.
        if rolled {
            // The same roll-ups are blind to the selector: noted above.
            touched = self.touched(selection, false, &mut Coverage::default());
        }
        let covered = self.covered(&touched, cancel)?;
        for (part, covered) in touched.iter_mut().zip(covered) {
            part.covered = covered;
        }
        Ok(touched)
    }

    /// For each part, what [`Touched::covered`] is to hold.
    fn covered(
        &self,
        touched: &[Touched],
        cancel: &Cancel,
    ) -> Result<Vec<Vec<Option<Arc<Spans>>>>, QueryError> {
        let pairs = pairs(touched);
        let mut times: HashMap<&Labels, Vec<(i64, i64)>> = HashMap::new();
        for inside in pairs.values().flatten() {
            times.entry(inside).or_default();
        }
        for part in touched {
            cancel.check()?;
            let series = &part.header().series;
            if !series.iter().any(|entry| times.contains_key(&entry.labels)) {
                continue;
            }
            // What cannot be read here is named when its values are read.
            let _ = self.rows_of(part, |rows, _, _| {
                for row in rows {
                    if let Some(times) = times.get_mut(&series[row.series as usize].labels) {
                        let length_ns = part.length_ns(row.duration_ns).max(1);
                        times.push((row.time_ns, row.time_ns.saturating_add(length_ns)));
                    }
                }
            });
        }
        let union = |inside: &Vec<&Labels>| {
            let spans = inside.iter().filter_map(|labels| times.get(labels));
            Arc::new(Spans::new(spans.flatten().copied().collect()))
        };
        let spans: HashMap<&Labels, Arc<Spans>> = pairs
            .iter()
            .map(|(agent, inside)| (*agent, union(inside)))
            .collect();
        let of = |part: &Touched| {
            let series = part.header().series.iter();
            series
                .map(|entry| spans.get(&entry.labels).cloned())
                .collect()
        };
        Ok(touched.iter().map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn spans_overlap_where_they_share_a_nanosecond() {
        let spans = Spans::new(vec![(10, 20), (40, 50), (15, 25), (25, 30)]);
        assert_eq!(spans.0, [(10, 30), (40, 50)]);
        for (from, length, expected) in [
            (0, 10, false),
            (0, 11, true),
            (29, 1, true),
            (30, 10, false),
            (30, 11, true),
            (49, 0, true),
            (50, 9, false),
            (12, i64::MAX, true),
        ] {
            assert_eq!(spans.overlap(from, length), expected, "{from} {length}");
        }
    }

    #[test]
    fn a_label_that_both_have_tells_processes_apart() {
        let one = labels(&[("pod", "a"), ("host", "h")]);
        for (other, same) in [
            (&[][..], true),
            (&[("pod", "a")], true),
            (&[("pod", "b")], false),
            (&[("pod", "a"), ("host", "g")], false),
            (&[("version", "2")], true),
        ] {
            assert_eq!(may_be_one(&one, &labels(other)), same, "{other:?}");
        }
    }
}
