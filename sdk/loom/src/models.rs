//! What holds in each order of steps.

use loom::sync::Arc;
use loom::thread;

use crate::context::Context;
use crate::kind::Record;
use crate::ring::{Header, Ring};

/// Threads lose their CPU at most so often in one run.
const PREEMPTIONS: usize = 3;

pub(crate) fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Three words: the number is in two of them.
fn push(ring: &Ring, number: u64) -> bool {
    let header = Header {
        record: Record::Cpu,
        weight: number,
        generation: number as u32,
        truncated: false,
        context: Context::default(),
        trace: None,
    };
    ring.push(header, &[number])
}

fn pop(ring: &Ring) -> Option<u64> {
    let mut frames = Vec::new();
    let header = ring.pop(&mut frames)?;
    assert_eq!(frames, [header.weight], "torn");
    assert_eq!(u64::from(header.generation), header.weight, "torn");
    Some(header.weight)
}

/// Two writers of two records each and a reader, in a ring of `words`.
fn two_writers(words: usize) {
    let ring = Arc::new(Ring::of_words(words));
    let writers = [10, 20].map(|first| {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            let written = [first, first + 1].map(|number| push(&ring, number).then_some(number));
            written.into_iter().flatten().collect::<Vec<u64>>()
        })
    });
    let mut read: Vec<u64> = (0..2).filter_map(|_| pop(&ring)).collect();
    let written = writers.map(|writer| writer.join().unwrap());
    read.extend(std::iter::from_fn(|| pop(&ring)));
    // What was not written was refused, which writers count; what was written is read, once, in order.
    for (of, written) in [1, 2].into_iter().zip(written) {
        let of_writer = |number: &u64| number / 10 == of;
        let read: Vec<u64> = read.iter().copied().filter(of_writer).collect();
        assert_eq!(read, written);
    }
    // An empty ring is whole again.
    assert!(push(&ring, 30) && push(&ring, 31));
    assert_eq!(
        (pop(&ring), pop(&ring), pop(&ring)),
        (Some(30), Some(31), None)
    );
}

/// Records wrap around the end, and the third finds no room unless the reader was there.
pub fn a_small_ring_wraps_and_refuses() {
    check(|| two_writers(8));
}

/// Nobody refuses.
pub fn a_ring_with_room_loses_nothing() {
    check(|| {
        let ring = Arc::new(Ring::of_words(16));
        let other = Arc::clone(&ring);
        let writer = thread::spawn(move || assert!(push(&other, 1) && push(&other, 2)));
        assert!(push(&ring, 3));
        writer.join().unwrap();
        let read: Vec<u64> = std::iter::from_fn(|| pop(&ring)).collect();
        assert!(
            [[1, 2, 3], [1, 3, 2], [3, 1, 2]].contains(&[read[0], read[1], read[2]]),
            "{read:?}"
        );
        assert_eq!(read.len(), 3);
    });
}
