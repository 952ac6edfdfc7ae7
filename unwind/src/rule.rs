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

/// One unwind rule. On x86-64 the caller's instruction pointer is always at `CFA - 8`. On aarch64 `bp`
/// is x29, and `bx` says where the return address is (`Same`: in x30).
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

/// A rule squeezed into the upper 30 bits of a word, so that a cache slot is one atomic word: the
/// lower 34 bits are the slot's tag, and mean nothing here.
///
/// bits 34..37 class, 37 the cache's own mark, 38..48 words from the CFA down to the saved rbp (1, the
/// return address, where rbp is kept), 49..64 CFA offset in words: on top, so that one shift
/// extracts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed(pub u64);

/// The class of a packed rule.
#[repr(u64)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// CFA from sp. Zero, so that tag and class are compared at once.
    Plain = 0,
    End = 1,
    Signal = 2,
    Gap = 3,
    /// Does not fit: look the whole rule up.
    Full = 4,
    Unsupported = 5,
    /// As `Plain`, with the CFA from bp.
    PlainBp = 6,
}

impl Packed {
    /// Bits left for the tag of a cache slot.
    pub const TAG_BITS: u32 = 34;
    pub const TAG_MASK: u64 = (1 << Packed::TAG_BITS) - 1;
    /// Tag, class and mark together.
    pub const CHECKED_BITS: u32 = Packed::TAG_BITS + 4;
    /// A slot's entry belongs to the neighbouring slot.
    pub const DISPLACED: u64 = 1 << 37;
    const DEPTH_SHIFT: u32 = 38;
    const DEPTH_LIMIT: i32 = 1 << 10;
    const KEPT: i32 = 1;
    /// Used by aarch64 only.
    const ALONE_SHIFT: u32 = 48;
    const CFA_SHIFT: u32 = 49;
    const CFA_LIMIT: i32 = 1 << 15;

    /// Packs the rule that holds at `pc`.
    pub fn new(rule: &Rule, pc: u64) -> Packed {
        let plain = match rule.kind {
            Kind::Sp => Packed::plain(rule, rule.cfa, Class::Plain),
            Kind::Bp => Packed::plain(rule, rule.cfa, Class::PlainBp),
            Kind::Plt => Packed::plain(rule, rule.plt_cfa(pc), Class::Plain),
            Kind::End => return Packed::bare(Class::End),
            Kind::Signal => return Packed::bare(Class::Signal),
            Kind::FramePointer => return Packed::bare(Class::Gap),
            Kind::Unsupported => return Packed::bare(Class::Unsupported),
            Kind::Bx | Kind::DerefSp | Kind::DerefBp => None,
        };
        plain.unwrap_or(Packed::bare(Class::Full))
    }

    /// A class without offsets.
    pub const fn bare(class: Class) -> Packed {
        Packed((class as u64) << Packed::TAG_BITS)
    }

    /// Packs a rule of aarch64: frame pointer and return address saved side by side, the return
    /// address alone, or neither.
    pub fn aarch64(rule: &Rule) -> Packed {
        let class = match rule.kind {
            Kind::Sp => Class::Plain,
            Kind::Bp => Class::PlainBp,
            _ => return Packed::new(rule, 0),
        };
        Packed::record(rule, class).unwrap_or(Packed::bare(Class::Full))
    }

    fn record(rule: &Rule, class: Class) -> Option<Packed> {
        let depth = |word: i16| {
            Some(-i32::from(word)).filter(|depth| (1..Packed::DEPTH_LIMIT).contains(depth))
        };
        let (depth, alone) = match (rule.bp_saved, rule.bx_saved) {
            (Saved::Same, Saved::Same) => (0, false),
            (Saved::Same, Saved::AtCfa) => (depth(rule.bx)?, true),
            (Saved::AtCfa, Saved::AtCfa) if rule.bx == rule.bp + 1 => (depth(rule.bp)?, false),
            _ => return None,
        };
        let words = Some(rule.cfa / 8)
            .filter(|w| rule.cfa % 8 == 0 && (0..Packed::CFA_LIMIT).contains(w))?;
        let fields = (words as u64) << Packed::CFA_SHIFT
            | u64::from(alone) << Packed::ALONE_SHIFT
            | (depth as u64) << Packed::DEPTH_SHIFT;
        Some(Packed(Packed::bare(class).0 | fields))
    }

