//! The flat table: pages of sorted 4-byte rows over a pool of deduplicated rules.

mod saved;

use crate::Error;
use crate::cfi::{EhFrame, Fde, Machine};
use crate::image::{Image, ProgramHeader, mapped_headers};
use crate::rule::{Kind, Rule};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// log2 of the bytes of code that one page of rows covers.
pub const PAGE_BITS: u32 = 16;

/// log2 of the bytes of code behind one entry of the in-process index.
const CHUNK_BITS: u32 = 10;
const CHUNKS_IN_PAGE: usize = 1 << (PAGE_BITS - CHUNK_BITS);

/// Index of the unsupported rule in every table.
const UNSUPPORTED: u16 = 1;

/// From this address on (until the next row's) the rule of this index holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Low 16 bits of the address relative to the image base.
    pub low: u16,
    /// Index into [`Table::rules`].
    pub rule: u16,
}

/// What was read, and what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// FDEs compiled.
    pub fdes: u32,
    /// Rows of the table, one carry row a page included.
    pub rows: u32,
    /// Distinct rules.
    pub rules: u32,
    /// CFI rows that no rule expresses.
    pub unsupported_rows: u32,
    /// FDEs with the signal-frame mark.
    pub signal_fdes: u32,
    /// Entries that could not be read or that lie outside the code.
    pub malformed: u32,
}

/// Unwind rows of one image, position independent: addresses are relative to the image base
/// (its lowest mapped address, rounded down to a page).
///
/// Layout, for sharing with an eBPF map: `docs/formats/unwind-table.md`.
#[derive(Debug)]
pub struct Table {
    base_svma: u64,
    /// First row of each page, and one more: the number of rows.
    pages: Box<[u32]>,
    rows: Box<[Row]>,
    rules: Box<[Rule]>,
    /// For each KiB of code, the row in force at its start, and one more: the number of rows. It
    /// takes a lookup to one or two cache lines of rows at once.
    chunks: Box<[u32]>,
    stats: Stats,
}

