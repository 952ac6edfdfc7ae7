//! Which profiles are kept whole.

use std::time::Duration;

use crate::query::selector::{Selector, SelectorError};

/// How a rule decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Keep {
    /// Each profile with this probability.
    Share(f64),
    /// All profiles of this share of the series, chosen by a hash of the labels: the same ones at
    /// every server and after every restart.
    Series(f64),
    /// About this many profiles in each window, whatever their series; never more. Decided when a
    /// profile comes, with a draw by how many are likely to come.
    PerWindow {
        /// Profiles.
        profiles: u32,
        /// Length of the window.
        window: Duration,
    },
}

/// A rule: what it is for, and what it does.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) selector: Selector,
    pub(super) keep: Keep,
}

impl Rule {
    /// A rule for the series that `selector` (as in `{namespace="dev"}`) matches.
    ///
    /// # Errors
    /// With the place of the selector's first fault.
    pub fn new(selector: &str, keep: Keep) -> Result<Self, SelectorError> {
        let selector = Selector::parse(selector)?;
        Ok(Self { selector, keep })
    }
}

/// A rule at work.
pub struct Sampler {
    keep: Keep,
    began_ns: i64,
    seen: u32,
    kept: u32,
    seen_before: u32,
}

impl Sampler {
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            began_ns: i64::MIN,
            seen: 0,
            kept: 0,
            seen_before: 0,
        }
    }

    /// For counting what was left out.
    pub fn reason(&self) -> &'static str {
        match self.keep {
            Keep::Share(_) => "share",
            Keep::Series(_) => "series_share",
            Keep::PerWindow { .. } => "per_window",
        }
    }

    pub fn keeps(&mut self, id: u128, now_ns: i64, random: u64) -> bool {
        match self.keep {
            Keep::Share(share) => unit(random) < share,
            // Any bits of the identity will do: it is a hash already.
            Keep::Series(share) => unit((id >> 64) as u64) < share,
            Keep::PerWindow { profiles, window } => {
                self.keeps_in_window(profiles, window, now_ns, random)
            }
        }
    }

    fn keeps_in_window(
        &mut self,
        profiles: u32,
        window: Duration,
        now_ns: i64,
        random: u64,
    ) -> bool {
        let window_ns = super::nanoseconds(window).max(1);
        let passed = now_ns.saturating_sub(self.began_ns);
        if !(0..window_ns).contains(&passed) {
            let follows = (window_ns..window_ns.saturating_mul(2)).contains(&passed);
            self.seen_before = if follows { self.seen } else { 0 };
            self.began_ns = now_ns - now_ns.rem_euclid(window_ns);
            (self.seen, self.kept) = (0, 0);
        }
        let part = now_ns.saturating_sub(self.began_ns) as f64 / window_ns as f64;
        // Knuth's selection sampling, with a guess of how many are still to come: by the window
        // before at first, then by this one.
        let expected = match part {
            early if early < 0.05 && self.seen_before > 0 => f64::from(self.seen_before),
            _ => f64::from(self.seen) / part.max(1e-9),
        };
        let to_come = (expected * (1.0 - part)).max(1.0);
        self.seen = self.seen.saturating_add(1);
        let wanted = f64::from(profiles.saturating_sub(self.kept));
        let keeps = unit(random) * to_come < wanted;
        self.kept += u32::from(keeps);
        keeps
    }
}

/// 0 to 1 from 64 random bits.
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}
