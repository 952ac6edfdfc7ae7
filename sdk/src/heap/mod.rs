//! Heap profile: a global allocator that looks at one allocation in 512 KiB.
//!
//! | file | job |
//! |---|---|
//! | `mod` | [`Alloc`]: what every allocation and free pays |
//! | `sampler` | which allocations are looked at, and what each stands for |
//! | `pace` | what that costs, held within the budget |
//! | `live` | exact table of the looked-at blocks that are not freed yet |
//! | `probe` | a USDT probe point on each of them |
//! | `record` | the looked-at allocation: stack, table, counters |
//! | `rows` | counters to profiles |
//! | `jemalloc` | its own profile, for programs that allocate through it alone (feature) |

#[cfg(feature = "jemalloc")]
pub(crate) mod jemalloc;
mod live;
mod pace;
mod probe;
mod record;
mod rows;
mod sampler;

use std::alloc::{GlobalAlloc, Layout, System};

#[cfg(not(any(not(target_os = "linux"), feature = "backtrace")))]
pub(crate) use pace::spent_ns;
pub(crate) use pace::{hold as hold_budget, set_budget};
pub(crate) use record::{is_installed, samples, table_usage, untracked};
#[cfg(feature = "jemalloc")]
use rows::shape;
pub(crate) use rows::{Shown, profile};
pub(crate) use sampler::{
    DEFAULT_INTERVAL_BYTES, asked_interval_bytes, interval_bytes, set_interval_bytes, unsampled,
};

/// Any allocator, with a heap profile: `heap` and `allocs` at `/debug/pprof/`.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: pilotlight::Alloc = pilotlight::Alloc::system();
///
/// let _pilotlight = pilotlight::Config::new("checkout").no_listener().start()?;
/// let kept = vec![7u8; 16 << 20];
/// let heap = pilotlight::take("heap", std::time::Duration::ZERO)?;
/// let in_use = heap.value_index(Some("inuse_space")).map(|column| heap.total(column));
/// assert!(in_use >= Some(kept.len() as i64), "{in_use:?}");
/// # Ok::<(), pilotlight::Error>(())
/// ```
///
/// Over jemalloc: `pilotlight::Alloc::new(tikv_jemallocator::Jemalloc)`.
///
/// One byte in 512 KiB is chosen at random ([`crate::Config::heap_interval_bytes`]), and the
/// allocation that holds it is looked at: its stack and its address are kept until it is freed. Each
/// stands for as many as its size makes likely, so that sums are right on average whatever the sizes.
/// Where looking costs more than half of the budget ([`crate::Config::budget_cpu_percent`]), fewer are
/// looked at and each stands for more; the profile's period is the interval in effect.
/// All others pay a subtraction; a free pays a look at one byte. Blocks from before
/// [`crate::start`] have no stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alloc<A = System> {
    inner: A,
}

impl Alloc<System> {
    /// Over the system's allocator.
    #[must_use]
    pub const fn system() -> Alloc<System> {
        Alloc { inner: System }
    }
}

impl<A> Alloc<A> {
    /// Over any allocator.
    #[must_use]
    pub const fn new(inner: A) -> Alloc<A> {
        Alloc { inner }
    }

    /// The allocator below.
    #[must_use]
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

// SAFETY: every block is the inner allocator's, with the layout that the caller gave; what is done
// besides never allocates through this one, and cannot unwind.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Alloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        let block = unsafe { self.inner.alloc(layout) };
        sampler::allocated(block, layout.size());
        block
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on to the caller.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        sampler::allocated(block, layout.size());
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // Before it is freed: afterwards another thread may own the address.
        if live::may_hold(block) {
            record::freed(block);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.inner.dealloc(block, layout) }
    }

    /// Counts as a free and an allocation of the new size.
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if live::may_hold(block) {
            // SAFETY: passed on to the caller.
            let resize = || unsafe { self.inner.realloc(block, layout, size) };
            return record::resized(block, size, resize);
        }
        // SAFETY: passed on to the caller.
        let block = unsafe { self.inner.realloc(block, layout, size) };
        sampler::allocated(block, size);
        block
    }
}
