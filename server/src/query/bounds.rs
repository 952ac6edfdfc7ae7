//! What bounds a query: its client's patience, and a budget of bytes, CPU time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::engine::QueryError;

/// What one query may take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryLimits {
    /// Bytes of stored columns and symbols read. Default 4 GiB.
    pub read_bytes: u64,
    /// CPU time over all its threads. Default 60 s.
    pub cpu: Duration,
    /// Bytes of the answer under construction. Default 512 MiB.
    pub memory_bytes: u64,
    /// Queries of one client that may wait for their turn. Default 100.
    pub waiting: usize,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            read_bytes: 4 << 30,
            cpu: Duration::from_secs(60),
            memory_bytes: 512 << 20,
            waiting: 100,
        }
    }
}

#[derive(Default)]
struct Spent {
    gone: AtomicBool,
    read_bytes: AtomicU64,
    cpu_ns: AtomicU64,
}

/// Told when the client goes away; counts what the query takes.
#[derive(Clone, Default)]
pub struct Cancel {
    spent: Arc<Spent>,
    limits: Arc<QueryLimits>,
}

impl Cancel {
    /// One with these limits.
    pub fn new(limits: Arc<QueryLimits>) -> Self {
        Self {
            spent: Arc::default(),
            limits,
        }
    }

    /// Ends the query at its next step.
    pub fn cancel(&self) {
        self.spent.gone.store(true, Relaxed);
    }

    /// # Errors
    /// [`QueryError::Cancelled`] once the client has gone.
    pub fn check(&self) -> Result<(), QueryError> {
        if self.spent.gone.load(Relaxed) {
            Err(QueryError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Takes bytes to be read from the budget.
    ///
    /// # Errors
    /// When there are not so many left, or the client has gone.
    pub fn read(&self, bytes: u64) -> Result<(), QueryError> {
        self.check()?;
        let all = self.spent.read_bytes.fetch_add(bytes, Relaxed) + bytes;
        let limit = self.limits.read_bytes;
        if all <= limit {
            return Ok(());
        }
        Err(QueryError::TooLarge(format!(
            "this query reads more than {limit} bytes of stored profiles (max_read of server.query); \
             {NARROW}"
        )))
    }

    /// Takes CPU time since `since` from the budget, and starts it again.
    ///
    /// # Errors
    /// When there is none left, or the client has gone.
    pub fn spend(&self, since: &mut CpuClock) -> Result<(), QueryError> {
        self.check()?;
        // Asking the system costs more than many a part does.
        if since.wall.elapsed() < LAP {
            return Ok(());
        }
        let used = since.lap_ns();
        let all = self.spent.cpu_ns.fetch_add(used, Relaxed) + used;
        if u128::from(all) <= self.limits.cpu.as_nanos() {
            return Ok(());
        }
        Err(QueryError::TooLarge(format!(
            "this query took more than {:?} of CPU time (max_cpu of server.query); {NARROW}",
            self.limits.cpu
        )))
    }

    /// Checks the memory that an answer under construction takes.
    ///
    /// # Errors
    /// When it is over the limit.
    pub fn hold(&self, bytes: usize) -> Result<(), QueryError> {
        let limit = self.limits.memory_bytes;
        if bytes as u64 <= limit {
            return Ok(());
        }
        Err(QueryError::TooLarge(format!(
            "the answer takes more than {limit} bytes of memory (max_memory of server.query); {NARROW}"
        )))
    }
}

const NARROW: &str = "narrow q to fewer series, or from and until to a shorter time";

/// CPU time is looked at no more often than this.
const LAP: Duration = Duration::from_millis(5);

/// CPU time of the calling thread.
pub struct CpuClock {
    last_ns: Option<u64>,
    wall: Instant,
}

impl CpuClock {
    /// Starts now.
    pub fn start() -> Self {
        Self {
            last_ns: thread_cpu_ns(),
            wall: Instant::now(),
        }
    }

    /// Nanoseconds since the start or the last lap; where the system does not say, elapsed time,
    /// which is no less.
    fn lap_ns(&mut self) -> u64 {
        let (last, wall) = (self.last_ns, self.wall);
        *self = Self::start();
        match (last, self.last_ns) {
            (Some(last), Some(now)) => now.saturating_sub(last),
            _ => self.wall.duration_since(wall).as_nanos() as u64,
        }
    }
}

/// `schedstat` says it in nanoseconds, without a system call that needs `unsafe`.
fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_with_words_that_name_limit_and_remedy() {
        let limits = QueryLimits {
            read_bytes: 100,
            cpu: Duration::from_nanos(1),
            memory_bytes: 10,
            waiting: 1,
        };
        let cancel = Cancel::new(Arc::new(limits));
        assert_eq!(cancel.read(60), Ok(()));
        let mut clock = CpuClock::start();
        // The kernel brings schedstat up to date at its tick at the latest.
        let since = Instant::now();
        let spent = loop {
            let spent = cancel.spend(&mut clock);
            if spent.is_err() || since.elapsed() > Duration::from_secs(20) {
                break spent;
            }
        };
        for (error, limit) in [
            (cancel.read(60), "max_read"),
            (spent, "max_cpu"),
            (cancel.hold(11), "max_memory"),
        ] {
            let text = error.unwrap_err().to_string();
            assert!(text.contains(limit) && text.contains("narrow q"), "{text}");
        }
        assert_eq!(cancel.hold(10), Ok(()));
        cancel.cancel();
        assert_eq!(cancel.read(0), Err(QueryError::Cancelled));
    }
}
