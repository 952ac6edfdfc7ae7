//! What samples of a capture belong to besides their stack: labels, logical span, trace.

use std::collections::HashMap;
use std::sync::Arc;

use pilotlight_profile::{Label, LabelSetId, LabelValue, ProfileBuilder};

use crate::context::Context;
use crate::labels::{self, Set};
use crate::otel::TraceContext;
use crate::spans;
use crate::stats::COUNTERS;

/// What a record says of its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub(crate) context: Context,
    pub(crate) trace: Option<TraceContext>,
}

/// Index into the tags of a capture; 0 is none.
pub(crate) type TagId = u32;

struct Known {
    tag: Tag,
    /// Held, so that its number names nothing else while the capture lives.
    labels: Option<Arc<Set>>,
}

/// The tags that a capture has met.
#[derive(Default)]
pub(crate) struct Tags {
    ids: HashMap<Tag, TagId>,
    known: Vec<Known>,
}

/// A tag with its share of the index, bytes; its labels are those of the program.
const TAG_BYTES: usize = size_of::<Known>() + 2 * size_of::<(Tag, TagId)>();

impl Tags {
    /// The id of a tag; a new one becomes `labels="[overflow]"` where there is no room.
    pub(crate) fn id(&mut self, mut tag: Tag, has_room: bool) -> TagId {
        if tag == Tag::default() {
            return 0;
        }
        if let Some(trace) = tag.trace.as_mut() {
            // Samples of a span are the same whether it is exported or not.
            trace.flags = 0;
        }
        if let Some(&id) = self.ids.get(&tag) {
            return id;
        }
        if !has_room {
            COUNTERS.label_sets_overflowed.add(1);
            return self.add(Tag {
                context: Context::new(labels::OVERFLOW, 0),
                trace: None,
            });
        }
        self.add(tag)
    }

    fn add(&mut self, tag: Tag) -> TagId {
        let fresh = self.known.len() as TagId + 1;
        let id = *self.ids.entry(tag).or_insert(fresh);
        if id == fresh {
            let number = tag.context.labels();
            let labels = labels::of_id(number);
            if number != 0 && labels.is_none() {
                COUNTERS.labels_lost.add(1);
            }
            self.known.push(Known { tag, labels });
        }
        id
    }

    pub(crate) fn bytes(&self) -> usize {
        self.known.len() * TAG_BYTES
    }

    /// Labels of a profile by tag.
    pub(crate) fn label_sets(&self, builder: &mut ProfileBuilder) -> Vec<LabelSetId> {
        let mut sets = vec![LabelSetId::default()];
        for known in &self.known {
            let mut pairs: Vec<(String, String)> = known.pairs();
            pairs.sort_unstable();
            let labels: Vec<Label> = pairs
                .iter()
                .map(|(key, value)| Label {
                    key: builder.string(key.as_bytes()),
                    value: LabelValue::Str(builder.string(value.as_bytes())),
                })
                .collect();
            sets.push(builder.label_set(&labels));
        }
        sets
    }
}

impl Known {
    fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        let mut put = |key: &str, value: String| pairs.push((key.to_string(), value));
        for (key, value) in self.labels.iter().flat_map(|set| &set.labels) {
            put(key, value.to_string());
        }
        let path = spans::path(self.tag.context.node());
        if !path.is_empty() {
            let names: Vec<&str> = path.iter().map(|frame| frame.name).collect();
            put("span", names.join(" > "));
        }
        if let Some(trace) = self.tag.trace {
            put("trace_id", hex(&trace.trace_id));
            put("span_id", hex(&trace.span_id));
        }
        pairs
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
