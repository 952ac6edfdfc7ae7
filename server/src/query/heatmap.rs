//! The heatmap of a selection: time × size, and how much stands in each field.

use std::collections::BTreeMap;

use serde::Serialize;

use super::engine::{Cancel, Coverage, Engine, QueryError, Selection};
use super::rows::{PerRow, RowSamples};
use super::series::check_step;
use crate::segment::{Labels, PartHeader, Symbols};

/// What is sorted into buckets of size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Each stored sample: one stack of one profile.
    Samples,
    /// Each profile's total.
    Profiles,
}

/// A field of the heatmap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Start of the step, Unix milliseconds.
    pub time_ms: i64,
    /// Values from here on: 0, or a power of two.
    pub from: i64,
    /// To here, without it.
    pub until: i64,
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: i64,
}

struct Fields {
    step_ns: i64,
    /// (milliseconds, bits of the value) → (count, sum).
    fields: BTreeMap<(i64, u32), (u64, i64)>,
}

/// 0 for 0 and below; else such that bucket n is 2^(n−1) up to 2^n.
fn bucket(value: i64) -> u32 {
    64 - value.max(0).leading_zeros()
}

impl Fields {
    fn add(&mut self, time_ns: i64, value: i64) {
        let time_ms = time_ns.div_euclid(self.step_ns) * self.step_ns / 1_000_000;
        let (count, sum) = self.fields.entry((time_ms, bucket(value))).or_default();
        *count += 1;
        *sum = sum.saturating_add(value);
    }

    fn finish(self) -> Vec<Field> {
        let fields = self.fields.into_iter();
        fields
            .map(|((time_ms, bits), (count, sum))| Field {
                time_ms,
                from: if bits == 0 { 0 } else { 1 << (bits - 1) },
                until: 1_i64
                    .checked_shl(bits)
                    .filter(|&end| end > 0)
                    .unwrap_or(i64::MAX),
                count,
                sum,
            })
            .collect()
    }
}

impl PerRow for Fields {
    fn part(&mut self, _: &PartHeader, _: &Symbols) {}

    fn row(&mut self, _: &PartHeader, _: &Symbols, samples: &RowSamples) {
        for &value in samples.values {
            self.add(samples.row.time_ns, value);
        }
    }

    fn join(&mut self, other: Self) {
        for (key, (count, sum)) in other.fields {
            let all = self.fields.entry(key).or_default();
            *all = (all.0 + count, all.1.saturating_add(sum));
        }
    }

    fn heap_bytes(&self) -> usize {
        self.fields.len() * 48
    }
}

/// The largest profile of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Largest {
    /// Start of the step, Unix milliseconds.
    pub step_ms: i64,
    /// Its own time, Unix milliseconds.
    pub time_ms: i64,
    /// Its total.
    pub value: i64,
    /// Labels of its series.
    pub labels: Labels,
}

impl Engine {
    /// The largest profile of each field of the heatmap of profiles, by time and size.
    ///
    /// # Errors
    /// As [`Engine::heatmap`].
    pub fn largest_profiles(
        &self,
        selection: &Selection,
        step_ns: i64,
        cancel: &Cancel,
    ) -> Result<Vec<Largest>, QueryError> {
        check_step(selection, step_ns)?;
        let mut fields: BTreeMap<(i64, u32), Largest> = BTreeMap::new();
        self.walk_totals(selection, cancel, |header, row, value| {
            let step_ms = row.time_ns.div_euclid(step_ns) * step_ns / 1_000_000;
            let known = fields.get(&(step_ms, bucket(value)));
            if known.is_none_or(|known| known.value < value) {
                let largest = Largest {
                    step_ms,
                    time_ms: row.time_ns.div_euclid(1_000_000),
                    value,
                    labels: header.series[row.series as usize].labels.clone(),
                };
                fields.insert((step_ms, bucket(value)), largest);
            }
        })?;
        Ok(fields.into_values().collect())
    }

    /// Samples or profiles by time and size; empty fields are left out.
    ///
    /// # Errors
    /// When the step is too small for the window, or the scan is refused.
    pub fn heatmap(
        &self,
        selection: &Selection,
        of: Of,
        step_ns: i64,
        cancel: &Cancel,
    ) -> Result<(Vec<Field>, Coverage), QueryError> {
        check_step(selection, step_ns)?;
        let empty = || Fields {
            step_ns,
            fields: BTreeMap::new(),
        };
        if of == Of::Samples {
            let (fields, coverage) = self.each_row(selection, cancel, empty)?;
            return Ok((fields.finish(), coverage));
        }
        let mut fields = empty();
        let coverage = self.walk_totals(selection, cancel, |_, row, total| {
            fields.add(row.time_ns, total);
        })?;
        Ok((fields.finish(), coverage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_bucket() {
        for value in [0, 1, 2, 3, 4, 1023, 1024, i64::MAX - 1] {
            let mut fields = Fields {
                step_ns: 1_000_000_000,
                fields: BTreeMap::new(),
            };
            fields.add(2_500_000_000, value);
            let [field] = fields.finish()[..] else {
                panic!("one field")
            };
            assert!(
                (field.from..field.until).contains(&value),
                "{value}: {field:?}"
            );
            assert_eq!((field.time_ms, field.count, field.sum), (2000, 1, value));
        }
        assert_eq!(bucket(-5), 0);
    }
}
