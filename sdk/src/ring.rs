//! A bounded ring of records: many signal handlers write, one thread reads. Lock-free; writers
//! never wait, they fail.
//!
//! Records are read in the order of their reservation: while a writer is stopped between reserving and
//! committing (it lost its CPU, or a debugger holds it), what was written after it waits. At most one
//! ring of records waits so; then writers fail, their samples are counted as `ring_full`, and their
//! CPU time is in profiles under `[dropped samples]`. When the writer goes on, all is read.

use crate::atomics::{AtomicU64, AtomicUsize, Ordering, zeros};
use crate::context::Context;
use crate::kind::Record;
use crate::otel::TraceContext;

/// Words before the frames of a record: the first says, from its highest bit on, committed (1),
/// truncated (1), kind (6), has a context (1), has a trace (1), unused (6), generation (32), words in
/// all (16); the second is the weight. Then the context, if any, and the trace in four words.
const HEADER_WORDS: usize = 2;
/// Set in the first word once a record is whole.
const COMMITTED: u64 = 1 << 63;
const HAS_CONTEXT: u64 = 1 << 55;
const HAS_TRACE: u64 = 1 << 54;

/// What a record says besides its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What this is a sample of.
    pub(crate) record: Record,
    /// What it stands for, in the unit of [`Record`].
    pub(crate) weight: u64,
    /// Generation of the module snapshot that the frames belong to.
    pub(crate) generation: u32,
    /// The stack goes on behind the last frame.
    pub(crate) truncated: bool,
    /// What the thread was doing.
    pub(crate) context: Context,
    /// Which span it worked for, when samples are to say so.
    pub(crate) trace: Option<TraceContext>,
}

impl Header {
    fn words(&self) -> usize {
        let context = usize::from(self.context != Context::default());
        HEADER_WORDS + context + 4 * usize::from(self.trace.is_some())
    }

    fn first_word(&self, length: usize) -> u64 {
        let mut word = COMMITTED
            | u64::from(self.truncated) << 62
            | (self.record as u64) << 56
            | u64::from(self.generation) << 16
            | length as u64;
        if self.context != Context::default() {
            word |= HAS_CONTEXT;
        }
        if self.trace.is_some() {
            word |= HAS_TRACE;
        }
        word
    }
}

/// Words are zero unless they belong to a record that is being written or waits to be read.
pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
    /// Next word to reserve; only grows.
    head: AtomicUsize,
    /// Next word to read; only grows.
    tail: AtomicUsize,
}

impl Ring {
    /// A ring of `bytes`, rounded up to a power of two.
    pub(crate) fn new(bytes: usize) -> Ring {
        Ring::of_words((bytes / 8).next_power_of_two().max(4096))
    }

    /// A ring of a power of two words.
    pub(crate) fn of_words(count: usize) -> Ring {
        Ring {
            words: zeros(count),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
        }
    }

