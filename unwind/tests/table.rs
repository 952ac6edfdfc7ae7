//! The table itself: what goes in, what comes out, and what damaged input does to it.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]

mod common;

use common::elf::Elf;
use common::{LINKER, own_modules};
use pilotlight_unwind::{End, Registers};
use pilotlight_unwind::{Error, Kind, Module, Modules, PAGE_BITS, Row, Rule, Stack, Table, step};

fn libc_path() -> String {
    common::library("libc.so.6").unwrap()
}

fn same(a: &Table, b: &Table) {
    assert_eq!(a.pages(), b.pages());
    assert_eq!(a.rows(), b.rows());
    assert_eq!(a.rules(), b.rules());
    assert_eq!(a.stats(), b.stats());
}

#[test]
fn mapped_memory_gives_the_same_table_and_build_id_as_the_file() {
    let modules = own_modules();
    let module = modules
        .iter()
        .find(|m| m.path.ends_with(b"libc.so.6"))
        .unwrap();
    let file =
        Module::from_elf(&std::fs::read(libc_path()).unwrap(), module.base_avma, "").unwrap();
    same(&module.table, &file.table);
    assert_eq!(module.build_id, file.build_id);
    assert_eq!(module.build_id.len(), 20);
    assert_eq!(module.segments, file.segments);
}

#[test]
fn the_vdso_is_read_from_its_mapping_alone() {
    // SAFETY: the kernel maps the vDSO's ELF header there, whole.
    let vdso = unsafe {
        let start = libc::getauxval(libc::AT_SYSINFO_EHDR) as *const u8;
        Module::from_mapped_elf(start, "[vdso]").unwrap()
    };
    assert!(vdso.table.stats().fdes >= 4, "{:?}", vdso.table.stats());
    assert_eq!(vdso.table.stats().malformed, 0);
    assert!(!vdso.build_id.is_empty());
}

#[test]
fn a_linear_walk_of_eh_frame_gives_the_same_rows_as_the_index() {
    let libstdcxx = common::library("libstdc++.so.6");
    for path in [libc_path(), LINKER.to_owned()]
        .into_iter()
        .chain(libstdcxx)
    {
        let elf = Elf::open(&path);
        let (range, bytes) = elf.section(".eh_frame").unwrap();
        let indexed = Table::from_elf(&elf.bytes).unwrap();
        let walked = Table::from_eh_frame(bytes, range.start, 0, 0..1 << 31).unwrap();
        assert_eq!(indexed.rows(), walked.rows());
        assert_eq!(indexed.rules(), walked.rules());
    }
}

#[test]
fn lookups_find_what_a_linear_search_finds() {
    let table = Table::from_elf(&std::fs::read(libc_path()).unwrap()).unwrap();
    let mut flat: Vec<(u32, Rule)> = Vec::new();
    for (page, bounds) in (0u32..).zip(table.pages().windows(2)) {
        let rows = &table.rows()[bounds[0] as usize..bounds[1] as usize];
        assert_eq!(rows[0].low, 0, "page {page} begins with a carry row");
        assert!(rows.is_sorted_by(|a, b| a.low < b.low));
        flat.extend(rows.iter().map(|r| {
            (
                page << PAGE_BITS | u32::from(r.low),
                table.rules()[usize::from(r.rule)],
            )
        }));
    }
    for (at, &(start, rule)) in flat.iter().enumerate() {
        let end = flat.get(at + 1).map_or(start + 1, |next| next.0);
        for rel in [start, start + (end - start) / 2, end - 1] {
            assert_eq!(table.lookup(rel), rule, "{rel:#x}");
        }
    }
    assert_eq!(table.lookup(u32::MAX), Rule::GAP);
}

#[test]
fn rows_take_4_bytes_and_rules_are_few() {
    let table = Table::from_elf(&std::fs::read(libc_path()).unwrap()).unwrap();
    let stats = table.stats();
    assert_eq!((size_of::<Row>(), size_of::<Rule>()), (4, 12));
    assert!(
        stats.rows > 20_000 && stats.rules < stats.rows / 50,
        "{stats:?}"
    );
    assert!(
        stats.unsupported_rows < 10 && stats.signal_fdes == 1,
        "{stats:?}"
    );
    let signals = (0..1 << 21)
        .filter(|&rel| table.lookup(rel).kind == Kind::Signal)
        .count();
    assert!(
        (9..32).contains(&signals),
        "__restore_rt is some bytes long: {signals}"
    );
}

