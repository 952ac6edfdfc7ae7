//! The scan: selected profiles of all parts, on all cores, into one answer.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering::Relaxed;

use super::bounds::CpuClock;
use super::engine::{Cancel, Coverage, Engine, QueryError, Selected, Selection};
use super::open::Data;
use super::read::{self, Added, Want};
use super::touched::Touched;
use crate::block;
use crate::segment::{Damage, PartHeader, Profiles};
use crate::store::cache::Held;
use crate::store::load::{self, LoadError};

/// What a scan adds up in. Each thread has one of its own; they are joined in the order of the
/// parts, so that the answer does not depend on how many there are.
pub trait Gather: Send {
    /// Adds a part.
    ///
    /// # Errors
    /// When that becomes larger than the server builds.
    fn add(&mut self, added: &Added) -> Result<(), QueryError>;

    /// Adds what stands in another one.
    ///
    /// # Errors
    /// As of [`Gather::add`].
    fn join(&mut self, other: Self) -> Result<(), QueryError>;

    /// Bytes that it holds, roughly.
    fn heap_bytes(&self) -> usize;
}

/// Below this many stored bytes a thread of its own costs more than it spares.
const SHARE_BYTES: u64 = 64 << 10;

/// Why a part was not added.
pub(super) enum Stop {
    Query(QueryError),
    Load(LoadError),
}

impl From<QueryError> for Stop {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl From<LoadError> for Stop {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<Damage> for Stop {
    fn from(damage: Damage) -> Self {
        Self::Load(damage.into())
    }
}

impl Engine {
    /// Adds up all selected profiles in what `empty` makes.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], a spent budget, or what adding answers.
    pub fn gather<A: Gather>(
        &self,
        selection: &Selection,
        want: Want,
        cancel: &Cancel,
        empty: impl Fn() -> A + Sync,
    ) -> Result<(A, Coverage), QueryError> {
        let mut coverage = self.gaps(selection.from_ns, selection.until_ns);
        let touched = self.counted_once(selection, true, &mut coverage, cancel)?;
        let shares = shares(&touched, self.threads());
        let scan = |share: &[Touched]| self.gather_share(selection, share, want, cancel, empty());
        let mut sums = on_threads(&shares, scan).into_iter();
        let mut all = empty();
        if let Some(first) = sums.next() {
            let (sum, covered) = first?;
            (all, _) = (sum, coverage.join(covered));
        }
        for next in sums {
            let (sum, covered) = next?;
            all.join(sum)?;
            cancel.hold(all.heap_bytes())?;
            coverage.join(covered);
        }
        Ok((all, coverage))
    }

    /// Threads for a scan: the cores, shared with the other queries that run.
    pub(super) fn threads(&self) -> usize {
        let running = self.metrics.running_queries.load(Relaxed) as usize;
        (self.cores / running.max(1)).max(1)
    }

    fn gather_share<A: Gather>(
        &self,
        selection: &Selection,
        share: &[Touched],
        want: Want,
        cancel: &Cancel,
        mut sum: A,
    ) -> Result<(A, Coverage), QueryError> {
        let coverage = self.each_part(share, cancel, |touched, coverage| {
            self.sums(selection, touched, want, cancel, coverage, |added| {
                sum.add(added)
            })?;
            Ok(sum.heap_bytes())
        })?;
        Ok((sum, coverage))
    }

    /// Reads the parts of a share one by one, within the budget; one that cannot be read is a problem
    /// of the answer. `read` says how many bytes are held after it.
    pub(super) fn each_part(
        &self,
        share: &[Touched],
        cancel: &Cancel,
        mut read: impl FnMut(&Touched, &mut Coverage) -> Result<usize, Stop>,
    ) -> Result<Coverage, QueryError> {
        let mut coverage = Coverage::default();
        let mut clock = CpuClock::start();
        for touched in share {
            cancel.check()?;
            match read(touched, &mut coverage) {
                Ok(held_bytes) => cancel.hold(held_bytes)?,
                Err(Stop::Query(error)) => return Err(error),
                Err(Stop::Load(error)) => {
                    self.problem(&mut coverage, touched, &error);
                }
            }
            cancel.spend(&mut clock)?;
        }
        Ok(coverage)
    }

    /// Reads and adds up one part; `visit` is called when it holds selected profiles.
    fn sums(
        &self,
        selection: &Selection,
        touched: &Touched,
        want: Want,
        cancel: &Cancel,
        coverage: &mut Coverage,
        visit: impl FnOnce(&Added) -> Result<(), QueryError>,
    ) -> Result<(), Stop> {
        let Some(opened) = self.open(touched, cancel, coverage)? else {
            return Ok(());
        };
        let (rows, read_as) = (&opened.rows, selection.read_as(want));
        let mut added = match &opened.data {
            Data::Segment(part) => read::of_part(part, rows, read_as),
            Data::Block(sidecar, files) => {
                read::of_block(sidecar, files, rows, read_as, self.fetch(touched, cancel))?
            }
        };
        selection.keep(&mut added, want);
        visit(&added.with_names(opened.named.as_deref()))?;
        coverage.count(rows);
        Ok(())
    }

