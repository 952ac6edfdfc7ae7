//! Go's own tables (`.gopclntab`, Go 1.18 and later), which `-ldflags=-s -w` leaves in place:
//! functions, files, lines, and inlined calls where the module's data can be found.
//!
//! Layout: `runtime/symtab.go`, `runtime/symtabinl.go` and `internal/abi/symtab.go` of Go.

use super::code::Code;
use super::coverage::Coverage;
use super::format::NONE;
use super::units::emit;
use super::write::{Row, Scope, Writer};
use crate::Error;
use crate::elf::{Elf, Fields, string};

const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
const GO_1_18: u32 = 0xffff_fff0;
const GO_1_20: u32 = 0xffff_fff1;
/// Inlined calls inside each other; compilers stop long before.
const DEPTH: usize = 64;

fn section(elf: &Elf) -> Option<&crate::elf::Section> {
    let mut found = SECTIONS.iter().filter_map(|name| elf.section(name));
    found.find(|s| !s.file.is_empty())
}

/// The file has such tables.
pub(crate) fn is_there(object: &[u8], elf: &Elf) -> bool {
    Program::find(object, elf).is_some()
}

/// The tables of one program.
pub(crate) struct Program<'a> {
    table: &'a [u8],
    newer: bool,
    quantum: u64,
    functions: usize,
    text: u64,
    names: &'a [u8],
    units: &'a [u8],
    files: &'a [u8],
    values: &'a [u8],
    /// Functions' entries and records.
    lines: &'a [u8],
    /// What inlined calls are described in.
    inlined: Option<&'a [u8]>,
}

/// A value that holds up to an offset in the function.
type Steps = Vec<(u32, i32)>;

/// One function as the tables tell it.
struct Function {
    start: u32,
    length: u32,
    unit: u32,
    scope: u32,
    file: Steps,
    line: Steps,
    calls: Steps,
    /// Offset of its inlined calls in [`Program::inlined`].
    tree: Option<usize>,
}

impl<'a> Program<'a> {
    pub fn find(object: &'a [u8], elf: &Elf) -> Option<Program<'a>> {
        let section = section(elf)?;
        let table = object.get(section.file.clone())?;
        let head = Fields(table);
        let newer = match head.u32(0) {
            GO_1_20 => true,
            GO_1_18 => false,
            _ => return None,
        };
        if (head.u16(4), head.u8(7)) != (0, 8) {
            return None;
        }
        let word = |i: usize| usize::try_from(head.u64(8 + i * 8)).ok();
        let part = |i: usize| table.get(word(i)?..);
        let module = Module::find(object, elf, section.svma.start, head.u64(8 + 3 * 8), newer);
        // Since 1.26 the header has no start of the text; in a relocatable file it is zero.
        let text = module
            .as_ref()
            .map(|m| m.text)
            .or(Some(head.u64(8 + 2 * 8)));
        let text = text
            .filter(|&t| t != 0)
            .or_else(|| Some(elf.section(".text")?.svma.start))?;
        Some(Program {
            table,
            newer,
            quantum: u64::from(head.u8(6).max(1)),
            functions: word(0)?,
            text,
            names: part(3)?,
            units: part(4)?,
            files: part(5)?,
            values: part(6)?,
            lines: part(7)?,
            inlined: module.and_then(|m| m.inlined),
        })
    }

    /// Adds all functions of the program.
    pub fn read(
        &self,
        code: &Code,
        coverage: &mut Coverage,
        writer: &mut Writer<'a, '_>,
    ) -> Result<(), Error> {
        // A forged number of functions ends with the table.
        let functions = self.functions.min(self.table.len() / 8);
        for index in 0..functions {
            let mut scopes = Vec::new();
            let Some(function) = self.function(index, code, &mut scopes, writer) else {
                continue;
            };
            let rows = self.rows(&function, &mut scopes, writer);
            emit(&rows, &mut scopes, coverage, writer)?;
        }
        Ok(())
    }

    fn function(
        &self,
        index: usize,
        code: &Code,
        scopes: &mut Vec<Scope>,
        writer: &mut Writer<'a, '_>,
    ) -> Option<Function> {
        const PCDATA_INLINED: usize = 2;
        const FUNCDATA_INLINED: usize = 3;
        let entry = Fields(self.lines.get(index * 8..index * 8 + 12)?);
        let (start, record, end) = (entry.u32(0), entry.u32(4) as usize, entry.u32(8));
        let svma = self.text.checked_add(u64::from(start))?;
        let (start, end) = code.range(svma, self.text.checked_add(u64::from(end))?)?;
        let f = Fields(self.lines.get(record..)?);
        let head = if self.newer { 44 } else { 40 };
        let (pc_data, func_data) = (f.u32(28) as usize, usize::from(f.u8(head - 1)));
        let data = |i: usize| f.u32(head + i * 4);
        let line = if self.newer { f.u32(36) } else { 0 };
        let name = self.name(f.u32(4));
        scopes.push(Scope::of(if name.is_empty() {
            NONE
        } else {
            writer.function(name, NONE, line)
        }));
        let tree = (func_data > FUNCDATA_INLINED && pc_data > PCDATA_INLINED && pc_data < 64)
            .then(|| data(pc_data + FUNCDATA_INLINED))
            .filter(|&offset| offset != NONE);
        // Up to the next function there may be padding, which has no lines.
        let file = self.steps(f.u32(20), end - start);
        let length = file.last().map_or(end - start, |last| last.0);
        let calls = match tree {
            Some(_) => self.steps(data(PCDATA_INLINED), length),
            None => Vec::new(),
        };
        Some(Function {
            start,
            length,
            unit: f.u32(32),
            scope: 0,
            file,
            line: self.steps(f.u32(24), length),
            calls,
            tree: tree.map(|t| t as usize),
        })
    }

    fn name(&self, offset: u32) -> &'a [u8] {
        string(self.names, offset as usize)
    }

