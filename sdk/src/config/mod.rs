//! How to start, and what can go wrong.

mod environment;
mod error;

use std::net::TcpListener;
use std::time::Duration;

pub(crate) use environment::variable;
pub use error::Error;

use crate::{Engine, Guard, engine, heap, http, otel, spans, symbols, wall};

/// How to start. Environment variables override what the program says:
/// `PILOTLIGHT_ENABLED` (`true`/`false`), `PILOTLIGHT_VERSION`, `PILOTLIGHT_LISTEN` (address or `none`),
/// `PILOTLIGHT_FREQUENCY_HZ`, `PILOTLIGHT_HTTP_SWITCH` (`true`/`false`), `PILOTLIGHT_AWAIT`
/// (`true`/`false`), `PILOTLIGHT_OTEL_CONTEXT` (`true`/`false`), `PILOTLIGHT_TRACE_IDS`
/// (`true`/`false`), `PILOTLIGHT_LOCK_RATE_NS`,
/// `PILOTLIGHT_WALL_FREQUENCY_HZ`, `PILOTLIGHT_WALL_THREADS_PER_TICK`, `PILOTLIGHT_WALL_THREAD_NAMES`,
/// `PILOTLIGHT_WALL_LABEL`,
/// `PILOTLIGHT_ENGINE` (`auto`, `perf`, `timer` or `process-timer`), `PILOTLIGHT_AFTER_FORK`
/// (`off`/`restart`), `PILOTLIGHT_BUDGET_CPU_PERCENT`, `PILOTLIGHT_BUDGET_BYTES`.
///
/// ```no_run
/// let _pilotlight = pilotlight::Config::new("checkout").frequency_hz(199).start()?;
/// # Ok::<(), pilotlight::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) service: String,
    pub(crate) version: Option<String>,
    pub(crate) frequency_hz: u32,
    pub(crate) engine: Engine,
    pub(crate) listen: Option<String>,
    pub(crate) max_depth: usize,
    pub(crate) ring_bytes: usize,
    pub(crate) budget_cpu_percent: f64,
    pub(crate) budget_bytes: usize,
    pub(crate) heap_interval_bytes: Option<u64>,
    pub(crate) http_switch: bool,
    pub(crate) wall: wall::Settings,
    #[cfg(feature = "push")]
    pub(crate) push: Option<crate::push::Push>,
    pub(crate) symbolize: bool,
    pub(crate) symbolize_bytes: usize,
    pub(crate) await_profile: bool,
    pub(crate) lock_rate_ns: u64,
    pub(crate) otel_context: bool,
    pub(crate) trace_ids: bool,
    pub(crate) after_fork: AfterFork,
}

/// What a forked child does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterFork {
    /// It samples nothing, until it starts anew.
    #[default]
    Off,
    /// It can be captured like its parent, with settings as they were: at once, by
    /// [`crate::capture`] or routes that it serves itself. The parent's listener stays the
    /// parent's. Dropping the guard that the child inherited ends it. A child of glibc that was
    /// forked while another thread loaded a library can never ask the loader: its captures end with
    /// [`Error::Stalled`].
    Restart,
}

/// Samples per second of CPU time; prime, so as not to beat with periodic work.
const DEFAULT_FREQUENCY_HZ: u32 = 97;
/// Percent of the process's CPU time that sampling may take.
pub(crate) const DEFAULT_BUDGET_CPU_PERCENT: f64 = 10.0;
/// Bytes of distinct stacks.
const DEFAULT_BUDGET_BYTES: usize = 5 << 20;
/// Where `/debug/pprof/` is served unless told otherwise.
const DEFAULT_LISTEN: &str = "127.0.0.1:6060";
/// Bytes that names may hold.
pub(crate) const SYMBOLIZE_BYTES: usize = 32 << 20;
/// Frames kept of a stack at most.
pub(crate) const MAX_DEPTH: usize = 1024;

impl Config {
    /// The defaults: 97 Hz, `127.0.0.1:6060`, 1,024 frames.
    #[must_use]
    pub fn new(service: &str) -> Config {
        Config {
            service: service.to_string(),
            version: None,
            frequency_hz: DEFAULT_FREQUENCY_HZ,
            engine: Engine::Auto,
            listen: Some(DEFAULT_LISTEN.to_string()),
            max_depth: MAX_DEPTH,
            ring_bytes: 2 << 20,
            budget_cpu_percent: DEFAULT_BUDGET_CPU_PERCENT,
            budget_bytes: DEFAULT_BUDGET_BYTES,
            heap_interval_bytes: None,
            http_switch: false,
            wall: wall::Settings::default(),
            #[cfg(feature = "push")]
            push: None,
            symbolize: true,
            symbolize_bytes: SYMBOLIZE_BYTES,
            await_profile: false,
            lock_rate_ns: 0,
            otel_context: true,
            trace_ids: false,
            after_fork: AfterFork::Off,
        }
    }

