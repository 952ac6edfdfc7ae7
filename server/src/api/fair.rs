//! Whose query runs next: a flood of one client does not keep the others waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Who asks: its tenant, and the client inside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// Tenant.
    pub tenant: String,
    /// Client of the tenant: its address.
    pub client: String,
}

/// Too many queries of this client wait already.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// Turns of queries. A client holds all places but one at most, so that another one's first query
/// begins at once; a free place goes to the tenant, then the client, that has the fewest running,
/// and was served longest ago.
pub struct Fair {
    inner: Mutex<Inner>,
    places: usize,
    waiting: usize,
}

#[derive(Default)]
struct Inner {
    running: usize,
    served: u64,
    tenants: BTreeMap<String, usize>,
    callers: BTreeMap<Caller, Of>,
}

#[derive(Default)]
struct Of {
    running: usize,
    last_served: u64,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// A place; dropping it lets the next one in.
pub struct Turn {
    fair: Arc<Fair>,
    caller: Caller,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let granted = {
            let mut inner = self.fair.lock();
            inner.leave(&self.caller);
            self.fair.grant(&mut inner)
        };
        send(granted);
    }
}

/// Outside the lock: a turn that nobody takes any more is dropped here, and passes on.
fn send(granted: Vec<(oneshot::Sender<Turn>, Turn)>) {
    for (waiter, turn) in granted {
        let _ = waiter.send(turn);
    }
}

impl Fair {
    /// `places` queries at a time (at least 2), and so many waiting of each client.
    pub fn new(places: usize, waiting: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            places: places.max(2),
            waiting,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// When too many of the caller wait already.
    pub async fn turn(self: &Arc<Self>, caller: Caller) -> Result<Turn, Full> {
        let (waiter, turn) = oneshot::channel();
        let granted = {
            let mut inner = self.lock();
            let of = inner.callers.entry(caller).or_default();
            of.waiting.retain(|waiter| !waiter.is_closed());
            if of.waiting.len() >= self.waiting {
                return Err(Full);
            }
            of.waiting.push_back(waiter);
            self.grant(&mut inner)
        };
        send(granted);
        turn.await.map_err(|_| Full)
    }

    fn grant(self: &Arc<Self>, inner: &mut Inner) -> Vec<(oneshot::Sender<Turn>, Turn)> {
        let mut granted = Vec::new();
        while inner.running < self.places {
            let Some(caller) = inner.next(self.places - 1) else {
                break;
            };
            let Some(waiter) = inner.enter(&caller) else {
                continue;
            };
            let fair = self.clone();
            granted.push((waiter, Turn { fair, caller }));
        }
        granted
    }
}

impl Inner {
    fn next(&self, most: usize) -> Option<Caller> {
        let ready = self
            .callers
            .iter()
            .filter(|(_, of)| !of.waiting.is_empty() && of.running < most);
        let order = ready.min_by_key(|(caller, of)| {
            let of_tenant = self.tenants.get(&caller.tenant).copied().unwrap_or(0);
            (of_tenant, of.running, of.last_served)
        });
        order.map(|(caller, _)| caller.clone())
    }

    /// Takes the caller's first waiter that still waits, and counts it as running.
    fn enter(&mut self, caller: &Caller) -> Option<oneshot::Sender<Turn>> {
        let of = self.callers.get_mut(caller)?;
        let waiter = loop {
            let waiter = of.waiting.pop_front()?;
            if !waiter.is_closed() {
                break waiter;
            }
        };
        self.served += 1;
        of.last_served = self.served;
        of.running += 1;
        *self.tenants.entry(caller.tenant.clone()).or_default() += 1;
        self.running += 1;
        Some(waiter)
    }

    fn leave(&mut self, caller: &Caller) {
        self.running -= 1;
        if let Some(of) = self.callers.get_mut(caller) {
            of.running -= 1;
            of.waiting.retain(|waiter| !waiter.is_closed());
            if of.running == 0 && of.waiting.is_empty() {
                self.callers.remove(caller);
            }
        }
        if let Some(of) = self.tenants.get_mut(&caller.tenant) {
            *of -= 1;
            if *of == 0 {
                self.tenants.remove(&caller.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(tenant: &str, client: &str) -> Caller {
        Caller {
            tenant: tenant.to_owned(),
            client: client.to_owned(),
        }
    }

    type Waiting = std::pin::Pin<Box<dyn Future<Output = Result<Turn, Full>>>>;

    fn ask(fair: &Arc<Fair>, who: Caller) -> Waiting {
        let fair = fair.clone();
        Box::pin(async move { fair.turn(who).await })
    }

    /// Polled once; a turn if it was given.
    async fn now(waiting: &mut Waiting) -> Option<Result<Turn, Full>> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match waiting.as_mut().poll(cx) {
                std::task::Poll::Ready(turn) => Some(turn),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn a_flood_of_one_client_keeps_no_other_waiting() {
        let fair = Fair::new(3, 100);
        let mut flood: Vec<Waiting> = (0..50).map(|_| ask(&fair, caller("t", "a"))).collect();
        let mut held = Vec::new();
        for waiting in &mut flood {
            held.extend(now(waiting).await);
        }
        assert_eq!(held.len(), 2, "one place stays for others");
        let mut other = ask(&fair, caller("t", "b"));
        let other = now(&mut other).await.expect("at once");
        // All places are taken; a client of another tenant comes before those who have some.
        let mut first = ask(&fair, caller("t", "b"));
        assert!(now(&mut first).await.is_none());
        let mut tenant = ask(&fair, caller("u", "a"));
        assert!(now(&mut tenant).await.is_none());
        drop(held.pop());
        let tenant = now(&mut tenant).await.expect("it has none running");
        drop(other);
        let first = now(&mut first)
            .await
            .expect("b has none running, a has one");
        drop((tenant, first));
        drop(held);
    }

    #[tokio::test]
    async fn who_leaves_the_queue_takes_no_place_and_a_full_queue_says_so() {
        let fair = Fair::new(2, 2);
        let mut all: Vec<Waiting> = (0..3).map(|_| ask(&fair, caller("t", "a"))).collect();
        let running = now(&mut all[0]).await.expect("the first place");
        assert!(now(&mut all[1]).await.is_none());
        assert!(now(&mut all[2]).await.is_none());
        let mut more = ask(&fair, caller("t", "a"));
        assert!(matches!(now(&mut more).await, Some(Err(Full))));
        drop(all.remove(1));
        let mut more = ask(&fair, caller("t", "a"));
        assert!(
            now(&mut more).await.is_none(),
            "a place in the queue is free"
        );
        drop(running);
        let second = now(&mut all[1]).await.expect("the one that still waits");
        drop(second);
        assert!(now(&mut more).await.is_some());
        drop((all, more));
        assert_eq!(fair.lock().callers.len(), 0);
        assert_eq!(fair.lock().running, 0);
    }
}
