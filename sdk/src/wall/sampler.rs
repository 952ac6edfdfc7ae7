//! Which thread is looked at when, and what each look counts.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::ask::{Asked, Slots};
use super::look::{self, Found, Looker};
use super::thread::{Stand, Thread};
use super::{Seen, Settings, started};
use crate::context;
use crate::modules::Generation;
use crate::stats::COUNTERS;
use crate::sys::own_tid;
use crate::threads::timer::{monotonic_ns, thread_clock_ns};

/// The sampler uses at most this part of one CPU, by looking at fewer threads a tick.
const CPU_SHARE: u64 = 125;
/// CPU time that may be saved up.
const CREDIT_NS: i64 = 20_000_000;
/// Threads looked at a tick, however expensive they are.
const LEAST: usize = 4;
/// Looking for threads may take this part of the sampler's time.
const SCAN_SHARE: u64 = 1000;
/// Threads that came while another went are found so late at most, when looking is cheap.
const SCAN_PAUSE_NS: u64 = 1_000_000_000;
/// Files kept open for threads that move often.
const FILES: usize = 128;

pub(super) struct Sampler {
    settings: Settings,
    max_depth: usize,
    generation: Arc<Generation>,
    threads: Vec<Thread>,
    index: HashMap<i32, usize>,
    /// Threads of this round that were not looked at yet.
    round: Vec<i32>,
    round_began_ns: u64,
    /// How long the last round took: what the first look at a young thread counts.
    round_ns: u64,
    /// Started threads that were taken over.
    started: usize,
    slots: Slots,
    files: usize,
    looker: Looker,
    seen: Vec<Seen>,
    random: u64,
    credit_ns: i64,
    ticked_ns: u64,
    own_clock_ns: u64,
    next_scan_ns: u64,
    latest_scan_ns: u64,
    /// Links of the folder of threads at the last scan: two more than threads.
    links: u64,
    /// Own threads are not looked at.
    ignored: Vec<i32>,
}

impl Sampler {
    pub(super) fn new(
        settings: Settings,
        max_depth: usize,
        generation: Arc<Generation>,
    ) -> Sampler {
        let now = monotonic_ns();
        let period_ns = settings.period().as_nanos() as u64;
        Sampler {
            settings,
            max_depth,
            generation,
            threads: Vec::new(),
            index: HashMap::new(),
            round: Vec::new(),
            round_began_ns: now,
            round_ns: period_ns,
            started: 0,
            slots: Slots::new(),
            files: 0,
            looker: Looker::default(),
            seen: Vec::new(),
            random: now | 1,
            credit_ns: 0,
            ticked_ns: now,
            own_clock_ns: 0,
            next_scan_ns: 0,
            latest_scan_ns: 0,
            links: 0,
            ignored: Vec::new(),
        }
    }

    pub(super) fn publish(&mut self, generation: Arc<Generation>) {
        self.generation = generation;
        self.looker.forget_code();
    }

    /// Until the next tick: uniform between half and one and a half periods, so as not to beat with
    /// periodic work.
    pub(super) fn pause_ns(&mut self) -> u64 {
        let period_ns = self.settings.period().as_nanos() as u64;
        period_ns / 2 + self.random() % period_ns.max(1)
    }

    /// xorshift64: <https://www.jstatsoft.org/article/view/v008i14>
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Looks at the next threads of the round, as many as settings and CPU share allow.
    pub(super) fn tick(&mut self) {
        let own = own_tid();
        if !self.ignored.contains(&own) {
            self.ignored.push(own);
            self.forget(own);
        }
        let now = monotonic_ns();
        let clock_ns = self.settle_credit(own, now);
        COUNTERS.wall_ticks.add(1);
        self.scan_when_due(now);
        self.add_started();
        let mut looks = 0;
        let most = self.settings.threads_per_tick.min(self.threads.len());
        while looks < most {
            let Some(tid) = self.next() else { break };
            self.look_at(tid, monotonic_ns());
            looks += 1;
            // The clock costs as much as a look: not asked each time.
            if looks >= LEAST && looks % 8 == 0 {
                let used = thread_clock_ns(own).unwrap_or(0) - clock_ns;
                if self.credit_ns < used as i64 {
                    COUNTERS.wall_ticks_cut.add(1);
                    break;
                }
            }
        }
    }