#[test]
fn what_is_no_elf_is_refused_with_the_reason() {
    assert_eq!(Table::from_elf(b"#!/bin/sh").unwrap_err(), Error::NotElf);
    assert_eq!(
        Table::from_elf(b"\x7fELF").unwrap_err(),
        Error::Truncated { offset: 0 }
    );
    let mut other = std::fs::read(LINKER).unwrap();
    other[18] = 243;
    assert_eq!(Table::from_elf(&other).unwrap_err(), Error::Machine(243));
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn damaged_files_never_panic_and_stay_bounded() {
    let elf = Elf::open(LINKER);
    let offset =
        |name| elf.section(name).unwrap().1.as_ptr() as usize - elf.bytes.as_ptr() as usize;
    let (frame, index) = (offset(".eh_frame"), offset(".eh_frame_hdr"));
    let areas = [0..0x400, index..index + 0x600, frame..frame + 0x2a00];
    let whole = Table::from_elf(&elf.bytes).unwrap().rows().len();
    let mut state = 0x1234_5678_9abc_def1;
    for round in 0..3_000 {
        let mut bytes = elf.bytes.clone();
        let area = &areas[round % areas.len()];
        for _ in 0..1 + xorshift(&mut state) % 8 {
            let at = area.start + xorshift(&mut state) as usize % area.len();
            bytes[at] = xorshift(&mut state) as u8;
        }
        if round % 7 == 0 {
            bytes.truncate(xorshift(&mut state) as usize % bytes.len());
        }
        if let Ok(table) = Table::from_elf(&bytes) {
            assert!(table.rows().len() < whole * 20);
            table.lookup(xorshift(&mut state) as u32);
        }
    }
}

#[test]
fn an_index_that_names_one_function_a_thousand_times_is_cut_off() {
    let mut elf = Elf::open(LINKER);
    let (frame, index) = (
        elf.section(".eh_frame").unwrap(),
        elf.section(".eh_frame_hdr").unwrap(),
    );
    let longest = {
        // The entry with the longest program, by its length field.
        let entries = index.1[12..].chunks_exact(8).map(|e| {
            let at = i32::from_le_bytes(e[4..8].try_into().unwrap());
            let at = (index.0.start as i64 + i64::from(at) - frame.0.start as i64) as usize;
            (
                u32::from_le_bytes(frame.1[at..at + 4].try_into().unwrap()),
                e.to_vec(),
            )
        });
        entries.max_by_key(|e| e.0).unwrap()
    };
    let at = index.1.as_ptr() as usize - elf.bytes.as_ptr() as usize;
    let (budget, count) = (frame.1.len(), index.1.len() / 8 - 1);
    for i in 0..count {
        elf.bytes[at + 12 + i * 8..][..8].copy_from_slice(&longest.1);
    }
    let stats = Table::from_elf(&elf.bytes).unwrap().stats();
    assert!(
        stats.malformed > 0 || longest.0 as usize * count < budget * 4,
        "{stats:?}"
    );
    assert!((stats.fdes * longest.0) as usize <= budget * 64);
}

/// A stack of words from an address on.
struct Words(u64, Vec<u64>);

impl Stack for Words {
    fn word(&self, address: u64) -> Option<u64> {
        let at = address.checked_sub(self.0)?;
        self.1
            .get((at / 8) as usize)
            .copied()
            .filter(|_| at.is_multiple_of(8))
    }
}

#[test]
fn the_frame_pointer_guess_is_taken_only_when_it_leads_to_code() {
    // A module without CFI: every address takes the guess.
    let elf = common::go_binary("package main\nfunc main() {}\n");
    let module = Module::from_elf(&elf.bytes, 0, "go").unwrap();
    let code = elf.section(".text").unwrap().0.start + 0x100;
    let modules = Modules::new(vec![module]);
    let caller = |bp, stack: [u64; 4]| {
        let regs = Registers {
            ip: code,
            sp: 0x1000,
            bp,
            bx: 7,
        };
        step(regs, true, &modules, &Words(0x1000, stack.to_vec()))
    };
    let found = Registers {
        ip: code + 9,
        sp: 0x1018,
        bp: 0x5000,
        bx: 7,
    };
    assert_eq!(caller(0x1008, [0, 0x5000, code + 9, 0]), Ok(found));
    assert_eq!(
        caller(0x1008, [0, 0x5000, 0x77, 0]),
        Err(End::BadFramePointer),
        "no code"
    );
    assert_eq!(
        caller(0x1004, [0, 0x5000, code, 0]),
        Err(End::BadFramePointer),
        "unaligned"
    );
    assert_eq!(
        caller(0x0ff8, [code, code, code, 0]),
        Err(End::BadFramePointer),
        "below sp"
    );
    assert_eq!(
        caller(0x9000, [code, code, code, 0]),
        Err(End::BadFramePointer),
        "out of bounds"
    );
    assert_eq!(caller(0, [0; 4]), Err(End::Root), "Go's outermost frame");
    assert_eq!(caller(0x1008, [0; 4]), Err(End::Root), "no return address");
}