impl Table {
    /// Compiles the `.eh_frame` that an ELF file's `PT_GNU_EH_FRAME` names.
    ///
    /// # Errors
    /// When `bytes` is no x86-64 or aarch64 ELF image; a missing `.eh_frame` is no error.
    ///
    /// ```
    /// let table = pilotlight_unwind::Table::from_elf(&std::fs::read("/proc/self/exe")?)?;
    /// assert!(table.stats().rows > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_elf(bytes: &[u8]) -> Result<Table, Error> {
        Table::from_image(&Image::from_file(bytes)?)
    }

    /// Compiles the `.eh_frame` of an image that the loader mapped, without any file access.
    ///
    /// # Errors
    /// When its code spans more than 4 GiB.
    ///
    /// # Safety
    /// The `PT_LOAD` segments of `headers` must be mapped at `bias + vaddr`, readable where not
    /// writable, and stay so during the call.
    pub unsafe fn from_memory(bias: u64, headers: &[ProgramHeader]) -> Result<Table, Error> {
        // SAFETY: passed on to the caller.
        Table::from_image(&unsafe { Image::from_memory(bias, headers) })
    }

    /// Compiles the `.eh_frame` of an image mapped in one piece, such as the vDSO.
    ///
    /// # Errors
    /// When there is no x86-64 or aarch64 ELF header.
    ///
    /// # Safety
    /// `start` must be the ELF header of an image whose segments are mapped behind it, readable
    /// where not writable, and stay so during the call.
    pub unsafe fn from_mapped_elf(start: *const u8) -> Result<Table, Error> {
        // SAFETY: passed on to the caller.
        let headers = unsafe { mapped_headers(start) }?;
        let first = headers.iter().find(|h| h.kind == 1).map_or(0, |h| h.vaddr);
        // SAFETY: passed on to the caller.
        unsafe { Table::from_memory((start as u64).wrapping_sub(first), &headers) }
    }

    /// Compiles a bare `.eh_frame` section that is linked at `svma`; rows are relative to
    /// `base_svma`, and FDEs outside `text` (an svma range) are dropped.
    ///
    /// # Errors
    /// When `text` ends more than 4 GiB above `base_svma`.
    pub fn from_eh_frame(
        bytes: &[u8],
        svma: u64,
        base_svma: u64,
        text: std::ops::Range<u64>,
    ) -> Result<Table, Error> {
        Table::compile(
            Some(EhFrame::section(bytes, svma)),
            base_svma,
            |f| f.start >= text.start && f.end <= text.end,
            text.end,
        )
    }

    /// A table without rows: every address takes the frame-pointer rule (JIT code).
    pub fn empty() -> Table {
        Builder::new(0).finish(Stats::default())
    }

    pub(crate) fn from_image(image: &Image<'_>) -> Result<Table, Error> {
        let in_text = |f: &Fde| image.load_at(f.start).is_some_and(|l| l.executable);
        Table::compile(
            EhFrame::locate(image),
            image.base_svma(),
            in_text,
            image.text_end(),
        )
    }

    fn compile(
        frame: Option<EhFrame<'_>>,
        base_svma: u64,
        in_text: impl Fn(&Fde) -> bool,
        text_end: u64,
    ) -> Result<Table, Error> {
        let span = text_end.saturating_sub(base_svma);
        if span > u64::from(u32::MAX) {
            return Err(Error::TooLarge { span });
        }
        let mut builder = Builder::new(base_svma);
        let mut stats = Stats::default();
        if let Some(mut frame) = frame {
            compile_fdes(&mut frame, in_text, &mut builder, &mut stats);
        }
        Ok(builder.finish(stats))
    }

    /// The rule at `rel` bytes above the image base.
    ///
    /// Chunk index, then a bisection whose steps depend on the number of rows in the chunk only:
    /// no branch depends on what is compared, so nothing can be mispredicted (and an eBPF
    /// verifier accepts the same shape).
    #[inline]
    pub fn lookup(&self, rel: u32) -> Rule {
        let chunk = (rel >> CHUNK_BITS) as usize;
        let (Some(&first), Some(&last)) = (self.chunks.get(chunk), self.chunks.get(chunk + 1))
        else {
            return Rule::GAP;
        };
        // The next chunk's row may begin inside this one, unless it begins a page.
        let last = last as usize + usize::from(!(chunk + 1).is_multiple_of(CHUNKS_IN_PAGE));
        let Some(rows) = self.rows.get(first as usize..last) else {
            return Rule::GAP;
        };
        let low = rel as u16;
        let (mut base, mut size) = (0, rows.len());
        while size > 1 {
            let half = size / 2;
            let reached = rows.get(base + half).is_some_and(|row| row.low <= low);
            base += half * usize::from(reached);
            size -= half;
        }
        let rule = rows.get(base).map_or(0, |row| usize::from(row.rule));
        self.rules.get(rule).copied().unwrap_or(Rule::GAP)
    }

    /// What was read and what was left out.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The stated address that relative address 0 stands for.
    pub fn base_svma(&self) -> u64 {
        self.base_svma
    }

    /// Index of the first row of each 64 KiB page; the last element is the number of rows.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// All rows, page by page; the first row of a page always has `low == 0`.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rules that rows refer to; rule 0 is the gap rule, rule 1 the unsupported one.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// No row was compiled: the image carries no CFI.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn compile_fdes(
    frame: &mut EhFrame<'_>,
    in_text: impl Fn(&Fde) -> bool,
    builder: &mut Builder,
    stats: &mut Stats,
) {
    // Honest files run each instruction once; a hostile index may name one FDE many times.
    let mut budget = frame.len();
    let mut machine = Machine::new();
    let fdes = frame.fdes();
    builder.flat.reserve(fdes.len() * 4);
    for fde in fdes {
        let program = (fde.end > fde.start && in_text(&fde))
            .then(|| frame.program(&fde))
            .flatten();
        let Some((program, cie)) = program.filter(|(p, _)| p.len() <= budget) else {
            stats.malformed += u32::from(fde.start != 0);
            continue;
        };
        budget -= program.len();
        stats.fdes += 1;
        stats.signal_fdes += u32::from(cie.signal);
        builder.cut_to(fde.start);
        machine.run(program, cie, |svma, rule| {
            stats.unsupported_rows += u32::from(rule.kind == Kind::Unsupported);
            builder.push(svma, rule);
        });
        builder.push(fde.end, Rule::GAP);
    }
    stats.malformed += frame.malformed;
}

/// Collects (address, rule) in ascending order, then cuts them into pages.
struct Builder {
    base_svma: u64,
    flat: Vec<(u32, u16)>,
    rules: Vec<Rule>,
    indices: HashMap<Rule, u16, BuildHasherDefault<RuleHasher>>,
    last: (Rule, u16),
}

