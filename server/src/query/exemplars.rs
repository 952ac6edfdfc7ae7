//! Samples that know their span: which requests a selection's value came from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use serde::Serialize;

use super::engine::{Cancel, Coverage, Engine, QueryError, Selection};
use super::merge::leaf_name;
use super::rows::{PerRow, RowSamples};
use super::sample_labels::labels_of;
use crate::segment::{Labels, PartHeader, Symbols};

/// Labels by which a sample names its request.
const SPAN_LABELS: [&str; 4] = ["span_id", "trace_id", "span id", "trace id"];

/// A sample with a span.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Exemplar {
    /// In the type's unit.
    pub value: i64,
    /// Start of its profile, Unix milliseconds.
    pub time_ms: i64,
    /// Labels of the sample, `span_id` and `trace_id` among them.
    pub labels: BTreeMap<String, String>,
    /// Labels of the series.
    pub series: BTreeMap<String, String>,
    /// Function that the stack ends in.
    pub function: String,
}

struct Largest {
    limit: usize,
    spans: Vec<bool>,
    heap: BinaryHeap<Reverse<Exemplar>>,
}

fn map(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().cloned().collect()
}

impl Largest {
    fn offer(&mut self, value: i64, make: impl FnOnce() -> Exemplar) {
        let full = self.heap.len() >= self.limit;
        if full
            && self
                .heap
                .peek()
                .is_some_and(|Reverse(least)| least.value > value)
        {
            return;
        }
        self.heap.push(Reverse(make()));
        if self.heap.len() > self.limit {
            self.heap.pop();
        }
    }
}

impl PerRow for Largest {
    fn part(&mut self, _: &PartHeader, symbols: &Symbols) {
        let has_span = |set: u32| {
            let keys = symbols.label_set(set).iter();
            let mut keys = keys.map(|label| symbols.strings.get(label.key));
            keys.any(|key| SPAN_LABELS.iter().any(|span| span.as_bytes() == key))
        };
        let sets = 0..symbols.label_set_ends.len() as u32;
        self.spans = sets.map(has_span).collect();
    }

    fn row(&mut self, header: &PartHeader, symbols: &Symbols, samples: &RowSamples) {
        let nodes = samples.nodes.iter().zip(samples.values);
        for ((&node, &value), &set) in nodes.zip(samples.sets) {
            if value > 0 && self.spans[set as usize] {
                self.offer(value, || Exemplar {
                    value,
                    time_ms: samples.row.time_ns / 1_000_000,
                    labels: map(&labels_of(symbols, set)),
                    series: map(&header.series[samples.row.series as usize].labels),
                    function: leaf_name(symbols, node),
                });
            }
        }
    }

    fn join(&mut self, other: Self) {
        for Reverse(exemplar) in other.heap {
            self.offer(exemplar.value, || exemplar);
        }
    }

    fn heap_bytes(&self) -> usize {
        self.heap.len() * 1024
    }
}

impl Engine {
    /// The `limit` largest samples that carry a span, largest first.
    ///
    /// # Errors
    /// When the scan is refused.
    pub fn exemplars(
        &self,
        selection: &Selection,
        limit: usize,
        cancel: &Cancel,
    ) -> Result<(Vec<Exemplar>, Coverage), QueryError> {
        let empty = || Largest {
            limit,
            spans: Vec::new(),
            heap: BinaryHeap::new(),
        };
        let (largest, coverage) = self.each_row(selection, cancel, empty)?;
        let sorted = largest.heap.into_sorted_vec();
        Ok((
            sorted.into_iter().map(|Reverse(one)| one).collect(),
            coverage,
        ))
    }
}