    /// A table of values by instruction, up to `length` bytes.
    fn steps(&self, offset: u32, length: u32) -> Steps {
        let mut steps = Vec::new();
        let mut numbers = super::format::Numbers {
            bytes: self.values,
            at: offset as usize,
        };
        let (mut value, mut reached) = (-1i64, 0u64);
        while offset != 0 && reached < u64::from(length) {
            let (Some(delta), Some(bytes)) = (numbers.next(), numbers.next()) else {
                break;
            };
            if delta == 0 && reached != 0 {
                break;
            }
            value = value.wrapping_add(super::format::unzigzag(delta));
            reached = reached.saturating_add(bytes.saturating_mul(self.quantum));
            // A step of no bytes would go on for ever.
            if bytes == 0 {
                break;
            }
            let to = u32::try_from(reached).unwrap_or(length).min(length);
            steps.push((to, i32::try_from(value).unwrap_or(-1)));
        }
        steps
    }

    fn rows(
        &self,
        function: &Function,
        scopes: &mut Vec<Scope>,
        writer: &mut Writer<'a, '_>,
    ) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut known: Vec<(i32, u32)> = Vec::new();
        let mut at = 0;
        while at < function.length {
            let (to_a, file) = step(&function.file, at);
            let (to_b, line) = step(&function.line, at);
            let (to_c, call) = step(&function.calls, at);
            let end = to_a.min(to_b).min(to_c).min(function.length);
            let scope = self.scope(function, call, DEPTH, scopes, &mut known, writer);
            rows.push(Row {
                start: function.start + at,
                end: function.start + end,
                scope,
                file: self.file(function.unit, file, writer),
                line: u32::try_from(line).unwrap_or(0),
            });
            at = end;
        }
        rows
    }

    /// The scope of an inlined call; that of the function where there is none.
    fn scope(
        &self,
        function: &Function,
        call: i32,
        depth: usize,
        scopes: &mut Vec<Scope>,
        known: &mut Vec<(i32, u32)>,
        writer: &mut Writer<'a, '_>,
    ) -> u32 {
        if let Some(&(_, scope)) = known.iter().find(|k| k.0 == call) {
            return scope;
        }
        let described = self.call(function, call).filter(|_| depth > 0);
        let Some((name, line, parent_at)) = described else {
            return function.scope;
        };
        let around = step(&function.calls, parent_at).1;
        // A call inside itself is forged.
        let parent = match around {
            same if same == call => function.scope,
            other => self.scope(function, other, depth - 1, scopes, known, writer),
        };
        let call_file = self.file(function.unit, step(&function.file, parent_at).1, writer);
        let call_line = u32::try_from(step(&function.line, parent_at).1).unwrap_or(0);
        scopes.push(Scope {
            parent,
            function: if name.is_empty() {
                NONE
            } else {
                writer.function(name, NONE, line)
            },
            call_file,
            call_line,
            written: NONE,
        });
        let scope = scopes.len() as u32 - 1;
        known.push((call, scope));
        scope
    }

    /// Name, first line and place of the call number `call`.
    fn call(&self, function: &Function, call: i32) -> Option<(&'a [u8], u32, u32)> {
        let index = usize::try_from(call).ok()?;
        let size = if self.newer { 16 } else { 20 };
        let at = function.tree?.checked_add(index.checked_mul(size)?)?;
        let f = Fields(self.inlined?.get(at..at.checked_add(size)?)?);
        let (name, parent, line) = match self.newer {
            true => (f.u32(4), f.u32(8), f.u32(12)),
            false => (f.u32(12), f.u32(16), 0),
        };
        (parent < function.length).then(|| (self.name(name), line, parent))
    }

    fn file(&self, unit: u32, file: i32, writer: &mut Writer<'a, '_>) -> u32 {
        let path = || {
            let index = (unit as usize)
                .checked_add(usize::try_from(file).ok()?)?
                .checked_mul(4)?;
            self.units.get(index..index + 4)?;
            let offset = Fields(self.units).u32(index);
            let path = string(self.files, offset as usize);
            (offset != NONE && !path.is_empty()).then_some(path)
        };
        match path() {
            Some(path) => writer.file(&String::from_utf8_lossy(path)),
            None => NONE,
        }
    }
}

