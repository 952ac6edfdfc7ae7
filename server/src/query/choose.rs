//! Which blocks answer a window: roll-ups where their steps lie in it whole, samples at its ends.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::selector::Selector;
use crate::segment::Labels;
use crate::store::catalog::Segment;

/// A segment or block, and the times of the profiles that it is asked for.
#[derive(Debug, Clone)]
pub struct View {
    /// What is read.
    pub segment: Arc<Segment>,
    /// First time.
    pub from_ns: i64,
    /// First time that is too late.
    pub until_ns: i64,
    /// Times that a roll-up answers, as (first, first that is not).
    pub hole: Option<(i64, i64)>,
    /// The series that it is asked for; `None` = all.
    pub only: Option<Arc<Only>>,
}

/// Some series of a family.
#[derive(Debug)]
pub struct Only {
    /// Labels that its roll-ups lack.
    dropped: Vec<String>,
    /// Without these.
    series: HashSet<Labels>,
}

/// A roll-up is read for at least so many of its steps: for fewer, reading a second block and its
/// symbols costs more than it spares.
const MIN_STEPS: i64 = 6;

impl View {
    /// Whether a series is asked for.
    pub fn admits(&self, labels: &Labels) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.series.contains(&without(labels, &only.dropped)))
    }

    /// Whether a profile of this time is asked for.
    #[inline]
    pub fn holds(&self, time_ns: i64) -> bool {
        let inside = time_ns >= self.from_ns && time_ns < self.until_ns;
        inside && !matches!(self.hole, Some((from, until)) if time_ns >= from && time_ns < until)
    }

    /// Whether a series with profiles from `first_ns` to `last_ns` may have one that is asked for.
    pub fn touches(&self, first_ns: i64, last_ns: i64) -> bool {
        let inside = first_ns < self.until_ns && last_ns >= self.from_ns;
        inside && !matches!(self.hole, Some((from, until)) if first_ns >= from && last_ns < until)
    }
}

/// The whole steps of a window.
fn whole_steps(from_ns: i64, until_ns: i64, step_ns: i64) -> Option<(i64, i64)> {
    let from = from_ns.checked_add(step_ns - 1)?.div_euclid(step_ns) * step_ns;
    let until = until_ns.div_euclid(step_ns) * step_ns;
    (until.saturating_sub(from) >= MIN_STEPS.saturating_mul(step_ns)).then_some((from, until))
}

/// The step of a roll-up; 0 = samples as pushed.
fn step_of(segment: &Segment) -> i64 {
    segment.block.as_ref().map_or(0, |files| files.step_ns)
}

/// Whether a roll-up knows nothing of a label that the question names.
fn is_blind(segment: &Segment, selector: &Selector) -> bool {
    let files = segment.block.as_ref();
    files.is_some_and(|files| selector.names_any(&files.dropped))
}

/// What to read, and what is left out.
#[derive(Debug, Default)]
pub struct Chosen {
    /// What is read.
    pub views: Vec<View>,
    /// Roll-ups without a label that the question names, whose block is gone.
    pub blind: Vec<Arc<Segment>>,
}

/// What to read of `segments` for a window, so that every profile counts once. Without `rolled`
/// each block answers with its finest form.
pub fn views(
    segments: Vec<Arc<Segment>>,
    (from_ns, until_ns): (i64, i64),
    selector: &Selector,
    rolled: bool,
) -> Chosen {
    // A block and its roll-ups, by the block's name. Where retention took the block, its finest
    // roll-up stands in its place.
    let mut families: BTreeMap<String, Vec<Arc<Segment>>> = BTreeMap::new();
    for segment in segments {
        let of = segment.block.as_ref().map(|files| &files.of);
        let name = of.filter(|of| !of.is_empty()).unwrap_or(&segment.name);
        families.entry(name.clone()).or_default().push(segment);
    }
    let mut chosen = Chosen::default();
    for family in families.into_values() {
        let (blind, mut family) = family
            .into_iter()
            .partition::<Vec<_>, _>(|segment| is_blind(segment, selector));
        if family.is_empty() {
            chosen.blind.extend(blind.into_iter().take(1));
        }
        family.sort_by_key(|segment| step_of(segment));
        for (members, only) in by_series(family) {
            of_family(
                members,
                only.as_ref(),
                from_ns,
                until_ns,
                rolled,
                &mut chosen.views,
            );
        }
    }
    chosen
}

/// A block and its roll-ups, the finest first.
type Family = Vec<Arc<Segment>>;

