//! Writing a table front to back: what is large goes out at once, what is small is kept until the
//! end.

use super::format::*;
use super::{Limits, Quality, Segment32};
use crate::Error;
use std::collections::HashMap;
use std::io::Write;

/// Rows of one block: a lookup reads half of them.
const BLOCK_ROWS: usize = 48;

/// Code of one function, inlined at `call_line` of its parent where it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// Index of the scope around it, which is before it; [`NONE`] for a function of its own.
    pub parent: u32,
    pub function: u32,
    pub call_file: u32,
    pub call_line: u32,
    /// Where it was written; [`NONE`] before that.
    pub written: u32,
}

impl Scope {
    pub fn of(function: u32) -> Scope {
        Scope {
            parent: NONE,
            function,
            call_file: NONE,
            call_line: 0,
            written: NONE,
        }
    }
}

/// Addresses that have the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub start: u32,
    pub end: u32,
    pub scope: u32,
    pub file: u32,
    pub line: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FunctionKey {
    name: u32,
    file: u32,
    line: u32,
}

pub(crate) struct Writer<'a, 'w> {
    out: &'w mut dyn Write,
    written_bytes: u64,
    limits: &'w Limits,
    names: Vec<&'a [u8]>,
    names_by_bytes: HashMap<&'a [u8], u32>,
    files: Vec<Box<str>>,
    files_by_path: HashMap<Box<str>, u32>,
    functions: Vec<FunctionKey>,
    functions_by_key: HashMap<FunctionKey, u32>,
    blocks: Vec<(u32, u32)>,
    buffer: Vec<u8>,
    pub rows: u64,
}

