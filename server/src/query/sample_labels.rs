//! Samples by their own labels, such as `span_id`: they stand beside the series' labels.

use super::engine::Selection;
use super::read::{Added, Want};
use super::selector::Selector;
use crate::segment::{Labels, Symbols};

/// Which samples of the selected series count.
#[derive(Debug, Clone)]
pub struct SampleLabels(pub Selector);

impl SampleLabels {
    /// For each label set of a part, whether it is wanted.
    pub fn sets(&self, symbols: &Symbols) -> Vec<bool> {
        let sets = 0..symbols.label_set_ends.len() as u32;
        sets.map(|set| self.0.matches(&labels_of(symbols, set)))
            .collect()
    }

    /// Leaves what is wanted of sums that were made with [`Want::Labels`].
    pub fn keep(&self, added: &mut Added, want: Want) {
        let wanted = self.sets(added.symbols);
        if !wanted.first().copied().unwrap_or(false) {
            added.nodes.fill(0);
        }
        added
            .labelled
            .retain(|(_, set), _| wanted.get(*set as usize).copied().unwrap_or(false));
        if want == Want::Stacks {
            for ((node, _), value) in added.labelled.drain() {
                let sum = &mut added.nodes[node as usize];
                *sum = sum.saturating_add(value);
            }
        }
    }
}

impl Selection {
    /// What to read so that [`Selection::keep`] can tell samples apart.
    pub(super) fn read_as(&self, want: Want) -> Want {
        match self.sample_labels {
            Some(_) => Want::Labels,
            None => want,
        }
    }

    /// Leaves the samples that are selected.
    pub(super) fn keep(&self, added: &mut Added, want: Want) {
        if let Some(labels) = &self.sample_labels {
            labels.keep(added, want);
        }
    }
}

/// Labels of a set as text; numbers with their unit, as `go tool pprof` writes them.
pub fn labels_of(symbols: &Symbols, set: u32) -> Labels {
    let text = |id: u32| String::from_utf8_lossy(symbols.strings.get(id)).into_owned();
    let labels = symbols.label_set(set).iter().map(|label| {
        let value = match label.text {
            0 => format!("{}{}", label.number, text(label.unit)),
            id => text(id),
        };
        (text(label.key), value)
    });
    labels.collect()
}
