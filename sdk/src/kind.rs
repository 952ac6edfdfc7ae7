//! What a capture samples, and what a record is a sample of.

/// What a capture samples while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sampled {
    /// Time on a CPU, by timers on each thread's CPU clock.
    Cpu,
    /// All time of all threads, running or waiting.
    Wall,
    /// Time that threads wait.
    OffCpu,
    /// Nothing: handlers answer who asks for stacks, and know all modules.
    Stacks,
}

/// What a record in the ring is a sample of; its number in the ring.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// CPU time; weighs timer expiries.
    Cpu = 0,
    /// A thread as it was met while it ran; weighs nanoseconds.
    Wall = 1,
}

impl Record {
    /// The inverse of `as u8`; numbers that no record has read as CPU time.
    pub(crate) fn from_number(number: u8) -> Record {
        match number {
            1 => Record::Wall,
            _ => Record::Cpu,
        }
    }
}

impl Sampled {
    /// Sampled by looking at threads.
    pub(crate) fn is_wall(self) -> bool {
        matches!(self, Sampled::Wall | Sampled::OffCpu)
    }

    /// Such captures count such records.
    pub(crate) fn takes(self, record: Record) -> bool {
        match self {
            Sampled::Cpu => record == Record::Cpu,
            Sampled::Wall => record == Record::Wall,
            Sampled::OffCpu | Sampled::Stacks => false,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const NONE: Kinds = Kinds(0);

    pub(crate) fn has(self, kind: Sampled) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// What is in both.
    pub(crate) fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    /// The sampler of waiting threads is wanted.
    pub(crate) fn has_wall(self) -> bool {
        self.has(Sampled::Wall) || self.has(Sampled::OffCpu)
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Kinds::NONE
    }
}

impl FromIterator<Sampled> for Kinds {
    fn from_iter<T: IntoIterator<Item = Sampled>>(kinds: T) -> Kinds {
        let bits = kinds.into_iter().map(|kind| 1 << kind as u8);
        Kinds(bits.fold(0, |all, bit| all | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_kinds_has_what_was_put_in() {
        let both: Kinds = [Sampled::Cpu, Sampled::Cpu].into_iter().collect();
        assert!(both.has(Sampled::Cpu) && !both.is_empty());
        assert!(Kinds::NONE.is_empty() && both.and(Kinds::NONE).is_empty());
        for record in [Record::Cpu, Record::Wall] {
            assert_eq!(Record::from_number(record as u8), record);
            assert_eq!(Sampled::Cpu.takes(record), record == Record::Cpu);
        }
    }
}
