//! Starting and stopping: one background thread arms timers while somebody captures, drains the
//! ring into the captures, and keeps the module snapshot true.

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::aggregate::{Aggregate, Budget, Frame, Stack};
use crate::config::{AfterFork, Config};
use crate::context::Context;
use crate::kind::{Kinds, Sampled};
use crate::labels::Labels;
use crate::modules::{Generation, LoaderCounts, Snapshot, loaded, loader_counts};
use crate::ring::Ring;
use crate::stats::COUNTERS;
use crate::tags::Tag;
use crate::wall::{self, Wall};
use crate::{Error, fork, handler, heap, symbols, threads};

/// How often the ring is drained and threads are looked for, while armed.
const TICK: Duration = Duration::from_millis(50);
/// Code or stacks that no snapshot knows (made at run time, say) do not cause more snapshots than
/// one in this time.
const STALE_PAUSE: Duration = Duration::from_millis(500);
/// How long file contents for names are kept after the last capture.
const KEEP_SYMBOLS: Duration = Duration::from_secs(30);
/// A background thread that does not answer for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// Looking for threads may take this part of the time.
const SCAN_SHARE: u32 = 50;

/// How often the loader is asked for changes while nobody captures, but somebody takes stacks.
const IDLE_TICK: Duration = Duration::from_secs(1);
/// Profile types that take stacks while nobody captures.
static MODULES_WANTED: AtomicUsize = AtomicUsize::new(0);

/// The engine of this process, or null.
static CURRENT: AtomicPtr<Arc<Engine>> = AtomicPtr::new(null_mut());
/// Threads between reading [`CURRENT`] and having an engine of their own.
static READERS: AtomicUsize = AtomicUsize::new(0);

/// What runs while a guard lives.
pub(crate) struct Engine {
    pub(crate) service: String,
    pub(crate) period: Duration,
    pub(crate) wall: wall::Settings,
    sampler: threads::Engine,
    budget_percent: f64,
    max_depth: usize,
    budget: Budget,
    ring: &'static Ring,
    state: Mutex<State>,
    changed: Condvar,
    next_capture: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    after_fork: AfterFork,
    /// The same in an engine of a parent and of its forked children.
    family: Arc<()>,
    /// Made in a forked child: the loader may never answer there, when another thread of the parent was
    /// loading a library at that moment (glibc keeps its lock as it was).
    restarted: bool,
    loader_answers: AtomicBool,
    /// A forked child has neither the thread nor whoever held the locks.
    process: u32,
}

#[derive(Default)]
struct State {
    captures: HashMap<u64, Running>,
    /// What is sampled now.
    armed: Kinds,
    /// The ring was drained this often since armed.
    drains: u64,
    /// A capture ends: it gets what no sample accounts for so far.
    settle: bool,
    stop: bool,
}

/// A capture in progress.
struct Running {
    kind: Sampled,
    /// Only what has this label.
    label: Option<(String, String)>,
    aggregate: Aggregate,
}

impl Running {
    /// What ran or waited under these labels is counted.
    fn wants(&self, context: Context) -> bool {
        let Some((key, value)) = &self.label else {
            return true;
        };
        let labels = Labels::of_id(context.labels());
        labels.iter().any(|label| label == (key, value))
    }

    fn add_unanswered(&mut self, ns: u64) {
        // Nobody knows under which labels it ran.
        if ns > 0 && self.label.is_none() {
            self.aggregate.add_pseudo(Frame::Brief, (1, ns));
        }
    }
}

impl State {
    /// What captures want to be sampled.
    fn wanted(&self) -> Kinds {
        self.captures.values().map(|running| running.kind).collect()
    }

    /// Adds what the sampler saw to the captures that want it; with `all`, also what threads that
    /// still wait have cost so far.
    fn add_seen(&mut self, all: bool) {
        for seen in wall::take(all) {
            let stack = Stack {
                addresses: &seen.frames,
                truncated: seen.truncated,
                samples: seen.count,
                weight: seen.ns,
                tag: Tag {
                    context: seen.context,
                    trace: None,
                },
            };
            let is_wanted = |r: &&mut Running| r.kind.is_wall() && r.wants(seen.context);
            let wall = self.captures.values_mut().filter(is_wanted);
            wall.for_each(|running| running.aggregate.add(&stack, &seen.generation));
        }
    }

