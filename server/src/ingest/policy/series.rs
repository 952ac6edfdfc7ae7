//! Which series pushed lately, bounded in number.

use std::collections::HashMap;

const HOUR_NS: i64 = 3_600_000_000_000;

/// Series by the time of their last push.
pub struct ActiveSeries {
    limit: usize,
    seen: HashMap<u128, i64>,
    swept_ns: i64,
}

impl ActiveSeries {
    /// A limit of 0 counts nothing and refuses nothing.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            seen: HashMap::new(),
            swept_ns: i64::MIN,
        }
    }

    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// `Err` for a series that is new and one too many.
    pub fn note(&mut self, id: u128, now_ns: i64) -> Result<(), ()> {
        if self.limit == 0 {
            return Ok(());
        }
        if !self.seen.contains_key(&id) && self.seen.len() >= self.limit {
            self.sweep(now_ns);
            if self.seen.len() >= self.limit {
                return Err(());
            }
        }
        self.seen.insert(id, now_ns);
        Ok(())
    }

    /// At most once a second: refusing must stay cheap while a flood lasts.
    fn sweep(&mut self, now_ns: i64) {
        if now_ns.saturating_sub(self.swept_ns).unsigned_abs() < 1_000_000_000 {
            return;
        }
        self.swept_ns = now_ns;
        // The distance and not the difference: a clock that was an hour ahead is forgotten too.
        self.seen
            .retain(|_, last| now_ns.saturating_sub(*last).unsigned_abs() < HOUR_NS as u64);
    }
}