    /// What it was made of.
    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at & (self.words.len() - 1)]
    }

    /// Writes a record; false when there is no room. Async-signal-safe.
    pub(crate) fn push(&self, header: Header, frames: &[u64]) -> bool {
        let before = header.words();
        let length = before + frames.len();
        let Some(start) = self.reserve(length) else {
            return false;
        };
        let mut at = start + 1;
        let mut put = |word: u64| {
            self.word(at).store(word, Ordering::Relaxed);
            at += 1;
        };
        put(header.weight);
        if header.context != Context::default() {
            put(header.context.0);
        }
        if let Some(trace) = &header.trace {
            trace.to_words().into_iter().for_each(&mut put);
        }
        frames.iter().copied().for_each(put);
        self.word(start)
            .store(header.first_word(length), Ordering::Release);
        true
    }

    fn reserve(&self, length: usize) -> Option<usize> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let used = head.wrapping_sub(self.tail.load(Ordering::Acquire));
            if used.cast_signed() < 0 {
                // Others wrote since `head` was looked at, and the reader is past it already.
                head = self.head.load(Ordering::Relaxed);
                continue;
            }
            if used + length > self.words.len() {
                return None;
            }
            let next = head.wrapping_add(length);
            let swapped =
                self.head
                    .compare_exchange_weak(head, next, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Some(head),
                Err(now) => head = now,
            }
        }
    }

    /// Reads the oldest record into `frames`. Only one thread at a time may call this.
    pub(crate) fn pop(&self, frames: &mut Vec<u64>) -> Option<Header> {
        let tail = self.tail.load(Ordering::Relaxed);
        let first = self.word(tail).load(Ordering::Acquire);
        if first & COMMITTED == 0 {
            return None;
        }
        let length = (first & 0xffff) as usize;
        let mut words = (1..length).map(|at| self.word(tail + at).load(Ordering::Relaxed));
        let mut next = || words.next().unwrap_or(0);
        let weight = next();
        let context = match first & HAS_CONTEXT {
            0 => Context::default(),
            _ => Context(next()),
        };
        let trace = (first & HAS_TRACE != 0)
            .then(|| TraceContext::from_words(std::array::from_fn(|_| next())));
        frames.clear();
        frames.extend(words);
        for at in 0..length {
            self.word(tail + at).store(0, Ordering::Relaxed);
        }
        // Release: the zeros are there before a writer may reserve these words.
        self.tail
            .store(tail.wrapping_add(length), Ordering::Release);
        Some(Header {
            record: Record::from_number((first >> 56 & 0x3f) as u8),
            weight,
            generation: (first >> 16) as u32,
            truncated: first >> 62 & 1 == 1,
            context,
            trace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        record: Record::Wall,
        weight: 3 << 40,
        generation: 0xffff_fff7,
        truncated: true,
        context: Context(0),
        trace: None,
    };

    #[test]
    fn context_and_trace_come_back_with_the_record() {
        let ring = Ring::new(1 << 16);
        let mut frames = Vec::new();
        let trace = TraceContext {
            trace_id: std::array::from_fn(|at| at as u8),
            span_id: *b"12345678",
            flags: 0x81,
        };
        for (context, trace) in [
            (7, None),
            (0, Some(trace)),
            (u64::MAX, Some(trace)),
            (0, None),
        ] {
            let header = Header {
                context: Context(context),
                trace,
                ..HEADER
            };
            assert!(ring.push(header, &[4, 5]));
            assert_eq!(ring.pop(&mut frames), Some(header));
            assert_eq!(frames, [4, 5]);
        }
    }

    #[test]
    fn a_record_comes_back_as_it_went_in() {
        let ring = Ring::new(1 << 16);
        let mut frames = Vec::new();
        assert_eq!(ring.pop(&mut frames), None);
        assert!(ring.push(HEADER, &[1, 2, 3]));
        assert_eq!(ring.pop(&mut frames), Some(HEADER));
        assert_eq!(frames, [1, 2, 3]);
        assert_eq!(ring.pop(&mut frames), None);
    }

    #[test]
    fn a_full_ring_refuses_and_goes_on_after_reading() {
        const WORDS: usize = if cfg!(miri) { 256 } else { 4096 };
        let ring = Ring::of_words(WORDS);
        let long = vec![5; WORDS / 4 - 24];
        let mut written = 0;
        while ring.push(HEADER, &long) {
            written += 1;
        }
        assert_eq!(written, WORDS / (long.len() + HEADER_WORDS));
        let mut frames = Vec::new();
        for _ in 0..if cfg!(miri) { 10 } else { 10_000 } {
            assert_eq!(ring.pop(&mut frames), Some(HEADER));
            assert_eq!(frames, long);
            assert!(ring.push(HEADER, &long));
        }
    }

    #[test]
    fn a_stopped_writer_delays_what_comes_after_it_and_loses_nothing() {
        const WORDS: usize = if cfg!(miri) { 128 } else { 8192 };
        let ring = Ring::of_words(WORDS);
        let start = ring.reserve(HEADER_WORDS).unwrap();
        let mut written = 0;
        while ring.push(HEADER, &[1, 2]) {
            written += 1;
        }
        assert_eq!(written, (WORDS - HEADER_WORDS) / 4);
        let mut frames = Vec::new();
        assert_eq!(ring.pop(&mut frames), None);
        let first = COMMITTED | HEADER_WORDS as u64;
        ring.word(start).store(first, Ordering::Release);
        let read = std::iter::from_fn(|| ring.pop(&mut frames)).count();
        assert_eq!(read, written + 1);
    }

    #[test]
    fn writers_on_many_threads_lose_and_mix_nothing() {
        const N: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let ring = Ring::new(1 << 16);
        let mut sums = [0u64; 4];
        std::thread::scope(|scope| {
            for writer in 0..4u64 {
                let ring = &ring;
                scope.spawn(move || {
                    for n in 0..N {
                        let frames = vec![writer; (n % 50 + 1) as usize];
                        while !ring.push(HEADER, &frames) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut frames = Vec::new();
            let mut read = 0;
            while read < 4 * N {
                let Some(_) = ring.pop(&mut frames) else {
                    std::thread::yield_now();
                    continue;
                };
                assert!(frames.iter().all(|frame| frame == &frames[0]));
                sums[frames[0] as usize] += frames.len() as u64;
                read += 1;
            }
        });
        assert_eq!(sums, [N / 50 * (50 * 51 / 2); 4]);
    }
}
