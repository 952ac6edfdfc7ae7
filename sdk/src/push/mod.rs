//! Profiles sent to a server, for processes that nobody can scrape. Feature `push`.
//!
//! ```no_run
//! use pilotlight::push::Push;
//!
//! let push = Push::new("http://profiles.internal:4040").label("env", "prod");
//! let _pilotlight = pilotlight::Config::new("checkout").push(push).start()?;
//! # Ok::<(), pilotlight::Error>(())
//! ```
//!
//! Two threads: one takes profiles one interval after the other, without a gap between them; one
//! sends, with pauses that double and vary. Between them stands a queue of bounded bytes: when the
//! server is away for long, the oldest profiles go. What is lost is counted by reason in
//! [`Stats`](crate::Stats).
//!
//! Plain HTTP only: to cross a network that is not trusted, send to an agent or collector on this
//! host, and let that speak TLS.
//!
//! | module | job |
//! |---|---|
//! | `take` | profiles by the interval |
//! | `queue` | what waits, within its bytes |
//! | `send` | tries, pauses, losses |
//! | `client` | one HTTP/1.1 POST |
//! | `url` | where to |

mod client;
mod queue;
mod send;
mod take;
mod url;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Error;
use queue::Queue;
use url::Url;

/// How long the end of the process may be held up by what still waits.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// pprof, to `POST /api/v1/push` of a pilotlight server.
    Pprof,
    /// OTLP profiles (v1development) over HTTP, to `/v1development/profiles` of anything that takes
    /// OTLP.
    Otlp,
}

/// Where to send profiles, which, and how often.
///
/// Environment variables override: `PILOTLIGHT_PUSH_URL`, `PILOTLIGHT_PUSH_PROTOCOL` (`pprof` or
/// `otlp`), `PILOTLIGHT_PUSH_SECONDS`, `PILOTLIGHT_PUSH_TYPES` (names with commas between),
/// `PILOTLIGHT_PUSH_AUTHORIZATION` (value of that header).
#[derive(Clone, Debug)]
pub struct Push {
    url: String,
    protocol: Protocol,
    interval: Duration,
    types: Vec<String>,
    labels: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    queue_bytes: usize,
}

impl Push {
    /// The defaults: pprof, every 10 s, the CPU profile and what other cumulative types are on;
    /// 8 MiB may wait. Without a path, `url` gets that of the protocol.
    #[must_use]
    pub fn new(url: &str) -> Push {
        Push {
            url: url.to_string(),
            protocol: Protocol::Pprof,
            interval: Duration::from_secs(10),
            types: Vec::new(),
            labels: Vec::new(),
            headers: Vec::new(),
            queue_bytes: 8 << 20,
        }
    }

