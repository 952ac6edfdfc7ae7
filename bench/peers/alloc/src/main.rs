//! Lines of `name value`: nanoseconds of CPU time an allocation and its free take, and how right the
//! heap profile is, for three allocators bare and under pilotlight's, and for jemalloc's profiling.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use mimalloc::MiMalloc;
use pilotlight::Alloc;
use pilotlight_bench_kit::thread_cpu_ns;
use tikv_jemallocator::Jemalloc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// jemalloc reads it before its first allocation: profiling is there, and off.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8; 46] = b"prof:true,prof_active:false,lg_prof_sample:19\0";

/// Blocks that live at once, and allocations of a pass.
const RING: usize = 20_000;
const ALLOCATIONS: usize = 400_000;
const PASSES: usize = 25;
/// Frames of the program below an allocation.
const DEPTH: u32 = 30;

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// 16 to 1,015 bytes: 516 on average.
    fn layout(&mut self) -> Layout {
        let size = 16 + self.next() as usize % 1000;
        // SAFETY: a power of two, and a size that fits.
        unsafe { Layout::from_size_align_unchecked(size, 8) }
    }
}

/// Allocates and frees, so that `ring` blocks live.
#[inline(never)]
fn churn<A: GlobalAlloc>(allocator: &A, ring: usize, allocations: usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut blocks: Vec<(*mut u8, Layout)> = Vec::with_capacity(ring);
    for n in 0..allocations {
        let layout = random.layout();
        // SAFETY: sizes are not zero.
        let block = unsafe { allocator.alloc(layout) };
        // SAFETY: just allocated.
        unsafe { block.write(1) };
        if blocks.len() < ring {
            blocks.push((block, layout));
            continue;
        }
        let (old, layout) = std::mem::replace(&mut blocks[n % ring], (block, layout));
        // SAFETY: allocated above, by the same allocator.
        unsafe { allocator.dealloc(black_box(old), layout) };
    }
    for (block, layout) in blocks {
        // SAFETY: as above.
        unsafe { allocator.dealloc(block, layout) };
    }
}

/// Runs `work` with so many frames above it.
#[inline(never)]
fn deep(depth: u32, work: &mut dyn FnMut()) {
    match depth {
        0 => work(),
        _ => deep(black_box(depth - 1), work),
    }
    black_box(depth);
}

/// Nanoseconds an allocation and its free.
fn pass<A: GlobalAlloc>(allocator: &A, ring: usize) -> f64 {
    let mut ns = 0;
    deep(DEPTH, &mut || {
        let began = thread_cpu_ns();
        churn(allocator, ring, ALLOCATIONS);
        ns = thread_cpu_ns() - began;
    });
    ns as f64 / ALLOCATIONS as f64
}

/// A named measurement that takes turns with others; the smallest pass counts.
type Case<'a> = (&'a str, Box<dyn FnMut(usize) -> Outcome<f64> + 'a>);

fn costs(ring: usize, suffix: &str) -> Outcome<()> {
    fn plain<'a, A: GlobalAlloc>(name: &'a str, allocator: &'a A) -> Case<'a> {
        (name, Box::new(move |ring| Ok(pass(allocator, ring))))
    }
    let (system, jemalloc, mimalloc) = (
        Alloc::new(System),
        Alloc::new(Jemalloc),
        Alloc::new(MiMalloc),
    );
    let mut cases: Vec<Case<'_>> = vec![
        plain("system", &System),
        plain("system_sampled", &system),
        plain("jemalloc", &Jemalloc),
        plain("jemalloc_sampled", &jemalloc),
        (
            "jemalloc_profiling",
            Box::new(|ring| {
                set_active(true)?;
                let ns = pass(&Jemalloc, ring);
                set_active(false)?;
                Ok(ns)
            }),
        ),
        plain("mimalloc", &MiMalloc),
        plain("mimalloc_sampled", &mimalloc),
    ];
    let mut best = vec![f64::INFINITY; cases.len()];
    for _ in 0..PASSES {
        for ((_, case), best) in cases.iter_mut().zip(&mut best) {
            *best = best.min(case(ring)?);
        }
    }
    for ((name, _), best) in cases.iter().zip(best) {
        println!("{name}_{suffix} {best}");
    }
    Ok(())
}

/// jemalloc's switch.
fn set_active(mut on: bool) -> Outcome<()> {
    // SAFETY: reads a bool of the given size.
    let failed = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"prof.active".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw mut on).cast(),
            size_of::<bool>(),
        )
    };
    match failed {
        0 => Ok(()),
        error => Err(format!("prof.active cannot be set: error {error}").into()),
    }
}

/// Column of the whole profile.
fn total(column: &str) -> Outcome<i64> {
    let profile = pilotlight::take("heap", Duration::ZERO)?;
    let index = profile
        .value_index(Some(column))
        .ok_or("a column is missing")?;
    Ok(profile.total(index))
}

/// How many standard deviations the profile is off, and what it says is in use after all was freed.
fn accuracy<A: GlobalAlloc + Sync>(name: &str, inner: A) -> Outcome<()> {
    const BLOCKS: usize = 200_000;
    let allocator = Alloc::new(inner);
    let mut random = Random(7);
    let (before, in_use_before) = (total("alloc_space")?, total("inuse_space")?);
    let mut blocks = Vec::new();
    let (mut bytes, mut variance) = (0.0, 0.0);
    for _ in 0..BLOCKS {
        let layout = random.layout();
        let size = layout.size() as f64;
        let weight = -1.0 / (-size / (512.0 * 1024.0)).exp_m1();
        bytes += size;
        variance += size * size * (weight - 1.0);
        // SAFETY: sizes are not zero.
        blocks.push((unsafe { allocator.alloc(layout) } as usize, layout));
    }
    let found = (total("alloc_space")? - before) as f64;
    // Freed by other threads.
    std::thread::scope(|scope| {
        for part in blocks.chunks(BLOCKS / 4) {
            let allocator = &allocator;
            scope.spawn(move || {
                for (block, layout) in part {
                    // SAFETY: allocated above, by the same allocator; the allocator is one for all
                    // threads.
                    unsafe { allocator.dealloc(*block as *mut u8, *layout) };
                }
            });
        }
    });
    println!(
        "{name}_off_sigma {}",
        (found - bytes).abs() / variance.sqrt()
    );
    println!(
        "{name}_left_bytes {}",
        total("inuse_space")? - in_use_before
    );
    Ok(())
}

fn main() -> Outcome<()> {
    // The first block says that there is something to profile: the start then reads what is loaded.
    churn(&Alloc::new(System), 1, 1);
    let guard = pilotlight::Config::new("bench").no_listener().start()?;
    accuracy("system", System)?;
    accuracy("jemalloc", Jemalloc)?;
    accuracy("mimalloc", MiMalloc)?;
    costs(RING, "far")?;
    costs(RING / 100, "near")?;
    // Every allocation looked at: what looking costs.
    drop(guard);
    let _guard = pilotlight::Config::new("bench")
        .no_listener()
        .heap_interval_bytes(1)
        .start()?;
    let looked = (0..PASSES)
        .map(|_| pass(&Alloc::new(System), RING / 100))
        .fold(f64::INFINITY, f64::min);
    println!("looked {looked}");
    Ok(())
}
