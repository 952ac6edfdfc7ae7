//! CIEs and FDEs of one `.eh_frame`, found by the linker's sorted index or by a linear walk.

use super::arch::Arch;
use super::cursor::{Cursor, OMIT};
use super::machine::{Program, State};
use crate::image::Image;
use std::collections::HashMap;

/// What an FDE inherits: alignments, encodings and the state after the common instructions.
#[derive(Clone, Copy)]
pub(crate) struct Cie {
    pub arch: Arch,
    pub code_align: u64,
    pub data_align: i64,
    pub pointer_encoding: u8,
    has_augmentation_data: bool,
    pub signal: bool,
    pub initial: State,
}

/// One function's unwind program.
#[derive(Clone, Copy)]
pub(crate) struct Fde {
    /// First address covered (svma).
    pub start: u64,
    /// First address not covered (svma).
    pub end: u64,
    /// Index of its CIE.
    cie: usize,
    instructions: (usize, usize),
}

/// A `.eh_frame` section or what of its segment follows its start.
pub(crate) struct EhFrame<'a> {
    section: Cursor<'a>,
    /// The bytes reach past the section, up to the end of its segment.
    open_ended: bool,
    index: Option<Index<'a>>,
    /// CIEs met so far.
    cies: Vec<Cie>,
    /// Their indices by offset; `None` where one cannot be read.
    indices: HashMap<usize, Option<usize>>,
    /// The last two met, by offset: neighbours mostly alternate between those.
    recent: [(usize, Option<usize>); 2],
    /// Entries that could not be read.
    pub malformed: u32,
}

/// The sorted table of `.eh_frame_hdr`.
struct Index<'a> {
    table: Cursor<'a>,
    encoding: u8,
    count: u64,
    base: u64,
}

