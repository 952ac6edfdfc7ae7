//! Which blocks answer a window: roll-ups where their steps lie in it whole, samples at its ends.

use std::collections::BTreeMap;
use std::sync::Arc;

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
}

/// A roll-up is read for at least so many of its steps: for fewer, reading a second block and its
/// symbols costs more than it spares.
const MIN_STEPS: i64 = 6;

impl View {
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

/// What to read of `segments` for a window, so that every profile counts once. Without `rolled`
/// each block answers with its finest form.
pub fn views(segments: Vec<Arc<Segment>>, from_ns: i64, until_ns: i64, rolled: bool) -> Vec<View> {
    // A block and its roll-ups, by the block's name. Where retention took the block, its finest
    // roll-up stands in its place.
    let mut families: BTreeMap<String, Vec<Arc<Segment>>> = BTreeMap::new();
    for segment in segments {
        let of = segment.block.as_ref().map(|files| &files.of);
        let name = of.filter(|of| !of.is_empty()).unwrap_or(&segment.name);
        families.entry(name.clone()).or_default().push(segment);
    }
    let mut views = Vec::new();
    for mut family in families.into_values() {
        family.sort_by_key(|segment| step_of(segment));
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
            });
        }
        views.extend(last);
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Files;
    use crate::segment::Header;

    fn block(name: &str, step_ns: i64, of: &str) -> Arc<Segment> {
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
                    let views = views(family.to_vec(), from, until, rolled);
                    for time in -20..1100 {
                        let count = views.iter().filter(|view| view.holds(time)).count();
                        let inside = (from..until).contains(&time);
                        assert_eq!(count, usize::from(inside), "{from} {until} {time}");
                    }
                }
            }
        }
        let names = |from, until| -> Vec<String> {
            let views = views(all.to_vec(), from, until, true);
            views.iter().map(|view| view.segment.name.clone()).collect()
        };
        assert_eq!(names(0, 1000), ["b", "r10", "r60"]);
        assert_eq!(names(7, 80), ["b", "r10"], "no six whole steps of 60");
        assert_eq!(names(3, 50), ["b"]);
    }
}
