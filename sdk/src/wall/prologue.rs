//! The frame pointer of a function that keeps one, where only its stack pointer is known.
//!
//! `/proc/…/syscall` tells a blocked thread's stack and instruction pointer, not its `rbp`. A
//! function built with frame pointers begins with `push rbp; mov rbp, rsp`, pushes, and one
//! subtraction: so `rbp` lies a fixed distance above the stack pointer at every call it makes.
//! Whether that is so is checked: a return address must stand above it.

use std::collections::HashMap;

use pilotlight_unwind::{Kind, Module, Modules, Rule, Stack};

use super::memory;

/// `push rbp; mov rbp, rsp`
const ENTRY: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// The same move as some assemblers encode it.
const ENTRY_TOO: [u8; 4] = [0x55, 0x48, 0x8b, 0xec];
/// Bytes of a function before the call that are searched for its beginning.
const SEARCHED: usize = 16 << 10;
/// Places in code that are remembered.
const REMEMBERED: usize = 8192;

/// Distances from stack to frame pointer, by place in the code.
#[derive(Default)]
pub(super) struct FrameSizes {
    known: HashMap<u64, Option<u32>>,
}

impl FrameSizes {
    /// Code may have come and gone.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// `rbp` in the frame at `pc`, whose stack pointer is `sp` and whose rule is CFA = rbp + n.
    pub(super) fn frame_pointer(
        &mut self,
        pc: u64,
        sp: u64,
        rule: &Rule,
        modules: &Modules,
        stack: &impl Stack,
    ) -> Option<u64> {
        if rule.kind != Kind::Bp {
            return None;
        }
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        let module = modules.find(pc)?;
        let size = *self.known.entry(pc).or_insert_with(|| size_at(pc, module));
        let bp = sp.wrapping_add(u64::from(size?));
        let above = bp.wrapping_add_signed(i64::from(rule.cfa));
        let returns_to = stack.word(above.wrapping_sub(8))?;
        follows_a_call(returns_to, modules).then_some(bp)
    }
}

/// Bytes between stack and frame pointer in the body of the function at `pc`.
fn size_at(pc: u64, module: &Module) -> Option<u32> {
    let mut bytes = vec![0; SEARCHED];
    let from = pc.saturating_sub(SEARCHED as u64).max(module.start_avma);
    let read = memory::read(from, &mut bytes[..(pc - from) as usize]);
    let bytes = &bytes[..read];
    let is_entry = |at: &usize| {
        let address = from + *at as u64;
        let rules = [0, 1, 4].map(|offset| module.rule_at(address + offset));
        rules[0].kind == Kind::Sp
            && rules[0].cfa == 8
            && rules[1].kind == Kind::Sp
            && rules[1].cfa == 16
            && rules[2].kind == Kind::Bp
            && rules[2].cfa == 16
    };
    let starts = (0..read.saturating_sub(ENTRY.len())).rev();
    let looks_so = |at: &usize| {
        [ENTRY, ENTRY_TOO]
            .iter()
            .any(|e| bytes[*at..].starts_with(e))
    };
    let at = starts.filter(looks_so).find(is_entry)?;
    Some(pushed(&bytes[at + ENTRY.len()..]))
}

/// Bytes that a prologue takes from the stack after it set the frame pointer.
fn pushed(mut code: &[u8]) -> u32 {
    let mut size = 0;
    loop {
        match *code {
            [0x50..=0x57, ref rest @ ..] => (size, code) = (size + 8, rest),
            [0x41, 0x50..=0x57, ref rest @ ..] => (size, code) = (size + 8, rest),
            // sub rsp, imm8 and imm32
            [0x48, 0x83, 0xec, n, ..] => return size + u32::from(n),
            [0x48, 0x81, 0xec, a, b, c, d, ..] => return size + u32::from_le_bytes([a, b, c, d]),
            _ => return size,
        }
    }
}

/// The instruction before `address` is a call.
fn follows_a_call(address: u64, modules: &Modules) -> bool {
    if modules.find(address.wrapping_sub(1)).is_none() {
        return false;
    }
    let mut before = [0; 7];
    if memory::read(address.wrapping_sub(7), &mut before) != before.len() {
        return false;
    }
    // call rel32, or FF /2 with two to seven bytes.
    before[2] == 0xe8 || (0..6).any(|at| before[at] == 0xff && before[at + 1] >> 3 & 7 == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_and_the_subtraction_of_a_prologue_add_up() {
        let code = [0x41, 0x57, 0x41, 0x56, 0x53, 0x48, 0x83, 0xec, 0x28, 0x90];
        assert_eq!(pushed(&code), 24 + 0x28);
        let code = [0x53, 0x48, 0x81, 0xec, 0x10, 0x02, 0, 0];
        assert_eq!(pushed(&code), 8 + 0x210);
        assert_eq!(pushed(&[0x50, 0xe8, 1, 2, 3, 4]), 8);
        assert_eq!(pushed(&[]), 0);
    }
}
