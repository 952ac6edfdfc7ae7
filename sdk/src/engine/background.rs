//! The background thread: arms timers while somebody captures, drains the ring into the captures, and
//! keeps the module snapshot true.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Engine, TICK, lock, modules_are_wanted};
use crate::aggregate::{Frame, Stack};
use crate::kind::{Kinds, Sampled};
use crate::modules::{Generation, LoaderCounts, Snapshot, loaded, loader_counts};
use crate::stats::COUNTERS;
use crate::tags::Tag;
use crate::wall::Wall;
use crate::{handler, heap, symbols, threads};

/// Code or stacks that no snapshot knows (made at run time, say) do not cause more snapshots than
/// one in this time.
const STALE_PAUSE: Duration = Duration::from_millis(500);
/// How long file contents for names are kept after the last capture.
const KEEP_SYMBOLS: Duration = Duration::from_secs(30);
/// Looking for threads may take this part of the time.
const SCAN_SHARE: u32 = 50;

/// How often the loader is asked for changes while nobody captures, but somebody takes stacks.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// What the background thread owns.
pub(super) struct Background {
    engine: Arc<Engine>,
    /// What is sampled now.
    armed: Kinds,
    wall: Option<Wall>,
    generations: Vec<Arc<Generation>>,
    counts: LoaderCounts,
    frames: Vec<u64>,
    next_scan: Instant,
    refreshed: Instant,
    /// Expiries of dropped samples that captures were told of.
    lost: u64,
}

/// Late records may belong to the generation before.
const GENERATIONS_KEPT: usize = 3;

impl Background {
    pub(super) fn new(engine: Arc<Engine>) -> Background {
        Background {
            engine,
            armed: Kinds::NONE,
            wall: None,
            generations: Vec::new(),
            counts: LoaderCounts::default(),
            frames: Vec::new(),
            next_scan: Instant::now(),
            refreshed: Instant::now(),
            lost: COUNTERS.expiries_lost.get(),
        }
    }

    pub(super) fn run(&mut self) {
        while self.wait_for_capture() {
            self.refresh_modules();
            // Another profiler may have taken the place since the start; it is handed on to. Where
            // the system refuses, what was installed stays.
            let _ = handler::install();
            handler::arm(self.engine.max_depth);
            while self.tick() {}
            self.sample(Kinds::NONE);
            handler::disarm();
            self.drain();
        }
    }

    /// Samples this from now on, and nothing else.
    fn sample(&mut self, wanted: Kinds) {
        let armed = std::mem::replace(&mut self.armed, wanted);
        match (armed.has(Sampled::Cpu), wanted.has(Sampled::Cpu)) {
            (false, true) => self.arm_threads(),
            (true, false) => threads::disarm(),
            _ => {}
        }
        match (armed.has_wall(), wanted.has_wall(), self.generations.last()) {
            (false, true, Some(now)) => {
                self.wall = Some(Wall::start(&self.engine.wall, self.engine.max_depth, now))
            }
            (true, false, _) => {
                lock(&self.engine.state).add_seen(true);
                self.wall = None;
            }
            _ => {}
        }
        lock(&self.engine.state).armed = wanted;
        self.engine.changed.notify_all();
    }

    fn arm_threads(&self) {
        let engine = &self.engine;
        threads::arm(engine.sampler, engine.period, engine.budget_percent);
    }

    /// False when it is time to stop.
    fn wait_for_capture(&mut self) -> bool {
        let engine = Arc::clone(&self.engine);
        let mut state = lock(&engine.state);
        let mut idle_since = Some(Instant::now());
        while state.captures.is_empty() && !state.stop {
            if idle_since.is_some_and(|since| since.elapsed() >= KEEP_SYMBOLS) {
                symbols::forget();
                idle_since = None;
            }
            if !modules_are_wanted() {
                state = engine.wait(state, KEEP_SYMBOLS);
                continue;
            }
            drop(state);
            heap::hold_budget();
            self.refresh_stale_modules();
            state = lock(&engine.state);
            if state.captures.is_empty() && !state.stop {
                state = engine.wait(state, IDLE_TICK);
            }
        }
        !state.stop
    }