/// What holds at an offset, and until where.
fn step(steps: &[(u32, i32)], at: u32) -> (u32, i32) {
    let index = steps.partition_point(|s| s.0 <= at);
    steps.get(index).copied().unwrap_or((u32::MAX, -1))
}

/// What the runtime knows of the program.
struct Module<'a> {
    text: u64,
    inlined: Option<&'a [u8]>,
}

impl<'a> Module<'a> {
    /// The structure begins with the addresses of the header and of the names.
    fn find(
        object: &'a [u8],
        elf: &Elf,
        header: u64,
        names: u64,
        newer: bool,
    ) -> Option<Module<'a>> {
        const TEXT: usize = 22;
        let inlined = if newer { 40 } else { 38 };
        let begin = [header, header.checked_add(names)?]
            .map(u64::to_le_bytes)
            .concat();
        let sections = [".go.module", ".noptrdata", ".data", ".data.rel.ro"];
        let found = sections.iter().find_map(|name| {
            let data = object.get(elf.section(name)?.file.clone())?;
            let mut words = (0..data.len()).step_by(8);
            let at = words.find(|&at| data[at..].starts_with(&begin))?;
            data.get(at..at + (inlined + 1) * 8)
        })?;
        let address = Fields(found).u64(inlined * 8);
        let holds = |s: &&crate::elf::Section| s.svma.contains(&address) && !s.file.is_empty();
        let section = elf.sections.iter().find(holds);
        let contents = section.and_then(|s| {
            let at = s
                .file
                .start
                .checked_add(usize::try_from(address - s.svma.start).ok()?)?;
            object.get(at..s.file.end)
        });
        Some(Module {
            text: Fields(found).u64(TEXT * 8),
            inlined: contents,
        })
    }
}
