//! DWARF's numbers of the registers that a rule follows.

/// The architecture that a CIE was written for, known by its return-address register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
}

/// No register has this number.
const NONE: u64 = u64::MAX;

impl Arch {
    pub fn by_return_register(register: u64) -> Option<Arch> {
        match register {
            16 => Some(Arch::X86_64),
            30 => Some(Arch::Aarch64),
            _ => None,
        }
    }

    /// Frame pointer, rbx, return address.
    #[inline(always)]
    pub fn followed(self) -> [u64; 3] {
        match self {
            Arch::X86_64 => [6, 3, 16],
            Arch::Aarch64 => [29, NONE, 30],
        }
    }

    pub fn stack_pointer(self) -> u64 {
        match self {
            Arch::X86_64 => 7,
            Arch::Aarch64 => 31,
        }
    }
}