    fn of_kind(&mut self, kind: Sampled) -> impl Iterator<Item = &mut Aggregate> {
        let all = self.captures.values_mut();
        all.filter(move |running| running.kind == kind)
            .map(|running| &mut running.aggregate)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// The engine that runs in this process.
///
/// # Errors
/// [`Error::NotStarted`].
pub(crate) fn current() -> Result<Arc<Engine>, Error> {
    READERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: freed when it was replaced and no reader was there afterwards.
    let engine = unsafe { CURRENT.load(Ordering::SeqCst).as_ref() }.cloned();
    READERS.fetch_sub(1, Ordering::SeqCst);
    engine.ok_or(Error::NotStarted)
}

/// From now on there is no engine.
fn withdraw() {
    let engine = CURRENT.swap(null_mut(), Ordering::SeqCst);
    if engine.is_null() {
        return;
    }
    while READERS.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    // SAFETY: made by `publish`, and who reads now finds null.
    drop(unsafe { Box::from_raw(engine) });
}

/// False when there is an engine already.
fn publish(engine: &Arc<Engine>) -> bool {
    let published = Box::into_raw(Box::new(Arc::clone(engine)));
    let swapped =
        CURRENT.compare_exchange(null_mut(), published, Ordering::SeqCst, Ordering::Relaxed);
    if swapped.is_err() {
        // SAFETY: nobody else has seen it.
        drop(unsafe { Box::from_raw(published) });
    }
    swapped.is_ok()
}

/// In a forked child, which has one thread: the background thread is the parent's, and so is the
/// engine, which the child only leaves alone. By choice it gets one of its own.
pub(crate) fn forget_in_child() {
    READERS.store(0, Ordering::SeqCst);
    let parent = CURRENT.swap(null_mut(), Ordering::SeqCst);
    // SAFETY: never freed in the child: its thread's handle must not be dropped.
    let Some(parent) = (unsafe { parent.as_ref() }) else {
        return;
    };
    #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
    if parent.after_fork == AfterFork::Off {
        crate::locks::stop();
    }
    if parent.after_fork == AfterFork::Restart {
        let engine = Arc::new(parent.again());
        // Without a thread there are no captures, which then say so.
        if publish(&engine) && engine.spawn().is_err() {
            withdraw();
        }
    }
}

/// From now on, and until each `true` had its `false`, the module snapshot is kept true also while
/// nobody captures, in this engine and those that start later: what [`crate::here`] needs.
/// May be said inside an allocator.
pub(crate) fn keep_modules_current(wanted: bool) {
    let count = &MODULES_WANTED;
    match wanted {
        true => count.fetch_add(1, Ordering::SeqCst),
        false => count.fetch_sub(1, Ordering::SeqCst),
    };
    if let Ok(engine) = current() {
        // Under the lock, or it is said between the background thread's look and its sleep; who holds
        // it may be the caller itself, and then the thread looks again after a while.
        let _state = engine.state.try_lock();
        engine.changed.notify_all();
    }
}

/// The calling thread is pilotlight's: that it waits is no news.
pub(crate) fn note_own_thread() {
    #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
    crate::locks::ignore_this_thread();
}

fn modules_are_wanted() -> bool {
    MODULES_WANTED.load(Ordering::SeqCst) > 0
}

/// Starts the background thread and installs the handler.
pub(crate) fn start(config: &Config) -> Result<Arc<Engine>, Error> {
    threads::keep_hook();
    let engine = Arc::new(Engine {
        service: config.service.clone(),
        period: config.period(),
        wall: config.wall.clone(),
        sampler: config.engine,
        budget_percent: config.budget_cpu_percent,
        max_depth: config.max_depth,
        budget: Budget::new(config.budget_bytes),
        ring: handler::ring(config.ring_bytes),
        state: Mutex::default(),
        changed: Condvar::new(),
        next_capture: AtomicU64::new(0),
        thread: Mutex::new(None),
        after_fork: config.after_fork,
        family: Arc::new(()),
        restarted: false,
        loader_answers: AtomicBool::new(false),
        process: std::process::id(),
    });
    if !publish(&engine) {
        return Err(Error::AlreadyStarted);
    }
    heap::set_budget(config.budget_cpu_percent);
    // Before the background thread, which then reads the modules at once.
    #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
    crate::locks::start(config.lock_rate_ns);
    let began = handler::install()
        .map_err(Error::Signal)
        .and_then(|()| engine.spawn());
    if let Err(error) = began {
        #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
        crate::locks::stop();
        withdraw();
        return Err(error);
    }
    fork::watch();
    Ok(engine)
}

impl Engine {
    /// As this one, for a forked child.
    fn again(&self) -> Engine {
        Engine {
            service: self.service.clone(),
            sampler: self.sampler,
            period: self.period,
            wall: self.wall.clone(),
            max_depth: self.max_depth,
            budget_percent: self.budget_percent,
            budget: self.budget.again(),
            ring: handler::ring(self.ring.bytes()),
            state: Mutex::default(),
            changed: Condvar::new(),
            next_capture: AtomicU64::new(0),
            thread: Mutex::new(None),
            after_fork: self.after_fork,
            family: Arc::clone(&self.family),
            restarted: true,
            loader_answers: AtomicBool::new(false),
            process: std::process::id(),
        }
    }

    fn spawn(self: &Arc<Self>) -> Result<(), Error> {
        let mut background = Background::new(Arc::clone(self));
        // In a child the parent's snapshot serves until then.
        if modules_are_wanted() && !self.restarted {
            // Before the start returns: what follows has its stacks.
            background.refresh_modules();
        }
        let run = move || {
            note_own_thread();
            // What it allocates is no part of the program's heap.
            heap::unsampled(|| background.run());
        };
        let thread = std::thread::Builder::new()
            .name("pilotlight".into())
            .spawn(run)
            .map_err(Error::Thread)?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Ends the background thread; captures in progress keep what they have.
    pub(crate) fn stop(&self) {
        if self.is_of_parent() {
            // The one that took its place in this child, if any.
            let own = current().ok();
            if let Some(own) = own.filter(|own| Arc::ptr_eq(&own.family, &self.family)) {
                own.stop();
            }
            return;
        }
        lock(&self.state).stop = true;
        self.changed.notify_all();
        // A thread that waits for the loader for ever has armed nothing; one that does not will end.
        let ends = !self.restarted || self.loader_answers.load(Ordering::SeqCst);
        if let Some(thread) = lock(&self.thread).take().filter(|_| ends) {
            let _ = thread.join();
        }
        #[cfg(all(feature = "lock-hooks", target_os = "linux"))]
        crate::locks::stop();
        withdraw();
    }

    /// This process is a forked child of the one that started.
    fn is_of_parent(&self) -> bool {
        self.process != std::process::id()
    }

    /// Samples per second of CPU time that were asked for.
    pub(crate) fn asked_hz(&self) -> u128 {
        1_000_000_000 / self.period.as_nanos().max(1)
    }

    /// Begins a capture; returns when what it samples is sampled.
    pub(crate) fn begin(&self, kind: Sampled) -> Result<u64, Error> {
        let id = self.next_capture.fetch_add(1, Ordering::Relaxed);
        if kind.is_wall() {
            wall::settle();
        }
        let mut state = lock(&self.state);
        // What came before belongs to the captures before.
        state.add_seen(kind.is_wall());
        let aggregate = Aggregate::new(self.budget.clone());
        let label = self.wall.label.clone().filter(|_| kind.is_wall());
        let running = Running {
            kind,
            label,
            aggregate,
        };
        state.captures.insert(id, running);
        self.changed.notify_all();
        let deadline = Instant::now() + PATIENCE;
        while !state.armed.has(kind) {
            if state.stop || Instant::now() > deadline {
                let stopped = state.stop;
                state.captures.remove(&id);
                return Err(if stopped {
                    Error::NotStarted
                } else {
                    Error::Stalled
                });
            }
            state = self.wait(state, PATIENCE);
        }
        Ok(id)
    }

    /// Ends a capture, once everything that was sampled before the call is in it.
    /// In a forked child: nothing.
    pub(crate) fn end(&self, id: u64) -> Aggregate {
        if self.is_of_parent() {
            return Aggregate::new(Budget::default());
        }
        let kind = lock(&self.state)
            .captures
            .get(&id)
            .map(|running| running.kind);
        let is_wall = kind.is_some_and(Sampled::is_wall);
        if is_wall {
            wall::settle();
        }
        let mut state = lock(&self.state);
        // A drain may be under way that began before the call: wait for the one after it.
        let enough = state.drains + 2;
        state.settle = true;
        let deadline = Instant::now() + PATIENCE;
        while !state.armed.is_empty()
            && !state.stop
            && state.drains < enough
            && Instant::now() < deadline
        {
            self.changed.notify_all();
            state = self.wait(state, TICK);
        }
        state.add_seen(is_wall);
        let mut running = state.captures.remove(&id);
        if let Some(running) = running.as_mut().filter(|r| r.kind == Sampled::Wall) {
            running.add_unanswered(wall::unanswered_ns());
        }
        drop(state);
        self.changed.notify_all();
        running.map_or_else(
            || Aggregate::new(Budget::default()),
            |running| running.aggregate,
        )
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the background thread owns.
struct Background {
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
    fn new(engine: Arc<Engine>) -> Background {
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

    fn run(&mut self) {
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

    fn refresh_modules(&mut self) {
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