    /// Takes what the tick before and the sleep after it used off what this thread may use, and adds
    /// what time has earned. Returns the thread's CPU clock.
    fn settle_credit(&mut self, own: i32, now: u64) -> u64 {
        let clock_ns = thread_clock_ns(own).unwrap_or(0);
        let earned = now.saturating_sub(self.ticked_ns) / CPU_SHARE;
        let used = clock_ns.saturating_sub(self.own_clock_ns);
        (self.ticked_ns, self.own_clock_ns) = (now, clock_ns);
        self.credit_ns = (self.credit_ns + earned as i64 - used as i64).min(CREDIT_NS);
        clock_ns
    }

    /// Every thread comes once a round, in an order that is another one each time.
    fn next(&mut self) -> Option<i32> {
        loop {
            if self.round.is_empty() {
                let now = monotonic_ns();
                self.round_ns = now - self.round_began_ns;
                self.round_began_ns = now;
                self.round
                    .extend(self.threads.iter().map(|thread| thread.tid));
                for at in (1..self.round.len()).rev() {
                    let other = (self.random() % (at as u64 + 1)) as usize;
                    self.round.swap(at, other);
                }
            }
            let tid = self.round.pop()?;
            if self.index.contains_key(&tid) {
                return Some(tid);
            }
        }
    }

    /// Looks at every thread.
    pub(super) fn round(&mut self, now: u64) {
        let tids: Vec<i32> = self.threads.iter().map(|thread| thread.tid).collect();
        for tid in tids {
            self.look_at(tid, now);
        }
    }

    fn look_at(&mut self, tid: i32, now: u64) {
        let Some(&at) = self.index.get(&tid) else {
            return;
        };
        COUNTERS.wall_looks.add(1);
        let Some(clock_ns) = thread_clock_ns(tid) else {
            return self.forget(tid);
        };
        let thread = &mut self.threads[at];
        // A young thread was not looked at since its start. One round for the first look, and nothing
        // from the last look to its end: so threads shorter than a round count fairly.
        let ns = match thread.looked_ns {
            0 => self.round_ns,
            looked_ns => now.saturating_sub(looked_ns),
        };
        thread.looked_ns = now;
        if let Some(stand) = &mut thread.stand
            && thread.clock_ns == clock_ns
        {
            COUNTERS.wall_unmoved.add(1);
            stand.count += 1;
            stand.ns += ns;
            return;
        }
        thread.clock_ns = clock_ns;
        if let Some(stand) = thread.stand.take() {
            self.seen.extend(stand.seen());
        }
        self.moved(at, now, ns);
    }

    /// The thread ran since it was last looked at.
    fn moved(&mut self, at: usize, now: u64, ns: u64) {
        let thread = &mut self.threads[at];
        let (tid, clock_ns) = (thread.tid, thread.clock_ns);
        let opened = match &thread.file {
            Some(_) => None,
            None => look::open(tid),
        };
        let found = match thread.file.as_ref().or(opened.as_ref()) {
            Some(file) => {
                let (modules, depth) = (&self.generation.modules, self.max_depth);
                let kept = |sp| thread.asked.as_ref()?.frame_pointer_at(sp);
                self.looker.look(tid, clock_ns, file, modules, &kept, depth)
            }
            None => Found::Hidden,
        };
        if opened.is_some() && self.files < FILES {
            thread.file = opened;
            self.files += 1;
        }
        match found {
            Found::Blocked { truncated } => self.stands(at, truncated, ns),
            // Its registers are in its hands: it is woken for them, once for this wait, and the time
            // counts with the next look.
            Found::Partial { sp } if thread.woken_at != sp => {
                COUNTERS.wall_woken.add(1);
                thread.woken_at = sp;
                thread.looked_ns = now - ns;
                thread.ask(&mut self.slots, |asked| asked.at_once(tid, 0));
            }
            Found::Partial { .. } => {
                COUNTERS.wall_partial.add(1);
                self.stands(at, true, ns);
            }
            Found::Hidden => self.hidden(at, ns),
            Found::Running => {
                COUNTERS.wall_asked.add(1);
                thread.ask(&mut self.slots, |asked| asked.when_it_runs(tid, ns));
            }
        }
    }