    /// What the server takes.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Push {
        self.protocol = protocol;
        self
    }

    /// Time that one profile covers, 1 s to 1 h.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Push {
        self.interval = interval;
        self
    }

    /// Which types, by the names of [`profile_types`](crate::profile_types); those that are off are
    /// sent as soon as they are on.
    #[must_use]
    pub fn types(mut self, names: &[&str]) -> Push {
        self.types = names.iter().map(|name| name.to_string()).collect();
        self
    }

    /// A label of the series (of the resource in OTLP), besides the service's name.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Push {
        self.labels.push((name.to_string(), value.to_string()));
        self
    }

    /// With the label of the service's version, unless it has one.
    pub(crate) fn of_version(mut self, version: Option<&str>) -> Push {
        let name = match self.protocol {
            Protocol::Pprof => "version",
            Protocol::Otlp => "service.version",
        };
        let version = version.filter(|_| self.labels.iter().all(|(known, _)| known != name));
        let label = version.map(|version| (name.to_string(), version.to_string()));
        self.labels.extend(label);
        self
    }

    /// A header of each request, such as `Authorization`.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Push {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    /// Bytes of encoded profiles that may wait; beyond it the oldest go.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: usize) -> Push {
        self.queue_bytes = bytes;
        self
    }

    /// With what the environment says; `None` when neither says where to.
    pub(crate) fn overridden(
        push: Option<Push>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Push>, Error> {
        let url = variable("PILOTLIGHT_PUSH_URL");
        let Some(mut push) = push.or(url.as_deref().map(Push::new)) else {
            return Ok(None);
        };
        push.url = url.unwrap_or(push.url);
        if let Some(text) = variable("PILOTLIGHT_PUSH_PROTOCOL") {
            push.protocol = match text.as_str() {
                "pprof" => Protocol::Pprof,
                "otlp" => Protocol::Otlp,
                _ => return Err(setting("PILOTLIGHT_PUSH_PROTOCOL", text, "pprof or otlp")),
            };
        }
        if let Some(text) = variable("PILOTLIGHT_PUSH_SECONDS") {
            let seconds = text.parse().map(Duration::from_secs);
            push.interval =
                seconds.map_err(|_| setting("PILOTLIGHT_PUSH_SECONDS", text, "1 to 3600"))?;
        }
        if let Some(text) = variable("PILOTLIGHT_PUSH_TYPES") {
            push.types = text
                .split(',')
                .map(|name| name.trim().to_string())
                .collect();
        }
        if let Some(text) = variable("PILOTLIGHT_PUSH_AUTHORIZATION") {
            push.headers.push(("Authorization".into(), text));
        }
        Ok(Some(push))
    }

    /// Where to, if all of it makes sense.
    pub(crate) fn check(&self) -> Result<Url, Error> {
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.interval) {
            let seconds = format!("{:?}", self.interval);
            return Err(setting("push interval", seconds, "1 s to 1 h"));
        }
        for (name, value) in &self.headers {
            let plain = |text: &str| text.bytes().all(|b| (b' '..0x7f).contains(&b));
            if name.is_empty() || name.contains([':', ' ']) || !plain(name) || !plain(value) {
                let expected = "a name and a value of printable ASCII";
                return Err(setting("push header", name.clone(), expected));
            }
        }
        let path = match self.protocol {
            Protocol::Pprof => "/api/v1/push",
            Protocol::Otlp => "/v1development/profiles",
        };
        let expected = "http://host:port, without TLS (send to an agent on this host instead)";
        Url::parse(&self.url, path).ok_or_else(|| setting("push url", self.url.clone(), expected))
    }
}

fn setting(name: &'static str, value: String, expected: &'static str) -> Error {
    Error::Setting {
        name,
        value,
        expected,
    }
}

/// The threads that send; dropping it sends what waits, for at most 2 s, and ends them.
#[derive(Debug)]
pub(crate) struct Pusher {
    queue: Arc<Queue>,
    taker: Option<JoinHandle<()>>,
    process: u32,
}

impl Pusher {
    pub(crate) fn start(service: &str, push: Push) -> Result<Pusher, Error> {
        let url = push.check()?;
        let queue = Arc::new(Queue::new(push.queue_bytes));
        let sender = send::Sender::new(url, push.headers.clone(), Arc::clone(&queue));
        let taker = take::Taker::new(service, push, Arc::clone(&queue));
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let started = thread("pilotlight-push").spawn(move || sender.run());
        started.map_err(Error::Thread)?;
        let taker = thread("pilotlight-take").spawn(move || taker.run());
        if taker.is_err() {
            queue.end(Instant::now());
            queue.no_more();
        }
        Ok(Pusher {
            queue,
            taker: Some(taker.map_err(Error::Thread)?),
            process: std::process::id(),
        })
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a forked child: the threads are the parent's.
            std::mem::forget(self.taker.take());
            return;
        }
        let deadline = Instant::now() + FAREWELL;
        self.queue.end(deadline);
        if let Some(taker) = self.taker.take() {
            let _ = taker.join();
        }
        self.queue.no_more();
        // The sender is not joined: a server that does not answer must not hold the process up.
        self.queue.wait_until_sent(deadline);
    }
}

#[cfg(test)]
mod tests;