impl<'a> EhFrame<'a> {
    /// Finds the section through `PT_GNU_EH_FRAME`.
    pub fn locate(image: &Image<'a>) -> Option<EhFrame<'a>> {
        let base = image.eh_frame_hdr()?;
        let mut c = Cursor::new(image.bytes_at(base)?, base);
        let [version, pointer, count, encoding] = *c.take(4)? else {
            return None;
        };
        if version != 1 {
            return None;
        }
        let svma = c.encoded(pointer, base)?;
        let count = if count == OMIT {
            None
        } else {
            c.encoded(count, base)
        };
        let index = count.filter(|_| encoding != OMIT).map(|count| Index {
            table: c,
            encoding,
            count,
            base,
        });
        let mut frame = EhFrame::section(image.bytes_at(svma)?, svma);
        frame.open_ended = true;
        frame.index = index;
        Some(frame)
    }

    /// A section whose bytes begin at `svma` and end with the section.
    pub fn section(bytes: &'a [u8], svma: u64) -> EhFrame<'a> {
        EhFrame {
            section: Cursor::new(bytes, svma),
            open_ended: false,
            index: None,
            cies: Vec::new(),
            indices: HashMap::new(),
            recent: [(usize::MAX, None); 2],
            malformed: 0,
        }
    }

    /// Size in bytes of the section or of the rest of its segment.
    pub fn len(&self) -> usize {
        self.section.bytes.len()
    }

    /// All FDEs, sorted by start address.
    pub fn fdes(&mut self) -> Vec<Fde> {
        let mut fdes = match self.index.take() {
            Some(index) => self.indexed(index),
            None => self.walked(),
        };
        if !fdes.is_sorted_by_key(|f| f.start) {
            fdes.sort_by_key(|f| f.start);
        }
        fdes
    }

    fn indexed(&mut self, mut index: Index<'a>) -> Vec<Fde> {
        // An entry takes at least 4 bytes, so a lying count cannot reserve more than the table.
        let most = (index.table.bytes.len() / 4) as u64;
        let mut fdes = Vec::with_capacity(index.count.min(most) as usize);
        for _ in 0..index.count.min(most) {
            let Some(_start) = index.table.encoded(index.encoding, index.base) else {
                break;
            };
            let Some(svma) = index.table.encoded(index.encoding, index.base) else {
                break;
            };
            let at = svma.wrapping_sub(self.section.svma) as usize;
            match self.entry(at) {
                Some(Entry { fde: Some(fde), .. }) => fdes.push(fde),
                _ => self.malformed += 1,
            }
        }
        fdes
    }

    fn walked(&mut self) -> Vec<Fde> {
        let mut fdes = Vec::new();
        let mut at = 0;
        while at + 4 <= self.section.bytes.len() {
            if self.section.bytes[at..at + 4] == [0; 4] {
                // A terminator; crtend's may stand before the last object's entries.
                if self.open_ended {
                    break;
                }
                at += 4;
                continue;
            }
            let Some(entry) = self.entry(at) else {
                self.malformed += 1;
                break;
            };
            fdes.extend(entry.fde);
            self.malformed += u32::from(entry.malformed);
            at = entry.end;
        }
        fdes
    }

    /// Reads the entry at byte `at`; `None` when not even its length can be read.
    fn entry(&mut self, at: usize) -> Option<Entry> {
        let mut c = self.section;
        c.at = at;
        let length = match c.u32()? {
            0xffff_ffff => c.u64()?,
            n => u64::from(n),
        };
        let end = c.at.checked_add(usize::try_from(length).ok()?)?;
        c.bytes = c.bytes.get(..end)?;
        let id_at = c.at;
        let back = c.u32()? as usize;
        if back == 0 {
            return Some(Entry {
                end,
                fde: None,
                malformed: false,
            });
        }
        let fde = id_at.checked_sub(back).and_then(|cie| self.fde(c, cie));
        Some(Entry {
            end,
            fde,
            malformed: fde.is_none(),
        })
    }

    fn fde(&mut self, mut c: Cursor<'a>, cie_at: usize) -> Option<Fde> {
        let index = self.cie(cie_at)?;
        let cie = &self.cies[index];
        let start = c.encoded(cie.pointer_encoding, 0)?;
        let length = c.encoded_value(cie.pointer_encoding & 0x0f)?;
        if cie.has_augmentation_data {
            let n = usize::try_from(c.uleb()?).ok()?;
            c.take(n)?;
        }
        Some(Fde {
            start,
            end: start.checked_add(length)?,
            cie: index,
            instructions: (c.at, c.bytes.len()),
        })
    }

    fn cie(&mut self, at: usize) -> Option<usize> {
        if self.recent[0].0 != at {
            self.recent.swap(0, 1);
        }
        if self.recent[0].0 != at {
            let index = match self.indices.get(&at) {
                Some(known) => *known,
                None => self.add_cie(at),
            };
            self.recent[0] = (at, index);
        }
        self.recent[0].1
    }

    fn add_cie(&mut self, at: usize) -> Option<usize> {
        let index = self.read_cie(at).map(|cie| {
            self.cies.push(cie);
            self.cies.len() - 1
        });
        self.indices.insert(at, index);
        index
    }

    fn read_cie(&self, at: usize) -> Option<Cie> {
        let mut c = self.section;
        c.at = at;
        let length = match c.u32()? {
            0xffff_ffff => c.u64()?,
            n => u64::from(n),
        };
        let end = c.at.checked_add(usize::try_from(length).ok()?)?;
        c.bytes = c.bytes.get(..end)?;
        if c.u32()? != 0 {
            return None;
        }
        parse_cie(&mut c)
    }

    /// The unwind program of `fde` and its CIE.
    pub fn program(&self, fde: &Fde) -> Option<(Program<'a>, &Cie)> {
        let cie = self.cies.get(fde.cie)?;
        let mut code = self.section;
        code.at = fde.instructions.0;
        code.bytes = code.bytes.get(..fde.instructions.1)?;
        Some((
            Program {
                code,
                start: fde.start,
                end: fde.end,
            },
            cie,
        ))
    }
}

struct Entry {
    end: usize,
    fde: Option<Fde>,
    malformed: bool,
}

fn parse_cie(c: &mut Cursor<'_>) -> Option<Cie> {
    let version = c.u8()?;
    let rest = &c.bytes[c.at..];
    let augmentation = rest.split(|&b| b == 0).next()?;
    c.take(augmentation.len() + 1)?;
    if augmentation.starts_with(b"eh") {
        c.u64()?;
    }
    let code_align = c.uleb()?;
    let data_align = c.sleb()?;
    let return_register = if version == 1 {
        u64::from(c.u8()?)
    } else {
        c.uleb()?
    };
    let mut cie = Cie {
        arch: Arch::by_return_register(return_register)?,
        code_align,
        data_align,
        pointer_encoding: 0,
        has_augmentation_data: augmentation.first() == Some(&b'z'),
        signal: false,
        initial: State::START,
    };
    if cie.has_augmentation_data {
        let length = usize::try_from(c.uleb()?).ok()?;
        let after = c.at.checked_add(length)?;
        augmentation_data(c, &augmentation[1..], &mut cie)?;
        c.at = after;
    }
    let program = Program {
        code: *c,
        start: 0,
        end: 1,
    };
    cie.initial = program.initial_state(&cie)?;
    Some(cie)
}

fn augmentation_data(c: &mut Cursor<'_>, letters: &[u8], cie: &mut Cie) -> Option<()> {
    for letter in letters {
        match letter {
            b'R' => cie.pointer_encoding = c.u8()?,
            b'P' => {
                let encoding = c.u8()?;
                c.encoded_value(encoding)?;
            }
            b'L' => {
                c.u8()?;
            }
            b'S' => cie.signal = true,
            // 'B' (pointer authentication) and later letters carry no data that matters here.
            _ => {}
        }
    }
    Some(())
}