    /// Version of the service, such as `env!("CARGO_PKG_VERSION")`: 1 to 128 ASCII characters without spaces. Scraped and
    /// pushed profiles have it as their label `version`, so that a deploy is seen and compared with what ran before.
    /// Without one, `service.version` of `OTEL_RESOURCE_ATTRIBUTES` counts.
    #[must_use]
    pub fn version(mut self, version: &str) -> Config {
        self.version = Some(version.to_string());
        self
    }

    /// Samples per second of CPU time, 1 to 10,000. Above the kernel's tick (often 250) only
    /// [`Engine::Perf`] gives finer stacks; sums are right with any.
    #[must_use]
    pub fn frequency_hz(mut self, frequency_hz: u32) -> Config {
        self.frequency_hz = frequency_hz;
        self
    }

    /// What interrupts threads, first choice; see [`Engine`] for what it falls back to, and for what
    /// [`Engine::ProcessTimer`] asks of a program that calls `exec`.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Config {
        self.engine = engine;
        self
    }

    /// Serves `/debug/pprof/` on this address.
    #[must_use]
    pub fn listen(mut self, address: &str) -> Config {
        self.listen = Some(address.to_string());
        self
    }

    /// Opens no port: the service mounts the routes itself (features `axum`, `hyper`), or takes
    /// profiles by [`crate::capture`].
    #[must_use]
    pub fn no_listener(mut self) -> Config {
        self.listen = None;
        self
    }

    /// Frames kept of a stack, 1 to 1,024; deeper ones are cut at the root and marked.
    #[must_use]
    pub fn max_depth(mut self, frames: usize) -> Config {
        self.max_depth = frames;
        self
    }

    /// Bytes between handlers and aggregator, default 2 MiB. Made by the first start; later starts keep it as it is.
    #[must_use]
    pub fn ring_bytes(mut self, bytes: usize) -> Config {
        self.ring_bytes = bytes;
        self
    }

    /// Percent of the process's CPU time that sampling it may take, above 0, up to 100; default 10.
    /// The rate falls before it is passed: by what a signal costs on this machine (measured once),
    /// what the background thread uses, and what perf events cost at each switch of threads. Looks at
    /// allocations ([`crate::Alloc`]) take half of it at most, and their interval grows before that
    /// is passed. Sums stay right; profiles say in a comment which rate was achieved. 100 holds
    /// nothing back.
    #[must_use]
    pub fn budget_cpu_percent(mut self, percent: f64) -> Config {
        self.budget_cpu_percent = percent;
        self
    }

    /// Bytes of distinct stacks that all captures may hold together, default 5 MiB; beyond it samples
    /// are counted under `[over the memory budget]`. With the ring, the tables and what handlers use,
    /// everything stays within 8 MB by default, however many stacks there are; what names take while
    /// a profile is made has a limit of its own.
    #[must_use]
    pub fn budget_bytes(mut self, bytes: usize) -> Config {
        self.budget_bytes = bytes;
        self
    }

    /// Sends profiles to a server, besides what can be fetched. Without this call, only where
    /// `PILOTLIGHT_PUSH_URL` says so.
    #[cfg(feature = "push")]
    #[must_use]
    pub fn push(mut self, push: crate::push::Push) -> Config {
        self.push = Some(push);
        self
    }

    /// Whether names and lines are looked up in this process (feature `symbolize`). Without, profiles
    /// carry addresses and build ids, and the server or `go tool pprof` names them.
    #[must_use]
    pub fn symbolize(mut self, on: bool) -> Config {
        self.symbolize = on;
        self
    }

    /// Bytes that symbol tables and debug information may hold once read, default 32 MiB. What does
    /// not fit goes without lines, or without names; see
    /// [`Stats::names_over_memory`](crate::Stats::names_over_memory).
    #[must_use]
    pub fn symbolize_bytes(mut self, bytes: usize) -> Config {
        self.symbolize_bytes = bytes;
        self
    }

    /// Whether `POST /debug/pprof/NAME?enable=1` may switch types of profiles on and off. Default
    /// no: whoever can connect could change what this process spends.
    #[must_use]
    pub fn allow_http_switch(mut self, allowed: bool) -> Config {
        self.http_switch = allowed;
        self
    }

    /// Whether time between polls of spanned futures is counted from the start on
    /// (`/debug/pprof/await`, [`crate::spans`]). Default no; it can be switched later.
    #[must_use]
    pub fn await_profile(mut self, on: bool) -> Config {
        self.await_profile = on;
        self
    }

    /// Times waits of threads for each other (profiles `mutex` and `block`); 0 does not. Waits shorter
    /// than this many nanoseconds are kept with a probability and weigh accordingly. 100,000 is cheap
    /// enough to stay on; 1 keeps every wait. Needs the feature `lock-hooks`.
    #[must_use]
    pub fn lock_rate_ns(mut self, lock_rate_ns: u64) -> Config {
        self.lock_rate_ns = lock_rate_ns;
        self
    }

    /// Whether samples carry labels `trace_id` and `span_id` ([`crate::otel`]). Default no: samples of
    /// different spans do not add up, so profiles grow with the number of requests.
    #[must_use]
    pub fn trace_ids(mut self, in_samples: bool) -> Config {
        self.trace_ids = in_samples;
        self
    }

    /// What a forked child does that does not call `exec`. Default: nothing.
    #[must_use]
    pub fn after_fork(mut self, choice: AfterFork) -> Config {
        self.after_fork = choice;
        self
    }

    /// Whether readers outside of the process find its service name: the OpenTelemetry process
    /// context ([`crate::otel`]). Default yes; where the system refuses, the start goes on without.
    #[must_use]
    pub fn otel_context(mut self, published: bool) -> Config {
        self.otel_context = published;
        self
    }

    /// Mean bytes between two allocations that [`crate::Alloc`] looks at, default 512 KiB, also
    /// `PILOTLIGHT_HEAP_INTERVAL_BYTES`; 0 switches it off, 1 looks at each
    /// allocation, whatever it costs; any other grows where the budget
    /// ([`Config::budget_cpu_percent`]) demands it. Counts from this start on.
    #[must_use]
    pub fn heap_interval_bytes(mut self, bytes: u64) -> Config {
        self.heap_interval_bytes = Some(bytes);
        self
    }

    /// Starts. Sampling itself begins with the first capture; until then the cost is nothing but
    /// one sleeping thread, and one more that accepts connections.
    ///
    /// # Errors
    /// When a setting or an environment variable makes no sense, pilotlight runs already, or the
    /// address cannot be listened on.
    pub fn start(self) -> Result<Guard, Error> {
        let Some(config) = self.overridden()? else {
            return Ok(Guard::off());
        };
        config.check()?;
        let listener = config.listen.as_deref().map(bind).transpose()?;
        // Stops again when there is no server.
        let mut guard = Guard::new(engine::start(&config)?);
        if let Some(bytes) = config.heap_interval_bytes {
            heap::set_interval_bytes(bytes);
        }
        http::allow_switch(config.http_switch);
        symbols::configure(config.symbolize, config.symbolize_bytes);
        otel::put_in_samples(config.trace_ids);
        if config.otel_context {
            // Something for others: it is no reason not to start.
            let _ = otel::publish(&config.service, config.version.as_deref());
        }
        if config.await_profile {
            spans::set_await_enabled(true);
        }
        let server = listener.map(http::serve).transpose();
        guard.server = server.map_err(Error::Thread)?;
        #[cfg(feature = "push")]
        if let Some(push) = config.push {
            let push = push.of_version(config.version.as_deref());
            guard.pusher = Some(crate::push::Pusher::start(&config.service, push)?);
        }
        Ok(guard)
    }

    fn check(&self) -> Result<(), Error> {
        if !(1..=10_000).contains(&self.frequency_hz) {
            return setting("frequency_hz", self.frequency_hz.to_string(), "1 to 10000");
        }
        if let Some(version) = self.version.as_ref().filter(|version| !is_version(version)) {
            let expected = "1 to 128 ASCII characters without spaces";
            return setting("version", version.clone(), expected);
        }
        if !(0.01..=100.0).contains(&self.budget_cpu_percent) {
            let value = self.budget_cpu_percent.to_string();
            return setting("budget_cpu_percent", value, "0.01 to 100");
        }
        self.wall.check()?;
        if !(1..=MAX_DEPTH).contains(&self.max_depth) {
            return setting("max_depth", self.max_depth.to_string(), "1 to 1024");
        }
        if !(1 << 16..=1 << 30).contains(&self.ring_bytes) {
            return setting("ring_bytes", self.ring_bytes.to_string(), "64 KiB to 1 GiB");
        }
        Ok(())
    }

    pub(crate) fn period(&self) -> Duration {
        Duration::from_nanos(1_000_000_000 / u64::from(self.frequency_hz))
    }
}

/// It stands in headers and labels.
fn is_version(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A setting that makes no sense.
pub(crate) fn setting(
    name: &'static str,
    value: String,
    expected: &'static str,
) -> Result<(), Error> {
    Err(Error::Setting {
        name,
        value,
        expected,
    })
}

fn bind(address: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|cause| Error::Listen {
        address: address.to_string(),
        cause,
    })
}
