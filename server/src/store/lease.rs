//! Whose turn it is to merge and delete, of several servers over one object store.
//!
//! The newest of a row of objects, `<epoch>.pllease`, says it, each made by a create-only put. Who has
//! the turn makes the next one now and then, and right before each commit: if another had taken over,
//! that put would fail. Another takes over when the newest object has stayed the same for one and a
//! half turns of its own steady clock; no two clocks are compared.

use std::io;

use super::disk::Disk;
use crate::log;

/// End of the names of leases.
pub const END: &str = ".pllease";
/// So many old leases stay: who was away for that long must not find its next one free.
const KEPT: u64 = 200;

/// Both clocks of one server.
#[derive(Clone, Copy, Default)]
pub struct Now {
    /// Never goes back; stands still while the machine sleeps.
    pub steady_ns: i64,
    /// Since 1970.
    pub wall_ns: i64,
}

impl Now {
    /// By the clock that says more: one of them stands still while a machine sleeps.
    fn since(self, then: Self) -> i64 {
        let steady = self.steady_ns.saturating_sub(then.steady_ns);
        steady.max(self.wall_ns.saturating_sub(then.wall_ns))
    }
}

/// What one server knows of whose turn it is.
#[derive(Default)]
pub struct Lease {
    /// The epoch that is this server's, and since when.
    held: Option<(u64, Now)>,
    /// The newest epoch of another, and when it was first seen.
    seen: Option<(u64, i64)>,
}

fn name(epoch: u64) -> String {
    format!("{epoch:020}{END}")
}

/// The newest epoch of a listing.
pub fn newest(files: &[(String, u64)]) -> Option<u64> {
    let leases = files.iter().filter_map(|(name, _)| name.strip_suffix(END));
    leases.filter_map(|epoch| epoch.parse().ok()).max()
}

impl Lease {
    /// Whether it is this server's turn, as far as it knows.
    pub fn held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the newest epoch of this server is so old that another may have taken over since.
    pub fn stale(&self, now: Now, turn_ns: i64) -> bool {
        self.held
            .is_none_or(|(_, since)| now.since(since) > turn_ns)
    }

    /// Settles whose turn it is, given the newest epoch of the store.
    pub fn look(
        &mut self,
        disk: &dyn Disk,
        owner: u64,
        newest: Option<u64>,
        now: Now,
        turn_ns: i64,
    ) {
        if let Some((epoch, since)) = self.held {
            if newest.is_some_and(|newest| newest > epoch) {
                self.held = None;
            } else if now.since(since) > turn_ns / 3 {
                self.take(disk, owner, epoch, now);
            }
            return;
        }
        let Some(newest) = newest else {
            return self.take(disk, owner, 0, now);
        };
        let first_ns = match self.seen {
            Some((seen, first_ns)) if seen == newest => first_ns,
            _ => now.steady_ns,
        };
        self.seen = Some((newest, first_ns));
        if now.steady_ns.saturating_sub(first_ns) > turn_ns / 2 * 3 {
            self.take(disk, owner, newest, now);
        }
    }

    /// Makes the epoch that follows.
    fn take(&mut self, disk: &dyn Disk, owner: u64, epoch: u64, now: Now) {
        let next = epoch + 1;
        match disk.put_new(&name(next), format!("{owner:016x}").as_bytes()) {
            Ok(()) => {
                self.held = Some((next, now));
                if next > KEPT {
                    // One that stays is in nobody's way.
                    let _ = disk.remove(&name(next - KEPT));
                }
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::AlreadyExists {
                    self.held = None;
                }
                log::warn(
                    "another server merges, or the store does not answer",
                    &[("error", &error)],
                );
            }
        }
    }

    /// Whether it is this server's turn still, for long enough for one more put.
    pub fn renew(&mut self, disk: &dyn Disk, owner: u64, now: Now, turn_ns: i64) -> bool {
        let Some((epoch, since)) = self.held else {
            return false;
        };
        if now.since(since) > turn_ns {
            // So late that others may have come and gone.
            match disk.list() {
                Ok(files) if newest(&files) == Some(epoch) => {}
                Ok(_) => self.held = None,
                Err(_) => return false,
            }
        }
        if self.held.is_some() {
            self.take(disk, owner, epoch, now);
        }
        self.held.is_some_and(|(newer, _)| newer > epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::ops::Range;
    use std::sync::Mutex;

    const SECOND: i64 = 1_000_000_000;
    const TURN: i64 = 60 * SECOND;

    /// A store of which only the names matter.
    #[derive(Default)]
    struct Names(Mutex<BTreeSet<String>>);

    impl Disk for Names {
        fn put_new(&self, name: &str, _: &[u8]) -> io::Result<()> {
            match self.0.lock().unwrap().insert(name.to_owned()) {
                true => Ok(()),
                false => Err(io::ErrorKind::AlreadyExists.into()),
            }
        }

        fn list(&self) -> io::Result<Vec<(String, u64)>> {
            let names = self.0.lock().unwrap();
            Ok(names.iter().map(|name| (name.clone(), 16)).collect())
        }

        fn read(&self, _: &str, _: Range<u64>) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.lock().unwrap().remove(name);
            Ok(())
        }
    }

    fn at(seconds: i64) -> Now {
        Now {
            steady_ns: seconds * SECOND,
            wall_ns: seconds * SECOND,
        }
    }

    #[test]
    fn one_server_at_a_time_has_the_turn_and_a_late_one_may_not_commit() {
        let disk = Names::default();
        let (mut a, mut b) = (Lease::default(), Lease::default());
        let look = |lease: &mut Lease, owner: u64, now: Now| {
            let newest = newest(&disk.list().unwrap());
            lease.look(&disk, owner, newest, now, TURN);
            lease.held.is_some()
        };
        assert!(look(&mut a, 1, at(0)), "nobody was there");
        assert!(!look(&mut b, 2, at(0)));
        assert!(a.renew(&disk, 1, at(10), TURN), "a commits");
        assert!(!b.renew(&disk, 2, at(10), TURN), "b may not");
        // As long as `a` goes on, the newest epoch keeps changing.
        for seconds in (20..400).step_by(10) {
            assert!(look(&mut a, 1, at(seconds)));
            assert!(!look(&mut b, 2, at(seconds)));
        }
        // `a` is stopped; `b` waits for one and a half turns after the last change, which it saw at 370 s.
        assert!(!look(&mut b, 2, at(450)));
        assert!(look(&mut b, 2, at(500)));
        assert!(!a.renew(&disk, 1, at(501), TURN), "a comes back too late");
        assert!(b.renew(&disk, 2, at(501), TURN));
        assert!(!look(&mut a, 1, at(502)));
        // A machine that slept: its steady clock stood still, and old leases are gone.
        let asleep = b.held.unwrap().0;
        assert!(look(&mut a, 1, at(600)) || look(&mut a, 1, at(700)));
        for n in 0..2 * KEPT as i64 {
            assert!(a.renew(&disk, 1, at(701 + n), TURN));
        }
        assert!(
            !disk
                .list()
                .unwrap()
                .iter()
                .any(|(n, _)| *n == name(asleep + 1))
        );
        let woken = Now {
            steady_ns: 502 * SECOND,
            wall_ns: 2000 * SECOND,
        };
        assert!(!b.renew(&disk, 2, woken, TURN));
    }
}
