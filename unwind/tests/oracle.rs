//! Every step that the table takes, against framehop's, on real binaries: the same caller
//! registers from the same synthetic registers and stack. Where the two differ, gimli's row of
//! that address (a third reader) must say why, and the reason is one of a fixed list.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::elf::Elf;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder};
use gimli::{CfaRule, RegisterRule, UnwindSection, X86_64};
use pilotlight_unwind::{End, Module, Modules, Registers, Stack, step};
use std::collections::BTreeMap;
use std::ops::Range;

const STACK: Range<u64> = 0x7ff0_0000_0000..0x7ff0_4000_0000;
const SP: u64 = 0x7ff0_2000_0000;
const BP: u64 = SP + 0x400;
const BX: u64 = SP + 0x800;

type Bytes<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;
type Row = gimli::UnwindTableRow<usize>;

/// Splitmix64.
fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stack whose words are higher stack addresses, so that dereferenced CFAs are sensible; where
/// code without CFI keeps its return address, there is an address of code.
struct Model {
    code: Option<u64>,
}

impl Stack for Model {
    fn word(&self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) || !STACK.contains(&address) {
            return None;
        }
        match self.code {
            Some(code) if address == SP || address == BP + 8 => Some(code),
            _ => Some(SP + 0x1000_0000 + mix(address) % 0x10_0000 * 8),
        }
    }
}

/// Why the two may differ. "Right" means: equal to gimli's row, evaluated in full by this test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// CFA in rbx (lazy binding in the dynamic linker): framehop does not follow rbx and guesses
    /// with the frame pointer; ours is right.
    CfaInRbx,
    /// CFA by dereference (realigned stacks, OpenSSL's assembly): framehop's expressions read no
    /// memory, so it guesses with the frame pointer; ours is right.
    CfaDereferenced,
    /// The signal trampoline, a dereference too: ours reads the ucontext and is right.
    SignalFrame,
    /// CFA in a register or by an expression that neither follows: ours stops and says so,
    /// framehop guesses with the frame pointer.
    CfaNotFollowed,
    /// The return address is not at CFA - 8: ours stops and says so, framehop evaluates it.
    ReturnAddressElsewhere,
}

struct Oracle<'a> {
    framehop: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    eh_frame: gimli::EhFrame<Bytes<'a>>,
    bases: gimli::BaseAddresses,
    modules: Modules,
    bias: u64,
    code: Vec<Range<u64>>,
}