    /// The kernel does not tell what the thread does, or it is gone.
    fn hidden(&mut self, at: usize, ns: u64) {
        let thread = &mut self.threads[at];
        let tid = thread.tid;
        if thread_clock_ns(tid).is_some() {
            COUNTERS.wall_woken.add(1);
            thread.ask(&mut self.slots, |asked| asked.at_once(tid, ns));
        }
    }

    /// The thread waits with the stack that the looker read.
    fn stands(&mut self, at: usize, truncated: bool, ns: u64) {
        COUNTERS.wall_read.add(1);
        self.threads[at].stand = Some(Stand {
            frames: self.looker.frames.as_slice().into(),
            truncated,
            generation: Arc::clone(&self.generation),
            context: context::of_thread(self.threads[at].tid),
            count: 1,
            ns,
        });
    }

    fn forget(&mut self, tid: i32) {
        let Some(at) = self.index.remove(&tid) else {
            return;
        };
        let thread = self.threads.swap_remove(at);
        if let Some(moved) = self.threads.get(at) {
            self.index.insert(moved.tid, at);
        }
        self.files -= usize::from(thread.file.is_some());
        self.seen.extend(thread.stand.and_then(Stand::seen));
        if let Some(asked) = thread.asked {
            asked.free(&mut self.slots);
        }
    }

    fn scan_when_due(&mut self, now: u64) {
        if now < self.next_scan_ns {
            return;
        }
        let links = std::fs::metadata("/proc/self/task").map_or(0, |folder| folder.nlink());
        if links != self.links || now >= self.latest_scan_ns {
            self.links = links;
            self.scan();
        }
    }

    /// Takes over threads that the hook told of; each is looked at somewhere in this round.
    fn add_started(&mut self) {
        let mut fresh = Vec::new();
        started::each(&mut self.started, |tid| fresh.push(tid));
        for tid in fresh {
            // A thread of before may have had the same id.
            self.forget(tid);
            if self.is_wanted(tid) {
                self.add(tid, 0);
                let at = (self.random() % (self.round.len() as u64 + 1)) as usize;
                self.round.insert(at, tid);
            }
        }
    }

    /// Finds threads that the hook did not tell of.
    pub(super) fn scan(&mut self) {
        let began = monotonic_ns();
        let Ok(entries) = std::fs::read_dir("/proc/self/task") else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if !self.index.contains_key(&tid) && self.is_wanted(tid) {
                self.add(tid, began);
            }
        }
        let now = monotonic_ns();
        self.next_scan_ns = now + (now - began) * SCAN_SHARE;
        self.latest_scan_ns = self.next_scan_ns.max(now + SCAN_PAUSE_NS);
    }

    fn is_wanted(&self, tid: i32) -> bool {
        if self.ignored.contains(&tid) {
            return false;
        }
        let Some(part) = &self.settings.names else {
            return true;
        };
        let name = std::fs::read_to_string(format!("/proc/self/task/{tid}/comm"));
        name.is_ok_and(|name| name.trim_end().contains(part))
    }

    fn add(&mut self, tid: i32, now: u64) {
        self.index.insert(tid, self.threads.len());
        self.threads.push(Thread {
            tid,
            clock_ns: 0,
            looked_ns: now,
            stand: None,
            asked: None,
            woken_at: 0,
            file: None,
        });
    }

    pub(super) fn take(&mut self, all: bool) -> Vec<Seen> {
        if all {
            let stands = self.threads.iter_mut().filter_map(|t| t.stand.as_mut());
            self.seen.extend(stands.filter_map(Stand::take));
        }
        std::mem::take(&mut self.seen)
    }

    pub(super) fn is_asking(&self) -> bool {
        self.unanswered_ns() > 0
    }

    pub(super) fn unanswered_ns(&self) -> u64 {
        let asked = self.threads.iter().filter_map(|t| t.asked.as_ref());
        asked.map(Asked::unanswered_ns).sum()
    }
}
