//! Registers and stacks of a real aarch64 program, interrupted at random instructions, its return
//! addresses signed. `aarch64/record.sh` made them. Runs everywhere.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use gimli::UnwindSection;
use pilotlight_unwind::aarch64::{Registers, unwind_with};
use pilotlight_unwind::{Cache, End, Module, Modules, Segment, Stack, Table};

const EH_FRAME: &[u8] = include_bytes!("aarch64/eh_frame.bin");
const FUNCTIONS: &str = include_str!("aarch64/functions.txt");
const SAMPLES: &[u8] = include_bytes!("aarch64/samples.bin.gz");
const ADDRESS: u64 = (1 << 48) - 1;

struct Recording {
    modules: Modules,
    /// Start and name of functions, by their end.
    functions: BTreeMap<u64, (u64, &'static str)>,
    text: Range<u64>,
    eh_frame: Range<u64>,
    samples: Vec<Sample>,
}

struct Sample {
    regs: Registers,
    words: Vec<u64>,
}

impl Stack for Sample {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.regs.sp)?;
        let word = self.words.get((offset / 8) as usize).copied();
        word.filter(|_| offset % 8 == 0)
    }
}

fn samples() -> Vec<Sample> {
    let mut bytes = Vec::new();
    let mut gzip = flate2::read::GzDecoder::new(SAMPLES);
    gzip.read_to_end(&mut bytes).unwrap();
    let words = bytes.chunks_exact(8);
    let mut words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let mut samples = Vec::new();
    while let Some(pc) = words.next() {
        let mut next = || words.next().unwrap();
        let (sp, fp, lr, count) = (next(), next(), next(), next());
        samples.push(Sample {
            regs: Registers { pc, sp, fp, lr },
            words: words.by_ref().take(count as usize).collect(),
        });
    }
    samples
}

fn recording() -> Recording {
    let mut functions = BTreeMap::new();
    let mut sections = BTreeMap::new();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    for line in FUNCTIONS.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["section", name, start, size] => {
                sections.insert(name, hex(start)..hex(start) + hex(size));
            }
            [start, size, name] => {
                functions.insert(hex(start) + hex(size), (hex(start), name));
            }
            _ => panic!("{line}"),
        }
    }
    let (code, eh_frame) = (&sections[".text"], sections[".eh_frame"].clone());
    let text = sections[".plt"].start..code.end;
    let table = Table::from_eh_frame(EH_FRAME, eh_frame.start, 0, text.clone()).unwrap();
    // A few entries cover code of libc outside `.text`.
    assert!(table.stats().malformed < 30 && table.stats().fdes > 800);
    let module = Module {
        start_avma: text.start,
        end_avma: text.end,
        base_avma: 0,
        table: Arc::new(table),
        build_id: Vec::new(),
        path: b"record".to_vec(),
        segments: vec![Segment {
            start: text.start,
            limit: text.end,
            file_offset: 0,
            executable: true,
        }],
    };
    Recording {
        modules: Modules::new(vec![module]),
        functions,
        text,
        eh_frame,
        samples: samples(),
    }
}

impl Recording {
    /// Frames leaf first, return addresses turned to the call.
    fn walk(&self, cache: &Cache, sample: &Sample) -> (Vec<u64>, End) {
        let mut out = [0; 256];
        let unwound = unwind_with(sample.regs, &self.modules, cache, sample, &mut out);
        let call = |(at, pc): (usize, &u64)| pc - if unwound.is_exact(at) { 0 } else { 4 };
        let frames = out[..unwound.frames].iter().enumerate().map(call);
        (frames.collect(), unwound.end)
    }

