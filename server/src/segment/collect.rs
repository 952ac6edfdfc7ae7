//! Parts of all services, collected into a segment.

use std::collections::BTreeMap;

use pilotlight_profile::Profile;

use super::{Kept, Labels, Part, PartBuilder, PartHeader, Pushed};

/// A segment under construction: one part a service.
#[derive(Default)]
pub struct SegmentBuilder {
    parts: BTreeMap<String, PartBuilder>,
}

impl SegmentBuilder {
    /// Adds a pushed profile to the part of its service.
    pub fn add_profile(&mut self, profile: &Profile, pushed: &Pushed) -> Kept {
        self.part(service_of(&pushed.labels))
            .add_profile(profile, pushed)
    }

    /// Adds a part of another segment.
    pub fn add_part(&mut self, header: &PartHeader, part: &Part) {
        self.part(&header.service).add_part(header, part);
    }

    fn part(&mut self, service: &str) -> &mut PartBuilder {
        self.parts
            .entry(service.to_owned())
            .or_insert_with(|| PartBuilder::new(service))
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Heap bytes, roughly.
    pub fn heap_bytes(&self) -> usize {
        self.parts.values().map(PartBuilder::heap_bytes).sum()
    }

    /// Parts in the order of their services.
    pub fn finish(self) -> Vec<(PartHeader, Part)> {
        self.parts.into_values().map(PartBuilder::finish).collect()
    }
}

/// Value of `service_name`; empty when there is none.
pub fn service_of(labels: &Labels) -> &str {
    labels
        .iter()
        .find(|(name, _)| name == "service_name")
        .map_or("", |(_, value)| value)
}