    /// One round of work; false when no capture is left.
    fn tick(&mut self) -> bool {
        let wanted = {
            let mut state = lock(&self.engine.state);
            let wanted = state.wanted();
            if state.stop || wanted.is_empty() {
                // A capture that begins now waits until it is sampled again.
                state.armed = Kinds::NONE;
                return false;
            }
            if wanted == self.armed {
                drop(self.engine.wait(state, TICK));
            } else {
                state.armed = wanted.and(self.armed);
            }
            wanted
        };
        if wanted != self.armed {
            self.sample(wanted);
        }
        heap::hold_budget();
        self.refresh_stale_modules();
        if self.armed.has(Sampled::Cpu) && Instant::now() >= self.next_scan {
            let began = Instant::now();
            threads::scan();
            self.next_scan = Instant::now() + began.elapsed() * SCAN_SHARE;
        }
        self.drain();
        true
    }

    /// The loader has other objects than at the last snapshot, or code or stacks were met that it
    /// does not know.
    fn refresh_stale_modules(&mut self) {
        // The counters of a program that holds its libc never move.
        if self.generations.is_empty()
            || loader_counts() != self.counts
            || (self.refreshed.elapsed() >= STALE_PAUSE && handler::take_stale())
        {
            self.refresh_modules();
        }
    }

    pub(super) fn refresh_modules(&mut self) {
        // What was written so far belongs to the modules as they were.
        self.drain();
        let counts = loader_counts();
        self.engine.loader_answers.store(true, Ordering::SeqCst);
        let last = self.generations.last().map(|last| &last.known[..]);
        let known = loaded(last.unwrap_or_default(), self.counts);
        let number = COUNTERS.snapshots.get() as u32 + 1;
        COUNTERS.snapshots.add(1);
        // Before anybody walks over it.
        crate::lived::note(number, &known);
        handler::publish(Snapshot::new(&known, number));
        let generation = Arc::new(Generation::new(number, known));
        if let Some(wall) = &self.wall {
            wall.publish(&generation);
        }
        self.generations.push(generation);
        if self.generations.len() > GENERATIONS_KEPT {
            self.generations.remove(0);
        }
        self.counts = counts;
        self.refreshed = Instant::now();
    }

    /// Moves everything in the ring into the captures.
    fn drain(&mut self) {
        let mut state = lock(&self.engine.state);
        // Without a capture nobody could be told: what is counted is what some profile shows.
        let unsampled = match state.wanted().has(Sampled::Cpu) {
            true => threads::take_unsampled(std::mem::take(&mut state.settle)),
            false => threads::Unsampled::default(),
        };
        let lost = COUNTERS.expiries_lost.get();
        let dropped = lost - std::mem::replace(&mut self.lost, lost);
        while let Some(header) = self.engine.ring.pop(&mut self.frames) {
            let of_header = |generation: &&Arc<Generation>| generation.number == header.generation;
            let generation = self
                .generations
                .iter()
                .find(of_header)
                .or(self.generations.last());
            let Some(generation) = generation else {
                continue;
            };
            for running in state.captures.values_mut() {
                if !(running.kind.takes(header.record) && running.wants(header.context)) {
                    continue;
                }
                let stack = Stack {
                    addresses: &self.frames,
                    truncated: header.truncated,
                    samples: 1,
                    weight: header.weight,
                    tag: Tag {
                        context: header.context,
                        trace: header.trace,
                    },
                };
                running.aggregate.add(&stack, generation);
            }
        }
        state.add_seen(false);
        for (frame, expiries) in [
            (Frame::Unseen, unsampled.unseen),
            (Frame::Blocked, unsampled.blocked),
            (Frame::Dropped, dropped),
            (Frame::BetweenTicks, unsampled.behind),
        ] {
            for aggregate in state.of_kind(Sampled::Cpu).filter(|_| expiries > 0) {
                aggregate.add_pseudo(frame, (1, expiries));
            }
        }
        state.drains += 1;
        drop(state);
        self.engine.changed.notify_all();
    }
}