impl<'a> Oracle<'a> {
    fn new(elf: &'a Elf) -> Oracle<'a> {
        let bias = if elf.is_pie() { 0x10_0000_0000 } else { 0 };
        let module = Module::from_elf(&elf.bytes, bias, "test").unwrap();
        let section = |name| elf.section(name).map(|s| s.0);
        let bytes = |name| elf.section(name).map(|s| s.1.to_vec());
        let info = ExplicitModuleSectionInfo {
            base_svma: module.table.base_svma(),
            eh_frame_svma: section(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            eh_frame_hdr_svma: section(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            ..ExplicitModuleSectionInfo::default()
        };
        let range = module.start_avma..module.end_avma;
        let mut framehop = UnwinderX86_64::new();
        framehop.add_module(framehop::Module::new(
            "test".into(),
            range,
            module.image_base(),
            info,
        ));
        let data = elf.section(".eh_frame").map_or(&[][..], |s| s.1);
        let mut eh_frame = gimli::EhFrame::new(data, gimli::LittleEndian);
        eh_frame.set_address_size(8);
        let start = |name| section(name).map_or(0, |r| r.start);
        let bases = gimli::BaseAddresses::default()
            .set_eh_frame(start(".eh_frame"))
            .set_text(start(".text"));
        let (cache, modules) = (CacheX86_64::new(), Modules::new(vec![module]));
        Oracle {
            framehop,
            cache,
            eh_frame,
            bases,
            modules,
            bias,
            code: elf.code(),
        }
    }

    /// Every row of every FDE by gimli, by linear walk: start, end, row.
    fn rows(&self) -> BTreeMap<u64, (u64, Row)> {
        let mut rows = BTreeMap::new();
        let mut context = gimli::UnwindContext::new();
        let mut entries = self.eh_frame.entries(&self.bases);
        while let Some(entry) = entries.next().unwrap() {
            let gimli::CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let fde = partial.parse(gimli::EhFrame::cie_from_offset).unwrap();
            let mut table = fde.rows(&self.eh_frame, &self.bases, &mut context).unwrap();
            while let Some(row) = table.next_row().unwrap() {
                if row.start_address() < row.end_address() {
                    rows.insert(row.start_address(), (row.end_address(), row.clone()));
                }
            }
        }
        rows
    }

    fn ours(&self, ip: u64, exact: bool, stack: &Model) -> Result<Registers, End> {
        let ip = ip + u64::from(!exact);
        step(
            Registers {
                ip,
                sp: SP,
                bp: BP,
                bx: BX,
            },
            exact,
            &self.modules,
            stack,
        )
    }

    /// framehop's caller; `None` is the root or an error.
    fn theirs(&mut self, ip: u64, exact: bool, stack: &Model) -> Result<(u64, u64, u64), End> {
        let ip = ip + u64::from(!exact);
        let address = match exact {
            true => FrameAddress::from_instruction_pointer(ip),
            false => FrameAddress::from_return_address(ip).unwrap(),
        };
        let mut regs = UnwindRegsX86_64::new(ip, SP, BP);
        let mut read = |at| stack.word(at).ok_or(());
        match self
            .framehop
            .unwind_frame(address, &mut regs, &mut self.cache, &mut read)
        {
            Ok(Some(ra)) => Ok((ra, regs.sp(), regs.bp())),
            Ok(None) => Err(End::Root),
            Err(_) => Err(End::NoRule),
        }
    }

    /// Compares one address (svma); `Err` carries the reason for a difference.
    fn compare(&mut self, svma: u64, exact: bool, row: Option<&Row>) -> Result<(), Why> {
        let text = self
            .code
            .iter()
            .find(|r| r.end - r.start > 64)
            .expect("a code section");
        let code = self.bias + text.start + 1 + mix(svma) % (text.end - text.start - 1);
        let stack = Model {
            code: row.is_none().then_some(code),
        };
        let ours = self.ours(self.bias + svma, exact, &stack);
        let theirs = self.theirs(self.bias + svma, exact, &stack);
        if ours.map(|r| (r.ip, r.sp, r.bp)) == theirs {
            return Ok(());
        }
        match row.and_then(|row| self.explain(row, ours, theirs, &stack)) {
            Some(why) => Err(why),
            None => {
                panic!("{svma:#x} exact={exact}: ours {ours:x?}, framehop {theirs:x?}, {row:?}")
            }
        }
    }

    fn explain(
        &self,
        row: &Row,
        ours: Result<Registers, End>,
        theirs: Result<(u64, u64, u64), End>,
        stack: &Model,
    ) -> Option<Why> {
        let refused = ours == Err(End::NoRule);
        let right = || ours.is_ok_and(|r| Some((r.ip, r.sp, r.bp)) == self.evaluate(row, stack));
        let at_cfa = row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
        let by_expression = matches!(row.cfa(), CfaRule::Expression(_));
        let (why, explained) = match *row.cfa() {
            CfaRule::RegisterAndOffset {
                register: X86_64::RBX,
                ..
            } => (Why::CfaInRbx, right()),
            _ if !at_cfa && by_expression && !refused => (Why::SignalFrame, right()),
            _ if !at_cfa => (Why::ReturnAddressElsewhere, refused),
            CfaRule::Expression(_) if !refused => (Why::CfaDereferenced, right()),
            CfaRule::RegisterAndOffset {
                register: X86_64::RSP | X86_64::RBP,
                ..
            } => return None,
            _ => (Why::CfaNotFollowed, refused && theirs.is_ok()),
        };
        explained.then_some(why)
    }

    /// Caller's (ip, sp, bp) by gimli's row and expression evaluator.
    fn evaluate(&self, row: &Row, stack: &Model) -> Option<(u64, u64, u64)> {
        let register = |r| match r {
            X86_64::RBX => BX,
            X86_64::RBP => BP,
            X86_64::RSP => SP,
            other => panic!("no value for {other:?}"),
        };
        let cfa = match *row.cfa() {
            CfaRule::RegisterAndOffset {
                register: r,
                offset,
            } => register(r).wrapping_add_signed(offset),
            CfaRule::Expression(e) => self.expression(e, register, stack),
        };
        let restored = |r| match row.register(r) {
            None | Some(RegisterRule::SameValue) => Some(register(r)),
            Some(RegisterRule::Offset(o)) => stack.word(cfa.wrapping_add_signed(o)),
            Some(RegisterRule::Expression(e)) => stack.word(self.expression(e, register, stack)),
            other => panic!("{other:?}"),
        };
        Some((restored(X86_64::RA)?, cfa, restored(X86_64::RBP)?))
    }

    fn expression(
        &self,
        expression: gimli::UnwindExpression<usize>,
        register: impl Fn(gimli::Register) -> u64,
        stack: &Model,
    ) -> u64 {
        use gimli::{EvaluationResult as Needs, Value};
        let encoding = gimli::Encoding {
            format: gimli::Format::Dwarf32,
            version: 4,
            address_size: 8,
        };
        let mut evaluation = expression.get(&self.eh_frame).unwrap().evaluation(encoding);
        let mut state = evaluation.evaluate().unwrap();
        loop {
            let value = match state {
                Needs::Complete => break,
                Needs::RequiresRegister { register: r, .. } => {
                    state = evaluation
                        .resume_with_register(Value::Generic(register(r)))
                        .unwrap();
                    continue;
                }
                Needs::RequiresMemory { address, .. } => stack.word(address).unwrap(),
                other => panic!("{other:?}"),
            };
            state = evaluation
                .resume_with_memory(Value::Generic(value))
                .unwrap();
        }
        match evaluation.result()[0].location {
            gimli::Location::Address { address } => address,
            ref other => panic!("{other:?}"),
        }
    }
}

/// Compares all row boundaries and `random` random addresses; returns the differences by reason.
fn differences(elf: &Elf, random: u64) -> (u64, BTreeMap<Why, u64>) {
    let mut oracle = Oracle::new(elf);
    let rows = oracle.rows();
    let row_at = |svma: u64| {
        let (_, (end, row)) = rows.range(..=svma).next_back()?;
        (svma < *end).then_some(row)
    };
    let in_code = |code: &[Range<u64>], svma| code.iter().any(|r| r.contains(&svma));
    let code = oracle.code.clone();
    let total: u64 = code.iter().map(|r| r.end - r.start).sum();
    let boundaries = rows
        .iter()
        .flat_map(|(&start, &(end, _))| [start.wrapping_sub(1), start, start + 1, end - 1, end]);
    let anywhere = (0..random).map(|i| {
        let mut at = mix(i) % total;
        let holds = |r: &&Range<u64>| {
            let size = r.end - r.start;
            let inside = at < size;
            at -= if inside { 0 } else { size };
            inside
        };
        let section = code.iter().find(holds).unwrap();
        section.start + at
    });
    let (mut compared, mut found) = (0, BTreeMap::new());
    let mut last = 0;
    for svma in boundaries.chain(anywhere) {
        if svma == last || !in_code(&code, svma) {
            continue;
        }
        last = svma;
        for exact in [true, false] {
            compared += 1;
            if let Err(why) = oracle.compare(svma, exact, row_at(svma)) {
                *found.entry(why).or_default() += 1;
            }
        }
    }
    (compared, found)
}

/// Compares, prints the counts, and checks that only `allowed` reasons occur. Other versions of a
/// binary may lack some.
fn check(elf: &Elf, random: u64, allowed: &[Why]) -> BTreeMap<Why, u64> {
    let (compared, found) = differences(elf, random);
    println!("{compared} steps compared, differences {found:?}");
    assert!(compared >= random);
    assert!(found.keys().all(|why| allowed.contains(why)), "{found:?}");
    found
}

#[test]
fn the_test_binary_itself() {
    check(&Elf::open("/proc/self/exe"), 100_000, &[]);
}

#[test]
fn libc() {
    let allowed = [Why::SignalFrame, Why::ReturnAddressElsewhere];
    let found = check(
        &Elf::open(&common::library("libc.so.6").unwrap()),
        100_000,
        &allowed,
    );
    assert!(found.contains_key(&Why::SignalFrame));
}

#[test]
fn the_dynamic_linker() {
    let allowed = [Why::CfaInRbx, Why::SignalFrame, Why::ReturnAddressElsewhere];
    let found = check(&Elf::open(common::LINKER), 100_000, &allowed);
    assert!(found.contains_key(&Why::CfaInRbx));
}

#[test]
fn libstdcxx() {
    let Some(path) = common::library("libstdc++.so.6") else {
        println!("SKIP: libstdc++.so.6 is not installed");
        return;
    };
    check(&Elf::open(&path), 100_000, &[]);
}

#[test]
fn node() {
    let Some(path) = common::program("node") else {
        println!("SKIP: node is not installed");
        return;
    };
    let allowed = [
        Why::CfaDereferenced,
        Why::CfaNotFollowed,
        Why::ReturnAddressElsewhere,
    ];
    check(&Elf::open(&path), 100_000, &allowed);
}

#[test]
fn a_go_binary_has_no_cfi_and_is_walked_by_frame_pointer() {
    let elf = common::go_binary("package main\nfunc main() { println(\"hi\") }\n");
    assert!(elf.section(".eh_frame").is_none());
    check(&elf, 100_000, &[]);
    let table = pilotlight_unwind::Table::from_elf(&elf.bytes).unwrap();
    assert!(table.is_empty());
}