impl Builder {
    fn new(base_svma: u64) -> Builder {
        let rules = vec![Rule::GAP, Rule::bare(Kind::Unsupported)];
        let indices = (0..)
            .zip(&rules)
            .map(|(index, &rule)| (rule, index))
            .collect();
        Builder {
            base_svma,
            flat: Vec::new(),
            rules,
            indices,
            last: (Rule::GAP, 0),
        }
    }

    /// Forgets rows at or above `svma`: where FDEs overlap, the later start wins.
    fn cut_to(&mut self, svma: u64) {
        let rel = self.relative(svma);
        while self.flat.last().is_some_and(|row| row.0 >= rel) {
            self.flat.pop();
        }
    }

    fn push(&mut self, svma: u64, rule: Rule) {
        let row = (self.relative(svma), self.index_of(rule));
        if self.flat.last().is_some_and(|last| last.0 == row.0) {
            self.flat.pop();
        }
        if self.flat.last().is_none_or(|last| last.1 != row.1) {
            self.flat.push(row);
        }
    }

    fn relative(&self, svma: u64) -> u32 {
        u32::try_from(svma.saturating_sub(self.base_svma)).unwrap_or(u32::MAX)
    }

    fn index_of(&mut self, rule: Rule) -> u16 {
        if rule == self.last.0 {
            return self.last.1;
        }
        let index = match self.indices.get(&rule) {
            Some(&index) => index,
            None => self.intern(rule),
        };
        self.last = (rule, index);
        index
    }

    fn intern(&mut self, rule: Rule) -> u16 {
        // The whole of a Linux machine needs 2,289 rules; past 65,535 the rest is unsupported.
        let Ok(index) = u16::try_from(self.rules.len()) else {
            return UNSUPPORTED;
        };
        self.rules.push(rule);
        self.indices.insert(rule, index);
        index
    }

    fn finish(self, mut stats: Stats) -> Table {
        let (pages, rows) = cut_into_pages(&self.flat);
        stats.rows = rows.len() as u32;
        stats.rules = self.rules.len() as u32;
        Table {
            base_svma: self.base_svma,
            chunks: chunks_of(&pages, &rows).into(),
            pages: pages.into(),
            rows: rows.into(),
            rules: self.rules.into(),
            stats,
        }
    }
}

/// Every page begins with a row at 0 that carries the rule in force there, so that a search never
/// leaves its page.
fn cut_into_pages(flat: &[(u32, u16)]) -> (Vec<u32>, Vec<Row>) {
    let Some(&(last, _)) = flat.last() else {
        return (vec![0], Vec::new());
    };
    let page_count = (last >> PAGE_BITS) as usize + 1;
    let mut pages = Vec::with_capacity(page_count + 1);
    let mut rows = Vec::with_capacity(flat.len() + page_count);
    let mut carried = 0;
    for &(rel, rule) in flat {
        while pages.len() <= (rel >> PAGE_BITS) as usize {
            pages.push(rows.len() as u32);
            let starts_page = rel & 0xffff == 0 && pages.len() == (rel >> PAGE_BITS) as usize + 1;
            if !starts_page {
                rows.push(Row {
                    low: 0,
                    rule: carried,
                });
            }
        }
        rows.push(Row {
            low: rel as u16,
            rule,
        });
        carried = rule;
    }
    pages.push(rows.len() as u32);
    (pages, rows)
}

/// The row in force at the start of each chunk.
fn chunks_of(pages: &[u32], rows: &[Row]) -> Vec<u32> {
    let mut chunks = Vec::with_capacity(pages.len() * CHUNKS_IN_PAGE);
    for bounds in pages.windows(2) {
        let mut row = bounds[0];
        for chunk in 0..CHUNKS_IN_PAGE {
            let start = (chunk << CHUNK_BITS) as u16;
            while row + 1 < bounds[1] && rows[row as usize + 1].low <= start {
                row += 1;
            }
            chunks.push(row);
        }
    }
    chunks.push(rows.len() as u32);
    chunks
}

/// Multiplicative hash of a rule's few bytes; SipHash would take longer than the CFI itself.
#[derive(Default)]
struct RuleHasher(u64);

impl Hasher for RuleHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_i8(&mut self, n: i8) {
        self.write_u64(n as u64);
    }

    fn write_i16(&mut self, n: i16) {
        self.write_u64(n as u64);
    }

    fn write_i32(&mut self, n: i32) {
        self.write_u64(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
}