    /// Calls `visit` for each selected profile with its total; reads no samples.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`], or a spent budget.
    pub fn walk_totals(
        &self,
        selection: &Selection,
        cancel: &Cancel,
        visit: impl FnMut(&PartHeader, &Selected, i64),
    ) -> Result<Coverage, QueryError> {
        let mut coverage = self.gaps(selection.from_ns, selection.until_ns);
        let touched = self.counted_once(selection, false, &mut coverage, cancel)?;
        self.totals_of(&touched, coverage, cancel, visit)
    }

    /// The same with both sources of one process: for answers that keep them apart.
    ///
    /// # Errors
    /// As of [`Engine::walk_totals`].
    pub fn walk_totals_apart(
        &self,
        selection: &Selection,
        cancel: &Cancel,
        visit: impl FnMut(&PartHeader, &Selected, i64),
    ) -> Result<Coverage, QueryError> {
        let mut coverage = self.gaps(selection.from_ns, selection.until_ns);
        let touched = self.touched(selection, false, &mut coverage);
        self.totals_of(&touched, coverage, cancel, visit)
    }

    fn totals_of(
        &self,
        touched: &[Touched],
        mut coverage: Coverage,
        cancel: &Cancel,
        mut visit: impl FnMut(&PartHeader, &Selected, i64),
    ) -> Result<Coverage, QueryError> {
        let mut clock = CpuClock::start();
        for part in touched {
            cancel.spend(&mut clock)?;
            let read = self.rows_of(part, |rows, totals, left_out| {
                coverage.count(rows);
                coverage.superseded += left_out;
                for (row, &total) in rows.iter().zip(totals) {
                    visit(part.header(), row, total);
                }
            });
            if let Err(error) = read {
                self.problem(&mut coverage, part, &error);
            }
        }
        Ok(coverage)
    }

    /// Calls `visit` with the selected profiles of a part, their totals, and how many were left out
    /// for better ones.
    pub(super) fn rows_of(
        &self,
        touched: &Touched,
        visit: impl FnOnce(&[Selected], &[i64], u64),
    ) -> Result<(), LoadError> {
        let (disk, segment, index) = (&*self.disk, &*touched.view.segment, touched.part);
        let held = self.cache.get(&segment.name, index);
        let of_segment = |profiles: &Profiles| {
            let (rows, left_out) = touched.of_segment(profiles);
            let first = |row: &Selected| profiles.rows[row.at].first_total as usize;
            let total = |row: &Selected| profiles.totals[first(row) + row.column];
            let totals: Vec<i64> = rows.iter().map(total).collect();
            (rows, totals, left_out)
        };
        let of_block = |profiles: &block::Profiles| {
            let (rows, left_out) = touched.of_block(profiles);
            let first = |row: &Selected| profiles.rows[row.at].first_total as usize;
            let total = |row: &Selected| profiles.totals[first(row) + row.column];
            let totals: Vec<i64> = rows.iter().map(total).collect();
            (rows, totals, left_out)
        };
        let (rows, totals, left_out) = match (held, &segment.block) {
            (Some(Held::Part(part)), _) => of_segment(&part.profiles),
            (Some(Held::Sidecar(sidecar)), _) => of_block(&sidecar.profiles),
            (None, None) => of_segment(&load::profiles(disk, segment, index)?),
            (None, Some(files)) => of_block(&load::block_profiles(disk, segment, files, index)?),
        };
        visit(&rows, &totals, left_out);
        Ok(())
    }
}

/// Runs `scan` over each share on a thread of its own; answers in their order.
pub(super) fn on_threads<T: Send>(
    shares: &[&[Touched]],
    scan: impl Fn(&[Touched]) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let (first, others) = shares
            .split_first()
            .map_or((&[][..], &[][..]), |(first, others)| (*first, others));
        let scan = &scan;
        let others: Vec<_> = others
            .iter()
            .copied()
            .map(|share| scope.spawn(move || scan(share)))
            .collect();
        let first = scan(first);
        let others = others.into_iter().map(|thread| {
            let joined = thread.join();
            joined.unwrap_or_else(|panic| resume_unwind(panic))
        });
        std::iter::once(first).chain(others).collect()
    })
}

/// Cuts the parts, in their order, into at most `threads` shares of about as many bytes each.
pub(super) fn shares(touched: &[Touched], threads: usize) -> Vec<&[Touched]> {
    let bytes: Vec<u64> = touched.iter().map(Touched::stored_bytes).collect();
    let all: u64 = bytes.iter().sum();
    let count = (threads as u64).min(all / SHARE_BYTES).max(1);
    let mut shares = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (at, bytes) in bytes.iter().enumerate() {
        // A part goes where its middle lies.
        let middle = sum + bytes / 2;
        if middle * count >= all * (shares.len() as u64 + 1) && at > start {
            shares.push(&touched[start..at]);
            start = at;
        }
        sum += bytes;
    }
    shares.push(&touched[start..]);
    shares
}
