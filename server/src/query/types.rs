//! Which profile types there are.

use std::collections::BTreeMap;

use serde::Serialize;

use super::engine::{Engine, QueryError};
use super::selector::Selector;

/// A profile type, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TypeInfo {
    /// Full id.
    pub id: String,
    /// First field of the id.
    pub name: String,
    /// Second field.
    pub sample_type: String,
    /// Third field.
    pub sample_unit: String,
    /// Fourth field.
    pub period_type: String,
    /// Last field.
    pub period_unit: String,
}

impl Engine {
    /// Ids of the profile types in a window, with the series filter applied.
    pub fn types(&self, selector: &Selector, from_ns: i64, until_ns: i64) -> Vec<TypeInfo> {
        let mut found = BTreeMap::new();
        for segment in self.catalog.select(|_| true) {
            for part in &segment.header.parts {
                for entry in &part.series {
                    let inside = entry.min_time_ns < until_ns && entry.max_time_ns >= from_ns;
                    if !inside || !selector.matches(&entry.labels) {
                        continue;
                    }
                    for &set in &entry.type_sets {
                        let set = &part.type_sets[set as usize];
                        for index in 0..set.values.len() {
                            let id = set.id(index);
                            found.entry(id.clone()).or_insert_with(|| TypeInfo {
                                id,
                                name: set.name.clone(),
                                sample_type: set.values[index].0.clone(),
                                sample_unit: set.values[index].1.clone(),
                                period_type: set.period_type.clone(),
                                period_unit: set.period_unit.clone(),
                            });
                        }
                    }
                }
            }
        }
        found.into_values().collect()
    }

    /// The one profile type that `text` means: a full id, or a sample type (or the front of an id)
    /// that only one id has.
    ///
    /// # Errors
    /// When several or none fit.
    pub fn resolve_type(
        &self,
        text: &str,
        selector: &Selector,
        from_ns: i64,
        until_ns: i64,
    ) -> Result<String, QueryError> {
        if text.matches(':').count() == 4 {
            return Ok(text.to_owned());
        }
        let all = self.types(selector, from_ns, until_ns);
        let fits = |info: &&TypeInfo| {
            info.sample_type == text
                || info
                    .id
                    .strip_prefix(text)
                    .is_some_and(|r| r.starts_with(':'))
        };
        let ids: Vec<&str> = all
            .iter()
            .filter(fits)
            .map(|info| info.id.as_str())
            .collect();
        match ids[..] {
            [only] => Ok(only.to_owned()),
            [] if all.is_empty() => Err(QueryError::NotFound(format!(
                "type {text}: there is no data in this window for this q; \
                 widen from and until, or look at /api/v1/types"
            ))),
            [] => Err(QueryError::NotFound(format!(
                "type {text} is not in this window; there are: {}",
                all.iter()
                    .map(|info| info.id.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
            _ => Err(QueryError::Bad(format!(
                "type {text} is ambiguous; write one of: {}",
                ids.join(", ")
            ))),
        }
    }
}
