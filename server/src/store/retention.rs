//! How long which series are kept: rules by selector, and what of a block has had its time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::catalog::Segment;
use super::maintain::Maintenance;
use crate::query::selector::{Selector, SelectorError};
use crate::segment::Labels;

/// Own limits for the series that a selector chooses. The first rule that matches a series decides;
/// what it leaves open, the general limits decide.
#[derive(Debug, Clone)]
pub struct RetentionRule {
    selector: Selector,
    /// Of the samples as pushed.
    pub max_age: Option<Duration>,
    /// Of roll-ups.
    pub roll_up_max_age: Option<Duration>,
    /// Of samples and roll-ups of these series together, oldest samples first. Bytes of a block
    /// count for its series by their share of its profiles.
    pub max_bytes: Option<u64>,
}

impl RetentionRule {
    /// A rule without limits of its own, e.g. for `{pod!=""}`.
    ///
    /// # Errors
    /// When the selector cannot be read.
    pub fn new(selector: &str) -> Result<Self, SelectorError> {
        Ok(Self {
            selector: Selector::parse(selector)?,
            max_age: None,
            roll_up_max_age: None,
            max_bytes: None,
        })
    }
}

/// Index of a rule; the number of rules stands for the general limits.
pub type Class = usize;

/// What of a file has had its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// The series of these classes.
    Trim(Vec<Class>),
    /// All of it.
    Expire,
}

/// What a file holds of a class.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    newest_ns: i64,
    profiles: u64,
}

impl Maintenance {
    /// The class of a series.
    pub fn class(&self, labels: &Labels) -> Class {
        let mut rules = self.retention.iter();
        let first = rules.position(|rule| rule.selector.matches(labels));
        first.unwrap_or(self.retention.len())
    }

    fn limit(&self, class: Class, rolled: bool) -> Option<Duration> {
        let rule = self.retention.get(class);
        match rolled {
            false => rule.and_then(|rule| rule.max_age).or(self.max_age),
            true => rule
                .and_then(|rule| rule.roll_up_max_age)
                .or(self.roll_up_max_age),
        }
    }

    /// The shortest time after which anything is deleted.
    pub fn shortest(&self) -> Option<Duration> {
        let classes = 0..=self.retention.len();
        let limits =
            classes.flat_map(|class| [false, true].map(|rolled| self.limit(class, rolled)));
        limits.flatten().min()
    }

    /// What age (`now_ns`; `None` = age deletes nothing now) and bytes say of all files. Files are
    /// judged in the order in which they are to go.
    pub fn judge(&self, all: &[Arc<Segment>], now_ns: Option<i64>) -> Vec<(Arc<Segment>, Verdict)> {
        let (roll_ups, samples): (Vec<_>, Vec<_>) =
            all.iter().partition(|segment| step_ns(segment) > 0);
        // Where bytes run out, samples go before what was made of them.
        let order: Vec<&Arc<Segment>> = samples.into_iter().chain(roll_ups).collect();
        let shares: Vec<BTreeMap<Class, Share>> =
            order.iter().map(|segment| self.shares(segment)).collect();
        let mut bytes: u64 = order.iter().map(|segment| segment.header.file_len).sum();
        let mut of_class = vec![0_u64; self.retention.len()];
        for (segment, shares) in order.iter().zip(&shares) {
            for (&class, share) in shares {
                if let Some(sum) = of_class.get_mut(class) {
                    *sum += share.bytes(segment);
                }
            }
        }
        let mut verdicts = Vec::new();
        for (segment, shares) in order.iter().zip(&shares) {
            let rolled = step_ns(segment) > 0;
            let mut gone = Vec::new();
            for (&class, share) in shares {
                let max_age = self.limit(class, rolled);
                let age = now_ns.map(|now| now.saturating_sub(share.newest_ns));
                let old = age
                    .zip(max_age)
                    .is_some_and(|(age, max)| age > max.as_nanos() as i64);
                let limit = self.retention.get(class).and_then(|rule| rule.max_bytes);
                let over = limit.is_some_and(|limit| of_class[class] > limit);
                if old || over {
                    gone.push(class);
                    if let Some(sum) = of_class.get_mut(class) {
                        *sum -= share.bytes(segment);
                    }
                }
            }
            let over = self.max_bytes.is_some_and(|max| bytes > max);
            let verdict = if over || (gone.len() == shares.len() && !gone.is_empty()) {
                bytes -= segment.header.file_len;
                Verdict::Expire
            } else if gone.is_empty() {
                Verdict::Keep
            } else {
                Verdict::Trim(gone)
            };
            verdicts.push(((*segment).clone(), verdict));
        }
        verdicts
    }

    fn shares(&self, segment: &Segment) -> BTreeMap<Class, Share> {
        let mut shares: BTreeMap<Class, Share> = BTreeMap::new();
        let header = &segment.header;
        for entry in header.parts.iter().flat_map(|part| &part.series) {
            let share = shares.entry(self.class(&entry.labels)).or_default();
            // The later of both times: neither an old profile pushed today nor a clock that was
            // wrong for a while makes fresh data go.
            let newest_ns = entry.max_time_ns.max(header.created_ns);
            share.newest_ns = share.newest_ns.max(newest_ns);
            share.profiles += entry.profiles;
        }
        shares
    }
}

impl Share {
    fn bytes(&self, segment: &Segment) -> u64 {
        let all = u128::from(segment.header.profiles().max(1));
        let own = u128::from(segment.header.file_len) * u128::from(self.profiles) / all;
        u64::try_from(own).unwrap_or(u64::MAX)
    }
}

/// Step of a roll-up; 0 = samples as pushed.
pub fn step_ns(segment: &Segment) -> i64 {
    segment.block.as_ref().map_or(0, |files| files.step_ns)
}
