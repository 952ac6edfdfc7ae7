//! What processes do, told by perf events without samples; samples that were taken elsewhere are put among it in the
//! order of time, and walked here.

use super::collect::Collector;
use super::open::Events;
use super::{record, sys};
use crate::process::Processes;
use crate::{Batch, Error, SamplerOptions};
use pilotlight_unwind::Registers;
use std::sync::Arc;

/// A sample that another sampler took and could not walk.
pub(crate) struct Foreign<'a> {
    pub pid: u32,
    pub tid: u32,
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    pub in_kernel: bool,
    pub registers: Registers,
    /// Leaf first, return addresses as they are.
    pub kernel: &'a [u64],
    /// From the stack pointer upwards.
    pub stack: &'a [u8],
    /// The stack goes on behind `stack`, or may.
    pub stack_full: bool,
}

pub(crate) struct Sideband {
    events: Events,
    collector: Collector,
}

impl Sideband {
    pub fn open(options: &SamplerOptions, processes: Arc<Processes>) -> Result<Sideband, Error> {
        let mut collector = Collector::new(options, processes);
        collector.changed();
        Ok(Sideband {
            events: Events::without_samples(options)?,
            collector,
        })
    }

    /// Readable when there is something to read.
    pub fn descriptors(&self) -> Vec<i32> {
        self.events.descriptors()
    }

    /// Keeps a sample until the next turn.
    pub fn add(&mut self, sample: &Foreign<'_>) {
        self.collector.add(&encoded(sample));
    }

    /// Reads what happened so far; the processes that changed, each once.
    pub fn turn(&mut self) -> Vec<u32> {
        let until_ns = sys::monotonic_ns();
        for ring in self.events.rings() {
            ring.read(&mut |bytes| self.collector.add(bytes));
        }
        self.collector.turn(until_ns);
        let mut changed = self.collector.changed();
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Some process maps memory without end.
    pub fn is_flooded(&mut self) -> bool {
        self.collector.is_flooded()
    }

    /// Samples that were added.
    pub fn take(&mut self) -> Batch {
        self.collector.take()
    }
}

/// The sample as perf would have written it.
fn encoded(sample: &Foreign<'_>) -> Vec<u8> {
    // A copy that ends before the room for it does is not full.
    let room = sample.stack.len() + if sample.stack_full { 0 } else { 8 };
    let registers = sample.registers;
    let chain = sample.kernel.iter().copied();
    let head = [
        u64::from(sample.pid) | u64::from(sample.tid) << 32,
        sample.time_ns,
        sample.kernel.len() as u64,
    ];
    let middle = [
        1,
        registers.bx,
        registers.bp,
        registers.sp,
        registers.ip,
        room as u64,
    ];
    let mut out = record::sample_header(sample.in_kernel).to_vec();
    let words = head.into_iter().chain(chain).chain(middle);
    out.extend(words.flat_map(u64::to_le_bytes));
    out.extend(sample.stack);
    out.resize(out.len() + room - sample.stack.len(), 0);
    out.extend((sample.stack.len() as u64).to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Record;

    #[test]
    fn a_foreign_sample_reads_as_one_of_perf() {
        let registers = Registers {
            ip: 1,
            sp: 2,
            bp: 3,
            bx: 4,
        };
        let foreign = |stack_full| Foreign {
            pid: 7,
            tid: 8,
            time_ns: 55,
            in_kernel: true,
            registers,
            kernel: &[0x10, 0x21],
            stack: &[9; 16],
            stack_full,
        };
        for full in [false, true] {
            let bytes = encoded(&foreign(full));
            assert_eq!(record::time_ns(&bytes), 55);
            let Record::Sample(sample) = record::parse(&bytes) else {
                panic!("no sample")
            };
            assert_eq!((sample.pid, sample.tid, sample.in_kernel), (7, 8, true));
            assert_eq!(sample.kernel(), [0x10, 0x20]);
            assert_eq!(sample.registers, Some(registers));
            assert_eq!((sample.stack, sample.stack_full), (&[9; 16][..], full));
        }
    }
}
