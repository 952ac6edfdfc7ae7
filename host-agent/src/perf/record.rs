//! Records of the ring as values.

use crate::process::Mapping;
use crate::sampler::Comm;
use pilotlight_unwind::Registers;

const MMAP2: u32 = 10;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const LOST: u32 = 2;
const LOST_SAMPLES: u32 = 13;
const SAMPLE: u32 = 9;
/// `misc`: the name changed because another program is executed.
const COMM_EXEC: u16 = 1 << 13;
const CPU_MODE: u16 = 7;
const IN_KERNEL: u16 = 1;
const IN_USER: u16 = 2;
/// Marks in call chains are the highest numbers.
const CONTEXT: u64 = -4095i64 as u64;
/// Bytes behind every record that is no sample: pid, tid, time.
const TRAILER: usize = 16;

/// A sample as the kernel took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawSample<'a> {
    pub pid: u32,
    pub tid: u32,
    pub in_kernel: bool,
    /// Addresses of the kernel, 8 bytes each, leaf first, marks among them.
    chain: &'a [u8],
    /// None for threads of the kernel.
    pub registers: Option<Registers>,
    /// From the stack pointer upwards.
    pub stack: &'a [u8],
    /// The stack goes on behind `stack`, or may.
    pub stack_full: bool,
}

impl RawSample<'_> {
    /// Kernel frames, leaf first, callers minus 1.
    pub fn kernel(&self) -> Vec<u64> {
        let words = self.chain.chunks_exact(8).map(|w| word(w, 0).unwrap_or(0));
        let frames = words.filter(|&address| address < CONTEXT).enumerate();
        frames
            .map(|(index, address)| address.wrapping_sub(u64::from(index > 0)))
            .collect()
    }
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Sample(RawSample<'a>),
    Mapped {
        pid: u32,
        mapping: Mapping,
    },
    Named {
        pid: u32,
        tid: u32,
        comm: Comm,
        executed: bool,
    },
    Forked {
        pid: u32,
        parent: u32,
        tid: u32,
    },
    Exited {
        pid: u32,
        tid: u32,
    },
    Lost(u64),
    Other,
}

impl Record<'_> {
    /// The process whose program or mappings are others from now on.
    pub fn changes(&self) -> Option<u32> {
        match self {
            Record::Mapped { pid, .. } => Some(*pid),
            Record::Named { pid, executed, .. } => executed.then_some(*pid),
            Record::Forked { pid, parent, .. } => (pid != parent).then_some(*pid),
            Record::Exited { pid, tid } => (pid == tid).then_some(*pid),
            Record::Sample(_) | Record::Lost(_) | Record::Other => None,
        }
    }
}

/// Whose mapping a record tells of.
pub(super) fn maps(record: &[u8]) -> Option<u32> {
    (kind(record) == MMAP2).then(|| word(record, 8).map(|ids| ids as u32))?
}

/// When a record was written, in nanoseconds of the records' clock; 0 when it does not say.
pub(super) fn time_ns(record: &[u8]) -> u64 {
    let at = match kind(record) {
        SAMPLE => Some(16),
        _ => record.len().checked_sub(8),
    };
    at.and_then(|at| word(record, at)).unwrap_or(0)
}

/// How the record of a sample begins; its size is nobody's concern here.
pub(super) fn sample_header(in_kernel: bool) -> [u8; 8] {
    let misc = if in_kernel { IN_KERNEL } else { IN_USER };
    let mut header = [0; 8];
    header[..4].copy_from_slice(&SAMPLE.to_le_bytes());
    header[4..6].copy_from_slice(&misc.to_le_bytes());
    header
}

fn kind(record: &[u8]) -> u32 {
    half(record, 0).unwrap_or(0)
}

/// Reads a whole record, header included. What cannot be read is [`Record::Other`].
pub(super) fn parse(record: &[u8]) -> Record<'_> {
    let misc = record
        .get(4..6)
        .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
    let parsed = match kind(record) {
        SAMPLE => sample(record, misc).map(Record::Sample),
        MMAP2 => mapped(record),
        COMM => named(record, misc),
        FORK => forked(record),
        EXIT => exited(record),
        LOST => word(record, 16).map(Record::Lost),
        LOST_SAMPLES => word(record, 8).map(Record::Lost),
        _ => None,
    };
    parsed.unwrap_or(Record::Other)
}

/// pid, tid, time, chain, registers, stack: the order is the kernel's.
fn sample(record: &[u8], misc: u16) -> Option<RawSample<'_>> {
    let frames = usize::try_from(word(record, 24)?).ok()?;
    let chain_end = 32usize.checked_add(frames.checked_mul(8)?)?;
    let chain = record.get(32..chain_end)?;
    let (registers, at) = match word(record, chain_end)? {
        0 => (None, chain_end + 8),
        _ => (Some(registers(record, chain_end + 8)?), chain_end + 40),
    };
    let size = usize::try_from(word(record, at)?).ok()?;
    let stack = match size {
        0 => &[],
        _ => {
            let copied =
                usize::try_from(word(record, at.checked_add(8)?.checked_add(size)?)?).ok()?;
            record.get(at + 8..at + 8 + copied.min(size))?
        }
    };
    Some(RawSample {
        pid: half(record, 8)?,
        tid: half(record, 12)?,
        in_kernel: misc & CPU_MODE == IN_KERNEL,
        chain,
        registers,
        stack,
        stack_full: size > 0 && stack.len() == size,
    })
}

