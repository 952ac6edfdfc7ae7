//! Processes that map memory without end: their mappings are not told one by one but read as a whole, at times.

use std::collections::{HashMap, HashSet};

/// So many mappings of one process are told at once,
const BURST: u64 = 1024;
/// and then one more in this time.
const EACH_NS: u64 = 50_000_000;
/// Processes whose mappings are counted. With more all are forgotten, and begin anew.
const MOST: usize = 65_536;

/// What each process mapped lately.
#[derive(Debug, Default)]
pub(super) struct Floods {
    /// When all that a process mapped so far would have come one by one.
    due_ns: HashMap<u32, u64>,
    behind: HashSet<u32>,
    /// The last one that was too many, and when it would be told again: nearly all that follow are its too.
    flooding: Option<(u32, u64)>,
    left_out: u64,
    turn: bool,
}

impl Floods {
    /// `pid` mapped something: whether that is one too many. Then it is behind until its mappings were read.
    pub fn is_too_many(&mut self, pid: u32, time_ns: u64) -> bool {
        if let Some((_, until_ns)) = self.flooding.filter(|(flooding, _)| *flooding == pid)
            && time_ns < until_ns
        {
            return self.leave_out();
        }
        if self.due_ns.len() >= MOST && !self.due_ns.contains_key(&pid) {
            self.due_ns.clear();
        }
        let due_ns = self.due_ns.entry(pid).or_default();
        let next_ns = (*due_ns).max(time_ns).saturating_add(EACH_NS);
        if next_ns.saturating_sub(time_ns) <= BURST * EACH_NS {
            *due_ns = next_ns;
            return false;
        }
        self.flooding = Some((pid, due_ns.saturating_sub((BURST - 1) * EACH_NS)));
        self.behind.insert(pid);
        self.leave_out()
    }

    fn leave_out(&mut self) -> bool {
        self.left_out += 1;
        self.turn = true;
        true
    }

    /// It ended.
    pub fn forget(&mut self, pid: u32) {
        self.flooding = None;
        self.due_ns.remove(&pid);
        self.behind.remove(&pid);
    }

    /// Processes whose mappings are to be read; those that `read` says yes of are behind no more.
    pub fn catch_up(&mut self, mut read: impl FnMut(u32) -> bool) {
        if !self.behind.is_empty() {
            // Whoever goes on is behind again.
            self.flooding = None;
            self.behind.retain(|&pid| !read(pid));
        }
    }

    /// There was one too many since the last call.
    pub fn take_turn(&mut self) -> bool {
        std::mem::take(&mut self.turn)
    }

    /// Mappings that were not told since the last call.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_told_and_a_flood_is_read_at_times() {
        let mut floods = Floods::default();
        let start_ns = 1 << 40;
        assert!((0..BURST).all(|n| !floods.is_too_many(7, start_ns + n)));
        assert!((BURST..5 * BURST).all(|n| floods.is_too_many(7, start_ns + n)));
        assert!(!floods.is_too_many(8, start_ns));
        assert_eq!(floods.take_left_out(), 4 * BURST);
        assert!(floods.take_turn() && !floods.take_turn());
        // Too early, then in time.
        floods.catch_up(|_| false);
        let mut read = Vec::new();
        for _ in 0..2 {
            floods.catch_up(|pid| {
                read.push(pid);
                true
            });
        }
        assert_eq!(read, [7]);
        // What comes slowly is told again; another program begins anew.
        let later_ns = start_ns + 10 * EACH_NS;
        assert_eq!(
            (0..20).filter(|_| !floods.is_too_many(7, later_ns)).count(),
            10
        );
        floods.forget(7);
        assert!(!floods.is_too_many(7, later_ns));
        floods.catch_up(|_| panic!("nobody is behind"));
    }
}
