//! How to get from one frame to its caller: the fixed-size rule that all executors share.

/// How the canonical frame address (CFA: the caller's stack pointer after its call) is found.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No CFI covers the address: try the frame pointer, with sanity checks.
    FramePointer = 0,
    /// The outermost frame of a thread.
    End = 1,
    /// `CFA = sp + cfa`
    Sp = 2,
    /// `CFA = bp + cfa`
    Bp = 3,
    /// `CFA = bx + cfa`; only glibc's `_dl_runtime_resolve*` do this.
    Bx = 4,
    /// `CFA = *(sp + cfa) + extra`
    DerefSp = 5,
    /// `CFA = *(bp + cfa) + extra`
    DerefBp = 6,
    /// `CFA = sp + cfa + (ip & 15 >= extra ? 8 : 0)`: a lazy-binding PLT entry.
    Plt = 7,
    /// `sp` points at a kernel `ucontext_t` that holds the interrupted registers.
    Signal = 8,
    /// CFI that no rule expresses. The walk stops here and says so.
    Unsupported = 9,
}

/// Where the caller's value of a callee-saved register lies.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Saved {
    /// In the register itself.
    Same = 0,
    /// In memory at `CFA + 8 × offset`.
    AtCfa = 1,
    /// In memory at `bp + 8 × offset` (functions that realign the stack).
    AtBp = 2,
    /// Nowhere that a rule can express.
    Lost = 3,
}

/// One unwind rule; the caller's instruction pointer is always at `CFA - 8`.
///
/// `repr(C)`, 12 bytes, no padding, so that an eBPF map can hold it as it is
/// (`docs/formats/unwind-table.md`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// How the CFA is found.
    pub kind: Kind,
    /// Where the caller's `rbp` is.
    pub bp_saved: Saved,
    /// Where the caller's `rbx` is.
    pub bx_saved: Saved,
    /// Addend in bytes after a dereference, or the threshold of a PLT rule.
    pub extra: i8,
    /// Offset of the CFA in bytes.
    pub cfa: i32,
    /// Offset of the saved `rbp`, in units of 8 bytes.
    pub bp: i16,
    /// Offset of the saved `rbx`, in units of 8 bytes.
    pub bx: i16,
}

const _: () = assert!(size_of::<Rule>() == 12 && align_of::<Rule>() == 4);

impl Rule {
    /// The rule of every address that no FDE covers.
    pub const GAP: Rule = Rule::bare(Kind::FramePointer);

    /// A rule of `kind` without offsets.
    pub const fn bare(kind: Kind) -> Rule {
        Rule {
            kind,
            bp_saved: Saved::Same,
            bx_saved: Saved::Same,
            extra: 0,
            cfa: 0,
            bp: 0,
            bx: 0,
        }
    }
}

/// A rule squeezed into 30 bits, so that a cache slot is one atomic word.
///
/// bits 0..3 class, 3 base is bp, 4 rbp was saved, 5..20 CFA offset / 8,
/// 20..30 depth of the saved rbp below the CFA / 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed(pub u32);

/// The class of a packed rule. Zero is never stored: an empty slot is no rule.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Plain = 1,
    End = 2,
    Signal = 3,
    Gap = 4,
    /// Does not fit: look the whole rule up.
    Full = 5,
    Unsupported = 6,
}

impl Packed {
    pub const BITS: u32 = 30;
    const BASE_BP: u32 = 1 << 3;
    const BP_SAVED: u32 = 1 << 4;
    const CFA_LIMIT: i32 = 1 << 15;
    const BP_LIMIT: i32 = 1 << 10;

    /// Packs the rule that holds at `pc`.
    pub fn new(rule: &Rule, pc: u64) -> Packed {
        let class = match rule.kind {
            Kind::Sp => return Packed::plain(rule, rule.cfa, 0),
            Kind::Bp => return Packed::plain(rule, rule.cfa, Packed::BASE_BP),
            Kind::Plt => return Packed::plain(rule, rule.plt_cfa(pc), 0),
            Kind::End => Class::End,
            Kind::Signal => Class::Signal,
            Kind::FramePointer => Class::Gap,
            Kind::Unsupported => Class::Unsupported,
            Kind::Bx | Kind::DerefSp | Kind::DerefBp => Class::Full,
        };
        Packed(class as u32)
    }