    fn name(&self, pc: u64) -> &'static str {
        match self.functions.range(pc + 1..).next() {
            Some((_, (start, name))) if *start <= pc => name,
            _ => "libc",
        }
    }

    fn names(&self, frames: &[u64]) -> Vec<&'static str> {
        frames.iter().map(|pc| self.name(*pc)).collect()
    }

    /// The same by gimli's rows, evaluated in full.
    fn by_gimli(&self, sample: &Sample) -> Vec<u64> {
        let mut section = gimli::EhFrame::new(EH_FRAME, gimli::LittleEndian);
        section.set_address_size(8);
        section.set_vendor(gimli::Vendor::AArch64);
        let bases = gimli::BaseAddresses::default().set_eh_frame(self.eh_frame.start);
        let mut context = gimli::UnwindContext::new();
        let (mut pc, mut exact) = (sample.regs.pc, true);
        let [mut sp, mut fp, mut lr] = [sample.regs.sp, sample.regs.fp, sample.regs.lr];
        let mut frames = Vec::new();
        loop {
            frames.push(pc);
            let row = section.unwind_info_for_address(
                &bases,
                &mut context,
                pc,
                gimli::EhFrame::cie_from_offset,
            );
            let Ok(row) = row else {
                // A stub of the PLT: it is jumped through.
                assert!(exact && self.name(pc) == "libc", "{pc:#x}");
                (pc, exact) = ((lr & ADDRESS) - 4, false);
                continue;
            };
            let gimli::CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
                panic!("{:?}", row.cfa());
            };
            let base = if register == gimli::AArch64::SP {
                sp
            } else {
                fp
            };
            let cfa = base.wrapping_add_signed(offset);
            let saved = |register, same| match row.register(register) {
                Some(gimli::RegisterRule::Offset(offset)) => {
                    sample.word(cfa.wrapping_add_signed(offset))
                }
                Some(gimli::RegisterRule::Undefined) => None,
                _ => Some(same),
            };
            let Some(return_address) = saved(gimli::AArch64::X30, lr) else {
                return frames;
            };
            fp = saved(gimli::AArch64::X29, fp).unwrap();
            (sp, lr) = (cfa, return_address);
            (pc, exact) = ((return_address & ADDRESS) - 4, false);
        }
    }
}

#[test]
fn every_recorded_stack_reaches_the_root_through_main() {
    let recording = recording();
    let cache = Cache::new(&recording.modules);
    let mut seen = BTreeSet::new();
    for sample in &recording.samples {
        let (frames, end) = recording.walk(&cache, sample);
        let names = recording.names(&frames);
        assert_eq!(end, End::Root, "{names:?} {frames:x?}");
        let main = names.iter().rposition(|name| *name == "main");
        let main = main.unwrap_or_else(|| panic!("{names:?} {frames:x?}"));
        assert_eq!(names[main + 1], "__libc_start_call_main", "{names:?}");
        seen.extend(names);
    }
    println!("{} samples of {seen:?}", recording.samples.len());
    for function in [
        "leaf",
        "small",
        "recurse",
        "variable",
        "large",
        "compare",
        "through_libc",
    ] {
        assert!(seen.contains(function), "{function} was never sampled");
    }
    assert_eq!(recording.samples.len(), 64);
}

#[test]
fn a_recursion_has_each_of_its_frames() {
    let recording = recording();
    let cache = Cache::new(&recording.modules);
    let mut deep = 0;
    for sample in &recording.samples {
        let names = recording.names(&recording.walk(&cache, sample).0);
        let levels = names.iter().filter(|name| **name == "recurse").count();
        // In `small` or below it, the recursion is complete.
        if levels > 0 && names.contains(&"small") {
            assert_eq!(levels, 13, "{names:?}");
            deep += 1;
        }
    }
    assert!(deep > 0);
}

/// framehop is no oracle here: it does not read AARCH64_negate_ra_state.
#[test]
fn frames_are_those_that_gimli_evaluates() {
    let recording = recording();
    let cache = Cache::new(&recording.modules);
    for sample in &recording.samples {
        let frames = recording.walk(&cache, sample).0;
        let theirs = recording.by_gimli(sample);
        assert_eq!(frames, theirs, "{:?}", recording.names(&frames));
    }
}

#[test]
fn cached_rules_and_looked_up_ones_lead_to_the_same_frames() {
    let recording = recording();
    let (cache, foreign) = (
        Cache::new(&recording.modules),
        Cache::new(&Modules::default()),
    );
    for sample in recording.samples.iter().chain(&recording.samples) {
        assert_eq!(
            recording.walk(&cache, sample),
            recording.walk(&foreign, sample)
        );
    }
}

#[test]
fn return_addresses_on_the_recorded_stacks_are_signed() {
    let recording = recording();
    let signed = |word: &&u64| **word > ADDRESS && recording.text.contains(&(**word & ADDRESS));
    let count: usize = recording
        .samples
        .iter()
        .map(|s| s.words.iter().filter(signed).count())
        .sum();
    assert!(count > 200, "{count}");
}
