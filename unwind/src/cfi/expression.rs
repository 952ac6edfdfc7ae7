//! The DWARF expressions that toolchains emit in x86-64 CFI, recognised by shape.
//!
//! Whole-machine counts found four shapes; anything else is reported as unsupported rather than
//! evaluated, because a signal handler and an eBPF program can run a rule but no stack machine.

use super::cursor::Cursor;

const DEREF: u8 = 0x06;
const AND: u8 = 0x1a;
const PLUS: u8 = 0x22;
const PLUS_UCONST: u8 = 0x23;
const SHL: u8 = 0x24;
const GE: u8 = 0x2a;
const LIT0: u8 = 0x30;
const BREG0: u8 = 0x70;
const RSP: u8 = 7;
const RIP: u8 = 16;

/// What a CFA expression computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CfaExpression {
    /// `*(register + offset) + addend`
    Deref {
        register: u8,
        offset: i64,
        addend: i64,
    },
    /// `sp + offset + (rip & 15 >= threshold ? 8 : 0)`, the lazy-binding PLT
    Plt { offset: i64, threshold: u8 },
}

/// Recognises a CFA expression.
pub(crate) fn cfa(bytes: &[u8]) -> Option<CfaExpression> {
    let mut c = Cursor::new(bytes, 0);
    let (register, offset) = breg(&mut c)?;
    let expression = match c.u8()? {
        DEREF => CfaExpression::Deref {
            register,
            offset,
            addend: addend(&mut c)?,
        },
        op if register == RSP && op == BREG0 + RIP => CfaExpression::Plt {
            offset,
            threshold: plt_threshold(&mut c)?,
        },
        _ => return None,
    };
    c.is_empty().then_some(expression)
}

/// Recognises "saved at register + offset".
pub(crate) fn register_slot(bytes: &[u8]) -> Option<(u8, i64)> {
    let mut c = Cursor::new(bytes, 0);
    let slot = breg(&mut c)?;
    c.is_empty().then_some(slot)
}

fn breg(c: &mut Cursor<'_>) -> Option<(u8, i64)> {
    let register = c.u8()?.checked_sub(BREG0).filter(|&r| r < 32)?;
    Some((register, c.sleb()?))
}

/// Nothing, `plus_uconst n`, or `lit n; plus` after a dereference.
fn addend(c: &mut Cursor<'_>) -> Option<i64> {
    if c.is_empty() {
        return Some(0);
    }
    match c.u8()? {
        PLUS_UCONST => i64::try_from(c.uleb()?).ok(),
        lit @ LIT0..BREG0 if lit < LIT0 + 32 && c.u8()? == PLUS => Some(i64::from(lit - LIT0)),
        _ => None,
    }
}

/// The rest of the PLT expression: `0; lit15; and; litN; ge; lit3; shl; plus`; returns N.
fn plt_threshold(c: &mut Cursor<'_>) -> Option<u8> {
    let tail = c.take(8)?;
    let threshold = tail[3].checked_sub(LIT0).filter(|&n| n < 16)?;
    let expected = [0, LIT0 + 15, AND, tail[3], GE, LIT0 + 3, SHL, PLUS];
    (tail == expected).then_some(threshold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plt_expression_of_binutils_is_recognised() {
        let bytes = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(
            cfa(&bytes),
            Some(CfaExpression::Plt {
                offset: 8,
                threshold: 11
            })
        );
        let mut other = bytes;
        other[4] = 0x3e;
        assert_eq!(cfa(&other), None);
    }

    #[test]
    fn dereferences_with_and_without_addend_are_recognised() {
        let deref = |offset, addend| {
            Some(CfaExpression::Deref {
                register: 7,
                offset,
                addend,
            })
        };
        assert_eq!(cfa(&[0x77, 0xa0, 0x01, 0x06]), deref(160, 0));
        assert_eq!(cfa(&[0x77, 0x08, 0x06, 0x23, 8]), deref(8, 8));
        assert_eq!(cfa(&[0x77, 0x08, 0x06, 0x38, 0x22]), deref(8, 8));
        assert_eq!(cfa(&[0x77, 0x08, 0x06, 0x06]), None);
    }

    #[test]
    fn register_slots_are_recognised() {
        assert_eq!(register_slot(&[0x76, 0x7c]), Some((6, -4)));
        assert_eq!(register_slot(&[0x76, 0x7c, 0x06]), None);
    }
}