/// Retention may have taken series out of some of a family. Its members in groups that hold the same
/// ones whole, with these where it is not all.
fn by_series(family: Vec<Arc<Segment>>) -> Vec<(Family, Option<Arc<Only>>)> {
    let untouched = |finest: &Arc<Segment>| {
        let files = finest.block.as_ref();
        step_of(finest) == 0 && files.is_none_or(|files| files.of.is_empty())
    };
    if family.len() <= 1 || family.first().is_some_and(untouched) {
        return vec![(family, None)];
    }
    let dropped: BTreeSet<&String> = family
        .iter()
        .filter_map(|segment| segment.block.as_ref())
        .flat_map(|files| &files.dropped)
        .collect();
    let dropped: Vec<String> = dropped.into_iter().cloned().collect();
    // A roll-up's series may be the sum of several: who has less profiles of it than another has
    // lost some.
    let mut profiles: BTreeMap<Labels, Vec<u64>> = BTreeMap::new();
    for (at, segment) in family.iter().enumerate() {
        for entry in segment.header.parts.iter().flat_map(|part| &part.series) {
            let held = profiles.entry(without(&entry.labels, &dropped));
            held.or_insert_with(|| vec![0; family.len()])[at] += entry.profiles;
        }
    }
    let mut groups: BTreeMap<Vec<bool>, HashSet<Labels>> = BTreeMap::new();
    for (labels, held) in profiles {
        let most = held.iter().max().copied();
        let whole = held.iter().map(|&count| Some(count) == most).collect();
        groups.entry(whole).or_default().insert(labels);
    }
    if groups.keys().flatten().all(|whole| *whole) {
        return vec![(family, None)];
    }
    let groups = groups.into_iter().map(|(whole, series)| {
        let members = family.iter().zip(&whole).filter(|(_, whole)| **whole);
        let members = members.map(|(segment, _)| segment.clone()).collect();
        let dropped = dropped.clone();
        (members, Some(Arc::new(Only { dropped, series })))
    });
    groups.collect()
}

fn without(labels: &Labels, dropped: &[String]) -> Labels {
    let kept = labels.iter().filter(|(name, _)| !dropped.contains(name));
    kept.cloned().collect()
}

/// The finest member answers, and coarser ones where their steps lie in the window whole.
fn of_family(
    family: Vec<Arc<Segment>>,
    only: Option<&Arc<Only>>,
    from_ns: i64,
    until_ns: i64,
    rolled: bool,
    views: &mut Vec<View>,
) {
    let mut last: Option<View> = None;
    for segment in family {
        let window = match &last {
            None => Some((from_ns, until_ns)),
            Some(_) if !rolled => None,
            Some(_) => whole_steps(from_ns, until_ns, step_of(&segment)),
        };
        let Some((from_ns, until_ns)) = window else {
            continue;
        };
        if let Some(mut finer) = last.take() {
            finer.hole = window;
            views.push(finer);
        }
        last = Some(View {
            segment,
            from_ns,
            until_ns,
            hole: None,
            only: only.cloned(),
        });
    }
    views.extend(last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Files;
    use crate::segment::Header;

    fn block(name: &str, step_ns: i64, of: &str) -> Arc<Segment> {
        without(name, step_ns, of, &[])
    }

    fn without(name: &str, step_ns: i64, of: &str, dropped: &[&str]) -> Arc<Segment> {
        Arc::new(Segment {
            name: name.to_owned(),
            header: Header {
                level: 3,
                created_ns: 0,
                replaces: Vec::new(),
                parts: Vec::new(),
                file_len: 0,
            },
            block: Some(Files {
                step_ns,
                of: of.to_owned(),
                dropped: dropped.iter().map(|&name| name.to_owned()).collect(),
                ..Files::default()
            }),
        })
    }

    #[test]
    fn each_time_is_answered_by_one_block_of_a_family() {
        let all = [
            block("b", 0, ""),
            block("r10", 10, "b"),
            block("r60", 60, "b"),
        ];
        for (from, until) in [(0, 1000), (7, 983), (60, 420), (61, 419), (5, 64), (3, 9)] {
            for family in [&all[..], &all[1..], &all[..2], &all[2..]] {
                for rolled in [false, true] {
                    let all = Selector::default();
                    let views = views(family.to_vec(), (from, until), &all, rolled).views;
                    for time in -20..1100 {
                        let count = views.iter().filter(|view| view.holds(time)).count();
                        let inside = (from..until).contains(&time);
                        assert_eq!(count, usize::from(inside), "{from} {until} {time}");
                    }
                }
            }
        }
        let names = |from, until| -> Vec<String> {
            let views = views(all.to_vec(), (from, until), &Selector::default(), true).views;
            views.iter().map(|view| view.segment.name.clone()).collect()
        };
        assert_eq!(names(0, 1000), ["b", "r10", "r60"]);
        assert_eq!(names(7, 80), ["b", "r10"], "no six whole steps of 60");
        assert_eq!(names(3, 50), ["b"]);
    }

    #[test]
    fn a_question_that_names_a_dropped_label_reads_samples_or_says_what_is_missing() {
        let all = [
            block("b", 0, ""),
            without("r10", 10, "b", &["pod"]),
            without("r60", 60, "b", &["pod"]),
        ];
        let ask = |family: &[Arc<Segment>], selector: &str| {
            let selector = Selector::parse(selector).unwrap();
            let chosen = views(family.to_vec(), (0, 1000), &selector, true);
            let read = chosen.views.iter().map(|view| view.segment.name.clone());
            (read.collect::<Vec<_>>(), chosen.blind.len())
        };
        let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        assert_eq!(ask(&all, "{pod=\"a\"}"), (names(&["b"]), 0));
        assert_eq!(ask(&all, "{pod!=\"a\"}"), (names(&["b"]), 0));
        assert_eq!(
            ask(&all, "{service_name=\"a\"}"),
            (names(&["b", "r10", "r60"]), 0)
        );
        assert_eq!(ask(&all[1..], "{pod=\"a\"}"), (names(&[]), 1));
        assert_eq!(ask(&all[1..], "{}"), (names(&["r10", "r60"]), 0));
    }
}
