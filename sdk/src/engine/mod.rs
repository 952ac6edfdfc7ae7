//! Starting and stopping.
//!
//! | file | job |
//! |---|---|
//! | `mod` | an engine and the captures that it serves |
//! | `current` | which engine this process has |
//! | `state` | what captures and the background thread share |
//! | `background` | the thread that arms timers, drains the ring, and keeps the module snapshot true |

mod background;
mod current;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::aggregate::{Aggregate, Budget};
use crate::config::{AfterFork, Config};
use crate::kind::Sampled;
use crate::ring::Ring;
use crate::{Error, fork, handler, heap, threads, wall};
use background::Background;
pub(crate) use current::{current, forget_in_child};
use current::{publish, withdraw};
use state::{Running, State};

/// How often the ring is drained and threads are looked for, while armed.
const TICK: Duration = Duration::from_millis(50);
/// A background thread that does not answer for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// Profile types that take stacks while nobody captures.
static MODULES_WANTED: AtomicUsize = AtomicUsize::new(0);

/// What runs while a guard lives.
pub(crate) struct Engine {
    pub(crate) service: String,
    pub(crate) version: Option<String>,
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

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("service", &self.service)
            .finish_non_exhaustive()
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
        version: config.version.clone(),
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
            version: self.version.clone(),
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
