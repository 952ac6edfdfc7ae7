//! What objects hold stays below what they say, and below the limit.
// Helpers may fail a test.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pilotlight_symbolize::{Memory, Object};

/// Counts the bytes in use.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A file that is never freed, so that its bytes count for nothing.
fn file() -> &'static [u8] {
    let path = std::env::var("PILOTLIGHT_OBJECT").unwrap_or("/proc/self/exe".into());
    std::fs::read(path).unwrap().leak()
}

/// Addresses all over the code of an object.
fn addresses(object: &Object, count: u64) -> Vec<u64> {
    let code = object.segments().iter().find(|s| s.executable).unwrap();
    let step = code.memory_size / count;
    (0..count).map(|n| code.svma + n * step).collect()
}

#[test]
fn estimates_are_above_what_is_held_and_not_far() {
    let bytes = file();
    let memory = Arc::new(Memory::new(usize::MAX));
    let before = LIVE.load(Ordering::Relaxed);
    let object = Object::parse_within(bytes, Arc::clone(&memory)).unwrap();
    let asked = addresses(&object, 10_000);
    let own = LIVE.load(Ordering::Relaxed) - before;
    let held = || LIVE.load(Ordering::Relaxed) - before - own;
    object.has_debug_info();
    println!("index: {} bytes held, {} said", held(), memory.used_bytes());
    for address in &asked {
        drop(object.frames(*address));
        let (held, said) = (held(), memory.used_bytes());
        assert!(held <= said, "{address:#x}: {held} bytes held, {said} said");
    }
    let (held, said) = (held(), memory.used_bytes());
    println!("all: {held} bytes held, {said} said");
    assert!(said < 3 * held, "{held} bytes held, {said} said");
    assert_eq!(memory.refused(), 0);
    drop(object);
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn the_limit_holds_and_what_it_costs_in_names_is_counted() {
    let bytes = file();
    let free = Object::parse(bytes).unwrap();
    let named: Vec<_> = addresses(&free, 500)
        .into_iter()
        .map(|address| (address, free.frames(address)))
        .filter(|(_, frames)| frames.iter().any(|frame| frame.line.is_some()))
        .collect();
    assert!(named.len() > 300, "{} addresses have lines", named.len());
    // Room for the symbol table, the index and a third of the units.
    let limit = {
        let memory = Arc::new(Memory::new(usize::MAX));
        let object = Object::parse_within(bytes, Arc::clone(&memory)).unwrap();
        assert!(object.has_debug_info() && object.symbol_count() > 0);
        let index = memory.used_bytes();
        named
            .iter()
            .for_each(|(address, _)| drop(object.frames(*address)));
        index + (memory.used_bytes() - index) / 3
    };
    let memory = Arc::new(Memory::new(limit));
    let object = Object::parse_within(bytes, Arc::clone(&memory)).unwrap();
    let (mut whole, mut less) = (0, 0);
    for (address, frames) in &named {
        let refused = memory.refused();
        let found = object.frames(*address);
        if memory.refused() == refused {
            assert_eq!(&found, frames);
            whole += 1;
            continue;
        }
        less += 1;
        assert!(
            memory.refused() == refused + 1 && found.len() <= 1,
            "{found:?}"
        );
        let lines = found.iter().filter(|frame| frame.line.is_some());
        assert_eq!(lines.count(), 0, "{found:?}");
    }
    assert!(memory.used_bytes() <= limit);
    assert!(whole > 0 && less > 0, "{whole} whole, {less} with less");
    // Nothing fits: no names at all, and each lookup says so.
    let none = Arc::new(Memory::new(0));
    let object = Object::parse_within(bytes, Arc::clone(&none)).unwrap();
    assert!(
        named
            .iter()
            .all(|(address, _)| object.frames(*address).is_empty())
    );
    assert_eq!((none.refused(), none.used_bytes()), (named.len() as u64, 0));
}