/// rbx, rbp, rsp, rip: ascending bits of [`super::open::REGISTERS`].
fn registers(record: &[u8], at: usize) -> Option<Registers> {
    Some(Registers {
        bx: word(record, at)?,
        bp: word(record, at + 8)?,
        sp: word(record, at + 16)?,
        ip: word(record, at + 24)?,
    })
}

fn mapped(record: &[u8]) -> Option<Record<'_>> {
    let name = record.get(72..record.len().checked_sub(TRAILER)?)?;
    let path = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let start = word(record, 16)?;
    let anonymous = path == b"//anon";
    let mapping = Mapping {
        start,
        end: start.checked_add(word(record, 24)?)?,
        file_offset: word(record, 32)?,
        device: u64::from(half(record, 40)?) << 32 | u64::from(half(record, 44)?),
        inode: word(record, 48)?,
        path: if anonymous { [].into() } else { path.into() },
    };
    let pid = half(record, 8)?;
    Some(Record::Mapped { pid, mapping })
}

fn named(record: &[u8], misc: u16) -> Option<Record<'_>> {
    Some(Record::Named {
        pid: half(record, 8)?,
        tid: half(record, 12)?,
        comm: Comm::new(record.get(16..record.len().checked_sub(TRAILER)?)?),
        executed: misc & COMM_EXEC != 0,
    })
}

/// pid, ppid, tid, ptid, time.
fn forked(record: &[u8]) -> Option<Record<'_>> {
    Some(Record::Forked {
        pid: half(record, 8)?,
        parent: half(record, 12)?,
        tid: half(record, 16)?,
    })
}

fn exited(record: &[u8]) -> Option<Record<'_>> {
    Some(Record::Exited {
        pid: half(record, 8)?,
        tid: half(record, 16)?,
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, words: &[u64], tail: &[u8]) -> Vec<u8> {
        let mut out = kind.to_le_bytes().to_vec();
        out.extend(misc.to_le_bytes());
        out.extend([0, 0]);
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(tail);
        out
    }

    #[test]
    fn a_sample_is_read_and_no_prefix_of_it_panics() {
        let words = [
            7 | 8 << 32,
            1000,
            3,
            -128i64 as u64,
            0xffff_ffff_8100_0010,
            0xffff_ffff_8200_0020,
            2,
            11,
            12,
            0x7ffc_0000,
            0x40_1000,
            16,
            1,
            2,
            8,
        ];
        let bytes = record(SAMPLE, IN_KERNEL, &words, &[]);
        assert_eq!(time_ns(&bytes), 1000);
        let Record::Sample(sample) = parse(&bytes) else {
            panic!("no sample")
        };
        assert_eq!((sample.pid, sample.tid, sample.in_kernel), (7, 8, true));
        assert_eq!(
            sample.kernel(),
            [0xffff_ffff_8100_0010, 0xffff_ffff_8200_001f]
        );
        let registers = sample.registers.unwrap();
        assert_eq!(
            (registers.bx, registers.bp, registers.sp, registers.ip),
            (11, 12, 0x7ffc_0000, 0x40_1000)
        );
        assert_eq!(
            (sample.stack, sample.stack_full),
            (&1u64.to_le_bytes()[..], false)
        );
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Record::Other, "{end}");
        }
    }

    #[test]
    fn names_mappings_forks_and_losses_are_read() {
        let mut name = b"cc1\0\0\0\0\0".to_vec();
        name.extend([0; 16]);
        let named = record(COMM, COMM_EXEC, &[7 | 7 << 32], &name);
        let expected = Record::Named {
            pid: 7,
            tid: 7,
            comm: Comm::new(b"cc1"),
            executed: true,
        };
        assert_eq!(parse(&named), expected);
        let mut path = b"/usr/bin/x\0\0\0\0\0\0".to_vec();
        path.extend([0; 8]);
        path.extend(55u64.to_le_bytes());
        let mapped = record(
            MMAP2,
            0,
            &[7 | 8 << 32, 0x1000, 0x2000, 0x3000, 1 | 2 << 32, 99, 0, 5],
            &path,
        );
        let Record::Mapped { pid: 7, mapping } = parse(&mapped) else {
            panic!("no mapping")
        };
        assert_eq!(
            (mapping.start, mapping.end, mapping.file_offset),
            (0x1000, 0x3000, 0x3000)
        );
        assert_eq!(
            (mapping.device, mapping.inode, &*mapping.path),
            (1 << 32 | 2, 99, &b"/usr/bin/x"[..])
        );
        assert_eq!(time_ns(&mapped), 55);
        let forked = record(FORK, 0, &[9 | 7 << 32, 9 | 7 << 32, 1], &[0; 16]);
        assert_eq!(
            parse(&forked),
            Record::Forked {
                pid: 9,
                parent: 7,
                tid: 9
            }
        );
        assert_eq!(
            parse(&record(LOST, 0, &[1, 42], &[0; 16])),
            Record::Lost(42)
        );
    }
}