    fn plain(rule: &Rule, cfa: i32, flags: u32) -> Packed {
        let full = Packed(Class::Full as u32);
        let saved = match rule.bp_saved {
            Saved::Same => 0,
            Saved::AtCfa => {
                let depth = -i32::from(rule.bp);
                if depth <= 0 || depth >= Packed::BP_LIMIT {
                    return full;
                }
                Packed::BP_SAVED | (depth as u32) << 20
            }
            Saved::AtBp | Saved::Lost => return full,
        };
        if cfa % 8 != 0 || !(0..Packed::CFA_LIMIT).contains(&(cfa / 8)) || cfa < 0 {
            return full;
        }
        Packed(Class::Plain as u32 | flags | saved | ((cfa / 8) as u32) << 5)
    }

    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.0 & 7 == Class::Plain as u32
    }

    pub fn class(self) -> Class {
        match self.0 & 7 {
            1 => Class::Plain,
            2 => Class::End,
            3 => Class::Signal,
            4 => Class::Gap,
            6 => Class::Unsupported,
            _ => Class::Full,
        }
    }

    /// CFA of a plain rule.
    #[inline(always)]
    pub fn cfa(self, sp: u64, bp: u64) -> u64 {
        let base = if self.0 & Packed::BASE_BP != 0 {
            bp
        } else {
            sp
        };
        base.wrapping_add(u64::from((self.0 >> 2) & (0x7fff << 3)))
    }

    /// Bytes below the CFA where rbp is saved; 0 when it is not.
    #[inline(always)]
    pub fn bp_depth(self) -> u64 {
        u64::from((self.0 >> 20) << 3)
    }
}

impl Rule {
    /// CFA offset of a PLT rule at `ip`.
    pub(crate) fn plt_cfa(&self, ip: u64) -> i32 {
        let pushed = (ip & 15) as i32 >= i32::from(self.extra);
        self.cfa.wrapping_add(if pushed { 8 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(kind: Kind, cfa: i32, bp_saved: Saved, bp: i16) -> Rule {
        Rule {
            kind,
            cfa,
            bp_saved,
            bp,
            ..Rule::GAP
        }
    }

    #[test]
    fn plain_rules_survive_packing() {
        let packed = Packed::new(&rule(Kind::Sp, 64, Saved::AtCfa, -2), 0);
        assert!(packed.is_plain());
        assert_eq!((packed.cfa(1000, 5), packed.bp_depth()), (1064, 16));
        let packed = Packed::new(&rule(Kind::Bp, 16, Saved::Same, 0), 0);
        assert_eq!((packed.cfa(1000, 5), packed.bp_depth()), (21, 0));
        let packed = Packed::new(&rule(Kind::Sp, 8 * 0x7fff, Saved::AtCfa, -1023), 0);
        assert_eq!(
            (packed.cfa(0, 5), packed.bp_depth()),
            (8 * 0x7fff, 8 * 1023)
        );
        assert!(packed.0 < 1 << Packed::BITS);
    }

    #[test]
    fn rules_that_do_not_fit_are_looked_up_whole() {
        for rule in [
            rule(Kind::Sp, 8 * 0x8000, Saved::Same, 0),
            rule(Kind::Sp, 12, Saved::Same, 0),
            rule(Kind::Sp, -8, Saved::Same, 0),
            rule(Kind::Bp, 16, Saved::AtCfa, 1),
            rule(Kind::Bp, 16, Saved::AtCfa, -1024),
            rule(Kind::Bp, 16, Saved::AtBp, 0),
            rule(Kind::Bx, 16, Saved::Same, 0),
        ] {
            assert_eq!(Packed::new(&rule, 0).class(), Class::Full, "{rule:?}");
        }
    }

    #[test]
    fn a_plt_rule_is_resolved_for_its_address() {
        let plt = Rule {
            extra: 11,
            ..rule(Kind::Plt, 8, Saved::Same, 0)
        };
        assert_eq!(Packed::new(&plt, 0x100a).cfa(0, 0), 8);
        assert_eq!(Packed::new(&plt, 0x100b).cfa(0, 0), 16);
    }
}
