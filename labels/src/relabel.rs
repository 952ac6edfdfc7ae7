//! What rules do to a set of labels.

use crate::{Action, Labels, Rule, is_identifier};
use md5::{Digest, Md5};

/// What became of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes on.
    Kept,
    /// The rule at this index dropped it; the labels are as they were before that.
    Dropped(usize),
}

/// Applies rules in order; the first that drops is the last.
pub fn relabel(rules: &[Rule], labels: &mut Labels) -> Outcome {
    let dropped = rules.iter().position(|rule| !rule.apply(labels));
    dropped.map_or(Outcome::Kept, Outcome::Dropped)
}

impl Rule {
    /// False: dropped.
    fn apply(&self, labels: &mut Labels) -> bool {
        let values = self.source_labels.iter();
        let values: Vec<&str> = values
            .map(|name| labels.get(name).unwrap_or_default())
            .collect();
        let source = values.join(&self.separator);
        let target = || labels.get(&self.target_label).unwrap_or_default();
        match self.action {
            Action::Keep => return self.regex.is_match(&source),
            Action::Drop => return !self.regex.is_match(&source),
            Action::KeepEqual => return target() == source,
            Action::DropEqual => return target() != source,
            Action::Replace => self.replace(&source, labels),
            Action::HashMod => {
                let hash = hash(&source).checked_rem(self.modulus).unwrap_or(0);
                labels.set(&self.target_label, hash.to_string());
            }
            Action::Lowercase => labels.set(&self.target_label, source.to_lowercase()),
            Action::Uppercase => labels.set(&self.target_label, source.to_uppercase()),
            Action::LabelMap => {
                for (name, value) in labels.clone().iter() {
                    if self.regex.is_match(name) {
                        let renamed = self.regex.replace(name, &*self.replacement);
                        labels.set(&renamed, value);
                    }
                }
            }
            Action::LabelDrop => labels.retain(|name| !self.regex.is_match(name)),
            Action::LabelKeep => labels.retain(|name| self.regex.is_match(name)),
        }
        true
    }

    /// No match, and a name that the match makes invalid, change nothing; an empty value takes the label away.
    fn replace(&self, source: &str, labels: &mut Labels) {
        let Some(found) = self.regex.captures(source) else {
            return;
        };
        let (mut name, mut value) = (String::new(), String::new());
        found.expand(&self.target_label, &mut name);
        if is_identifier(&name) {
            found.expand(&self.replacement, &mut value);
            labels.set(&name, value);
        }
    }
}

/// The last eight bytes of the MD5 sum, the highest first.
fn hash(text: &str) -> u64 {
    let sum = Md5::digest(text.as_bytes());
    sum[8..]
        .iter()
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}