    /// Of a rule of aarch64: only the return address is saved, where [`Packed::bp_depth`] says.
    pub fn is_alone(self) -> bool {
        self.0 >> Packed::ALONE_SHIFT & 1 == 1
    }

    fn plain(rule: &Rule, cfa: i32, class: Class) -> Option<Packed> {
        let below = Packed::KEPT + 1..Packed::DEPTH_LIMIT;
        let depth = match rule.bp_saved {
            Saved::Same => Packed::KEPT,
            Saved::AtCfa => Some(-i32::from(rule.bp)).filter(|depth| below.contains(depth))?,
            Saved::AtBp | Saved::Lost => return None,
        };
        let words = Some(cfa / 8).filter(|w| cfa % 8 == 0 && (0..Packed::CFA_LIMIT).contains(w))?;
        let fields = (words as u64) << Packed::CFA_SHIFT | (depth as u64) << Packed::DEPTH_SHIFT;
        Some(Packed(Packed::bare(class).0 | fields))
    }

    pub fn class(self) -> Class {
        match (self.0 >> Packed::TAG_BITS) & 7 {
            0 => Class::Plain,
            1 => Class::End,
            2 => Class::Signal,
            3 => Class::Gap,
            5 => Class::Unsupported,
            6 => Class::PlainBp,
            _ => Class::Full,
        }
    }

    /// CFA of a plain rule whose base register holds `base`.
    #[inline(always)]
    pub fn cfa(self, base: u64) -> u64 {
        base.wrapping_add((self.0 >> Packed::CFA_SHIFT) * 8)
    }

    /// Bytes from the CFA down to the saved rbp, or to the return address where rbp is kept.
    #[inline(always)]
    pub fn bp_depth(self) -> u64 {
        (self.0 >> (Packed::DEPTH_SHIFT - 3)) & (8 * (Packed::DEPTH_LIMIT as u64 - 1))
    }

    /// rbp is kept: what [`Packed::bp_depth`] leads to is no rbp.
    #[inline(always)]
    pub fn bp_kept(self) -> bool {
        self.bp_depth() == 8 * Packed::KEPT as u64
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
        let pack = |rule| Packed::new(&rule, 0);
        let packed = pack(rule(Kind::Sp, 64, Saved::AtCfa, -2));
        assert_eq!(
            (packed.class(), packed.cfa(1000), packed.bp_depth()),
            (Class::Plain, 1064, 16)
        );
        let packed = pack(rule(Kind::Bp, 16, Saved::Same, 0));
        assert_eq!(
            (packed.class(), packed.cfa(1000), packed.bp_depth()),
            (Class::PlainBp, 1016, 8)
        );
        let packed = pack(rule(Kind::Sp, 8 * 0x7fff, Saved::AtCfa, -1023));
        assert_eq!((packed.cfa(0), packed.bp_depth()), (8 * 0x7fff, 8 * 1023));
        assert_eq!(packed.0 & ((1 << Packed::TAG_BITS) - 1), 0);
    }

    #[test]
    fn rules_that_do_not_fit_are_looked_up_whole() {
        for rule in [
            rule(Kind::Sp, 8 * 0x8000, Saved::Same, 0),
            rule(Kind::Sp, 12, Saved::Same, 0),
            rule(Kind::Sp, -8, Saved::Same, 0),
            rule(Kind::Bp, 16, Saved::AtCfa, 1),
            rule(Kind::Bp, 16, Saved::AtCfa, -1),
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
        assert_eq!(Packed::new(&plt, 0x100a).cfa(0), 8);
        assert_eq!(Packed::new(&plt, 0x100b).cfa(0), 16);
    }
}
