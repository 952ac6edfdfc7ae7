//! The frames of one process, by number: a function and a line in it.

use super::lines::line_of;
use super::python::Python;
use pilotlight_agent_bpf::{Interpreted, Runtime, is_interpreted};
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers of frames are told from addresses by their upper byte.
pub(super) const NUMBER: u64 = 0xc2 << 56;
/// A frame whose code object was gone before it was read.
const NAMELESS: u64 = NUMBER;
/// Code objects of one process that are remembered, and frames.
const MOST_FUNCTIONS: usize = 32_768;
const MOST_FRAMES: u64 = 262_144;

/// A function of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its qualified name, where there is one.
    pub name: String,
    /// Its file, as the runtime knows it.
    pub file: String,
    /// Line of its definition.
    pub first_line: u32,
    /// From instructions to lines.
    pub(super) lines: Arc<[u8]>,
}

/// A function, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which.
    pub function: Arc<Function>,
    /// 0 where the table tells none.
    pub line: u32,
}

#[derive(Debug)]
pub(super) struct Frames {
    python: Python,
    functions: HashMap<(u64, u32), Arc<Function>>,
    /// Numbers by function (its address, which is no other's while it is in `frames`) and line.
    numbers: HashMap<(usize, u32), u64>,
    frames: Vec<Frame>,
}

impl Frames {
    pub fn new(python: Python) -> Frames {
        Frames {
            python,
            functions: HashMap::new(),
            numbers: HashMap::new(),
            frames: Vec::new(),
        }
    }

    pub fn runtime(&self) -> Runtime {
        self.python.runtime()
    }

    /// Frames of the loop itself are left out where those that it executes stand.
    pub fn numbered(&mut self, words: &[u64]) -> Vec<u64> {
        let runtime = self.runtime();
        let is_loop = |address: u64| address.wrapping_sub(runtime.loop_start) < runtime.loop_bytes;
        let mut out: Vec<u64> = Vec::with_capacity(words.len());
        each(words, |element| match element {
            Element::Address(address) => out.push(address),
            Element::Frame(frame) => {
                if out.last().is_some_and(|last| is_loop(*last)) {
                    out.pop();
                }
                out.extend(self.number(frame));
            }
        });
        out
    }

    /// `None` for frames that the runtime made for itself.
    fn number(&mut self, frame: Interpreted) -> Option<u64> {
        let Some(function) = self.function(frame) else {
            return Some(NAMELESS);
        };
        // 3.13 runs a few instructions of its own between a class and its `__init__`.
        if function.first_line == 0 && function.file == function.name {
            return None;
        }
        let line = line_of(&function.lines, function.first_line, frame.unit).unwrap_or(0);
        let next = self.frames.len() as u64 + 1;
        let key = (Arc::as_ptr(&function) as usize, line);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        if next > MOST_FRAMES {
            return Some(NAMELESS);
        }
        self.frames.push(Frame { function, line });
        self.numbers.insert(key, NUMBER | next);
        Some(NUMBER | next)
    }

    fn function(&mut self, frame: Interpreted) -> Option<Arc<Function>> {
        let key = (frame.code, frame.check);
        if let Some(known) = self.functions.get(&key) {
            return Some(Arc::clone(known));
        }
        if self.functions.len() >= MOST_FUNCTIONS {
            return None;
        }
        let function = Arc::new(self.python.function(&frame)?);
        self.functions.insert(key, Arc::clone(&function));
        Some(function)
    }

    pub fn frame(&self, number: u64) -> Option<Frame> {
        let index = (number ^ NUMBER).checked_sub(1)?;
        self.frames.get(usize::try_from(index).ok()?).cloned()
    }
}

enum Element {
    Address(u64),
    Frame(Interpreted),
}

/// Halves of frames are left out: of a stack with a gap, one may be at its edge.
fn each(words: &[u64], mut take: impl FnMut(Element)) {
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        let pair = words
            .get(at + 1)
            .and_then(|next| Interpreted::of(word, *next));
        at += 1 + usize::from(pair.is_some());
        match pair {
            Some(frame) => take(Element::Frame(frame)),
            None if is_interpreted(word) => {}
            None => take(Element::Address(word)),
        }
    }
}

/// Of a process of which nothing is known any more.
pub(super) fn without_names(words: &[u64]) -> Vec<u64> {
    let mut out = Vec::with_capacity(words.len());
    each(words, |element| match element {
        Element::Address(address) => out.push(address),
        Element::Frame(_) => out.push(NAMELESS),
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_place_between_addresses_and_halves_are_left_out() {
        let (code, place) = (0xc000_7f00_0000_1000, 0xc100_0001_0000_0002);
        let words = [place, 5, code, place, code, place, 6, code];
        assert_eq!(without_names(&words), [5, NAMELESS, NAMELESS, 6]);
        assert!(super::super::is_frame(NAMELESS) && !super::super::is_frame(6));
    }
}
