//! Label names and values, from the headers alone.

use std::collections::{BTreeSet, HashSet};

use super::engine::Engine;
use super::selector::Selector;
use crate::segment::Labels;
use crate::store::catalog::Segment;

impl Engine {
    fn each_series(
        &self,
        type_id: Option<&str>,
        selector: &Selector,
        window: (i64, i64),
        mut visit: impl FnMut(&Labels),
    ) {
        let segments = self.catalog.select(|_| true);
        let names: HashSet<&str> = segments.iter().map(|s| s.name.as_str()).collect();
        // The series of a roll-up are those of its block, perhaps without some labels.
        let repeats = |segment: &Segment| {
            let files = segment.block.as_ref();
            files.is_some_and(|files| names.contains(files.of.as_str()))
        };
        for segment in segments.iter().filter(|segment| !repeats(segment)) {
            for part in &segment.header.parts {
                let wanted = |set: u32| {
                    let set = &part.type_sets[set as usize];
                    let mut columns = 0..set.values.len();
                    type_id.is_none_or(|id| columns.any(|column| set.id(column) == id))
                };
                for entry in &part.series {
                    if entry.min_time_ns < window.1
                        && entry.max_time_ns >= window.0
                        && selector.matches(&entry.labels)
                        && entry.type_sets.iter().any(|&set| wanted(set))
                    {
                        visit(&entry.labels);
                    }
                }
            }
        }
    }

    /// Names of the labels of all selected series, sorted.
    pub fn label_names(
        &self,
        type_id: Option<&str>,
        selector: &Selector,
        window: (i64, i64),
    ) -> Vec<String> {
        let mut names = BTreeSet::new();
        self.each_series(type_id, selector, window, |labels| {
            for (name, _) in labels {
                if !names.contains(name) {
                    names.insert(name.clone());
                }
            }
        });
        names.into_iter().collect()
    }

    /// Values of one label over all selected series, sorted.
    pub fn label_values(
        &self,
        name: &str,
        type_id: Option<&str>,
        selector: &Selector,
        window: (i64, i64),
    ) -> Vec<String> {
        let mut values = BTreeSet::new();
        self.each_series(type_id, selector, window, |labels| {
            let found = labels.iter().find(|(label, _)| label == name);
            if let Some((_, value)) = found
                && !values.contains(value)
            {
                values.insert(value.clone());
            }
        });
        values.into_iter().collect()
    }

    /// Distinct label sets of all selected series, sorted.
    pub fn label_sets(
        &self,
        type_id: Option<&str>,
        selector: &Selector,
        window: (i64, i64),
    ) -> BTreeSet<Labels> {
        let mut sets = BTreeSet::new();
        self.each_series(type_id, selector, window, |labels| {
            if !sets.contains(labels) {
                sets.insert(labels.clone());
            }
        });
        sets
    }

    /// Times of the first and the last profile, Unix nanoseconds; `None` when there is none.
    pub fn times(&self) -> Option<(i64, i64)> {
        let segments = self.catalog.select(|_| true);
        let series = segments
            .iter()
            .flat_map(|segment| &segment.header.parts)
            .flat_map(|part| &part.series);
        series
            .map(|entry| (entry.min_time_ns, entry.max_time_ns))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}