impl<'a, 'w> Writer<'a, 'w> {
    pub fn new(out: &'w mut dyn Write, limits: &'w Limits) -> Result<Writer<'a, 'w>, Error> {
        let mut writer = Writer {
            out,
            written_bytes: 0,
            limits,
            names: Vec::new(),
            names_by_bytes: HashMap::default(),
            files: Vec::new(),
            files_by_path: HashMap::default(),
            functions: Vec::new(),
            functions_by_key: HashMap::default(),
            blocks: Vec::new(),
            buffer: Vec::new(),
            rows: 0,
        };
        writer.buffer.extend_from_slice(&MAGIC);
        writer.buffer.extend_from_slice(&VERSION.to_le_bytes());
        writer.buffer.extend_from_slice(&[0; 4]);
        writer.flush()?;
        Ok(writer)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.written_bytes += self.buffer.len() as u64;
        if self.written_bytes > self.limits.table_bytes {
            return Err(Error::Limit {
                what: "bytes of the table",
                limit: self.limits.table_bytes,
            });
        }
        let written = self.out.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|e| Error::Write(e.to_string()))
    }

    /// Offset in the part `code` of the next byte.
    fn code_at(&self) -> Result<u32, Error> {
        let at = self.written_bytes + self.buffer.len() as u64 - HEADER_BYTES as u64;
        u32::try_from(at).map_err(|_| Error::Limit {
            what: "bytes of a table's code",
            limit: u64::from(u32::MAX),
        })
    }

    fn name(&mut self, name: &'a [u8]) -> u32 {
        let next = self.names.len() as u32;
        let number = *self.names_by_bytes.entry(name).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        number
    }

    /// Number of a file.
    pub fn file(&mut self, path: &str) -> u32 {
        if let Some(&number) = self.files_by_path.get(path) {
            return number;
        }
        let number = self.files.len() as u32;
        self.files.push(path.into());
        self.files_by_path.insert(path.into(), number);
        number
    }

    /// Number of a function.
    pub fn function(&mut self, name: &'a [u8], file: u32, line: u32) -> u32 {
        let name = self.name(name);
        let key = FunctionKey { name, file, line };
        let next = self.functions.len() as u32;
        let number = *self.functions_by_key.entry(key).or_insert(next);
        if number == next {
            self.functions.push(key);
        }
        number
    }

    /// Writes rows that follow each other without a gap, and their scopes.
    pub fn rows(&mut self, rows: &[Row], scopes: &mut [Scope]) -> Result<(), Error> {
        for block in rows.chunks(BLOCK_ROWS) {
            for row in block {
                self.scope(row.scope, scopes)?;
            }
            self.block(block, scopes)?;
            if self.buffer.len() > 1 << 16 {
                self.flush()?;
            }
        }
        self.rows += rows.len() as u64;
        Ok(())
    }

    /// Writes a scope after those around it.
    fn scope(&mut self, scope: u32, scopes: &mut [Scope]) -> Result<(), Error> {
        let unwritten = |s: u32| scopes.get(s as usize).filter(|s| s.written == NONE);
        let around = |&s: &u32| unwritten(s).map(|s| s.parent);
        let mut chain: Vec<u32> = std::iter::successors(Some(scope), around).collect();
        while let Some(index) = chain.pop() {
            let Some(&Scope {
                parent,
                function,
                call_file,
                call_line,
                written,
            }) = scopes.get(index as usize)
            else {
                continue;
            };
            if written != NONE {
                continue;
            }
            let at = self.code_at()?;
            let around = scopes.get(parent as usize).copied();
            put(
                &mut self.buffer,
                around.map_or(0, |p| u64::from(at - p.written)),
            );
            put(&mut self.buffer, u64::from(function));
            if let Some(around) = around {
                let explicit = self.file_of(around.function) != call_file;
                put(
                    &mut self.buffer,
                    u64::from(call_line) << 1 | u64::from(explicit),
                );
                if explicit {
                    put(&mut self.buffer, u64::from(call_file.wrapping_add(1)));
                }
            }
            scopes[index as usize].written = at;
        }
        Ok(())
    }

    /// The file of a function's declaration.
    fn file_of(&self, function: u32) -> u32 {
        self.functions
            .get(function as usize)
            .map_or(NONE, |f| f.file)
    }

    fn block(&mut self, rows: &[Row], scopes: &[Scope]) -> Result<(), Error> {
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let at = self.code_at()?;
        self.blocks.push((first.start, at));
        put(&mut self.buffer, rows.len() as u64);
        let mut before = Row {
            scope: NONE,
            file: NONE,
            line: 0,
            ..*first
        };
        let mut place = i64::from(at);
        for row in rows {
            let scope = scopes.get(row.scope as usize);
            let other = row.scope != before.scope;
            let implied = match scope {
                Some(scope) if other => self.file_of(scope.function),
                None if other => NONE,
                _ => before.file,
            };
            let explicit = row.file != implied;
            let head = u64::from(row.end - row.start) << 2
                | if other { ROW_SCOPE } else { 0 }
                | if explicit { ROW_FILE } else { 0 };
            put(&mut self.buffer, head);
            if other {
                let delta = scope.map(|s| zigzag(i64::from(s.written) - place) + 1);
                put(&mut self.buffer, delta.unwrap_or(0));
                place = scope.map_or(place, |s| i64::from(s.written));
            }
            if explicit {
                put(&mut self.buffer, u64::from(row.file.wrapping_add(1)));
            }
            let line = i64::from(row.line) - i64::from(before.line);
            put(&mut self.buffer, zigzag(line));
            before = *row;
        }
        Ok(())
    }

    /// Writes names, functions, index and footer; bytes of the whole table.
    pub fn finish(
        mut self,
        base_svma: u64,
        segments: &[Segment32],
        quality: Quality,
    ) -> Result<u64, Error> {
        self.flush()?;
        let mut footer: Vec<u64> = vec![
            HEADER_BYTES as u64,
            self.written_bytes - HEADER_BYTES as u64,
        ];
        let strings_at = self.written_bytes;
        let ends = self.strings()?;
        footer.extend([strings_at, self.written_bytes - strings_at]);
        footer.extend([self.written_bytes, ends.len() as u64]);
        self.numbers(ends.into_iter())?;
        footer.extend([self.written_bytes, self.functions.len() as u64]);
        let functions = std::mem::take(&mut self.functions);
        self.numbers(functions.into_iter().flat_map(|f| [f.name, f.file, f.line]))?;
        self.blocks.sort_unstable();
        footer.extend([self.written_bytes, self.blocks.len() as u64]);
        let blocks = std::mem::take(&mut self.blocks);
        self.numbers(blocks.iter().map(|b| b.0))?;
        self.numbers(blocks.iter().map(|b| b.1))?;
        footer.extend([self.written_bytes, segments.len() as u64]);
        for segment in segments {
            segment.write(&mut self.buffer);
        }
        let names = self.names.len() as u64;
        footer.extend([base_svma, names | u64::from(quality.rank()) << 32]);
        debug_assert_eq!(footer.len(), FOOTER_FIELDS);
        footer
            .iter()
            .for_each(|f| self.buffer.extend_from_slice(&f.to_le_bytes()));
        self.buffer.extend_from_slice(&VERSION.to_le_bytes());
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&MAGIC);
        self.flush()?;
        self.out.flush().map_err(|e| Error::Write(e.to_string()))?;
        Ok(self.written_bytes)
    }

    /// Writes all texts: each name and its readable form, then paths. Where each ends.
    fn strings(&mut self) -> Result<Vec<u32>, Error> {
        // Not needed any more, and large.
        self.names_by_bytes = HashMap::default();
        self.files_by_path = HashMap::default();
        self.functions_by_key = HashMap::default();
        let (names, files) = (
            std::mem::take(&mut self.names),
            std::mem::take(&mut self.files),
        );
        let mut ends = Vec::with_capacity(names.len() * 2 + files.len());
        let mut end = 0u64;
        let mut relieved_at = self.written_bytes;
        for name in &names {
            // Names are read where they stand, which touches as many bytes of the file as are written.
            if self.written_bytes - relieved_at > super::RELIEF_BYTES as u64 {
                relieved_at = self.written_bytes;
                self.limits.relieve();
            }
            self.text(name, &mut end, &mut ends)?;
            let readable = super::demangle::readable(name);
            self.text(
                readable.as_deref().unwrap_or("").as_bytes(),
                &mut end,
                &mut ends,
            )?;
        }
        for file in &files {
            self.text(file.as_bytes(), &mut end, &mut ends)?;
        }
        self.names = names;
        self.flush()?;
        Ok(ends)
    }

    fn text(&mut self, text: &[u8], end: &mut u64, ends: &mut Vec<u32>) -> Result<(), Error> {
        *end += text.len() as u64;
        ends.push(u32::try_from(*end).map_err(|_| Error::Limit {
            what: "bytes of a table's names",
            limit: u64::from(u32::MAX),
        })?);
        self.buffer.extend_from_slice(text);
        if self.buffer.len() > 1 << 16 {
            self.flush()?;
        }
        Ok(())
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u32>) -> Result<(), Error> {
        for number in numbers {
            self.buffer.extend_from_slice(&number.to_le_bytes());
            if self.buffer.len() > 1 << 16 {
                self.flush()?;
            }
        }
        self.flush()
    }
}
