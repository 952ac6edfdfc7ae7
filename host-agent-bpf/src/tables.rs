//! Unwind tables of files and mappings of processes, in the kernel.

use crate::layout::{
    self, DIRECTORY_WORDS, FILES, MAPPING_WORDS, PARTS, RULES, RUNTIMES, SHARD_WORDS,
};
use crate::load::Loaded;
use crate::space::{Piece, Space};
use crate::{Error, Runtime, sys};
use pilotlight_unwind::{Row, Rule, Table};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

/// The number of a file whose table was handed over. It stays the file's until [`Tables::forget_file`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileNumber(pub(crate) u32);

/// One executable mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Where relative address 0 of the file's table is mapped: load bias + [`Table::base_svma`].
    pub image_base: u64,
    /// Whose rows; `None` for memory without a file (JIT code), which is walked by frame pointers.
    pub file: Option<FileNumber>,
}

/// Rows are cut into pieces of at most this many words, so that what one file gives back fits another.
const PIECE_WORDS: usize = 1 << 14;

struct Held {
    /// Empty while the table is not in the kernel.
    pieces: Vec<Piece>,
    has_cfi: bool,
    rows: u64,
}

/// What the kernel knows of files and processes.
pub struct Tables {
    space: Space,
    files: OwnedFd,
    rules: OwnedFd,
    processes: OwnedFd,
    runtimes: OwnedFd,
    held: Vec<Option<Held>>,
    free_numbers: Vec<u32>,
    pool: HashMap<Rule, u16>,
    lists: HashMap<u32, (Piece, u32)>,
    /// Of the last list of mappings.
    version: u32,
    /// Processes with a [`Runtime`].
    interpreted: HashSet<u32>,
    window: u32,
    rows: u64,
    evicted: u64,
}

impl Tables {
    pub(crate) fn new(loaded: &Loaded, budget_bytes: u64) -> Result<Tables, Error> {
        let own = |fd: &OwnedFd, name| fd.try_clone().map_err(Error::map(name));
        let mut tables = Tables {
            space: Space::new(own(&loaded.shards, "shards")?, budget_bytes),
            files: own(&loaded.files, "files")?,
            rules: own(&loaded.rules, "rules")?,
            processes: own(&loaded.processes, "processes")?,
            runtimes: own(&loaded.runtimes, "runtimes")?,
            interpreted: HashSet::new(),
            // Number 0 is no file.
            held: vec![None],
            free_numbers: Vec::new(),
            pool: HashMap::new(),
            lists: HashMap::new(),
            version: 0,
            window: 0,
            rows: 0,
            evicted: 0,
        };
        tables.intern(Rule::GAP)?;
        tables.intern(Rule::bare(pilotlight_unwind::Kind::Unsupported))?;
        Ok(tables)
    }

    /// Hands the table of a file over. `None` when there is no room for it even without all others, or no number.
    ///
    /// # Errors
    /// When the kernel refuses memory.
    pub fn add_file(&mut self, table: &Table) -> Result<Option<FileNumber>, Error> {
        let number = match self.free_numbers.pop() {
            Some(number) => number,
            None if self.held.len() < FILES as usize => {
                self.held.push(None);
                self.held.len() as u32 - 1
            }
            None => return Ok(None),
        };
        let has_cfi = !table.is_empty();
        self.held[number as usize] = Some(Held {
            pieces: Vec::new(),
            has_cfi,
            rows: 0,
        });
        if self.fill(FileNumber(number), table)? {
            return Ok(Some(FileNumber(number)));
        }
        self.held[number as usize] = None;
        self.free_numbers.push(number);
        Ok(None)
    }

    /// Hands a table over again that was evicted. `false` when there is no room.
    ///
    /// # Errors
    /// When the kernel refuses memory.
    pub fn fill(&mut self, file: FileNumber, table: &Table) -> Result<bool, Error> {
        if self.has_table(file) {
            return Ok(true);
        }
        let mut pieces = Vec::new();
        let directory = self.write_table(table, &mut pieces)?;
        let Some(directory) = directory else {
            pieces.into_iter().for_each(|piece| self.space.free(piece));
            return Ok(false);
        };
        let value = layout::File {
            directory,
            pages: (table.pages().len() - 1) as u32,
            has_cfi: u32::from(!table.is_empty()),
            used: self.window,
        };
        sys::update(self.files.as_fd(), &file.0, &value).map_err(Error::map("files"))?;
        self.rows += table.rows().len() as u64;
        if let Some(Some(held)) = self.held.get_mut(file.0 as usize) {
            held.pieces = pieces;
            held.rows = table.rows().len() as u64;
        }
        Ok(true)
    }

    /// The table is in the kernel now.
    pub fn has_table(&self, file: FileNumber) -> bool {
        let held = self.held.get(file.0 as usize).and_then(Option::as_ref);
        held.is_some_and(|held| !held.pieces.is_empty())
    }

    /// Rows, then the directory that says where those of each page are.
    fn write_table(
        &mut self,
        table: &Table,
        pieces: &mut Vec<Piece>,
    ) -> Result<Option<u32>, Error> {
        let pages = table.pages();
        let mut directory = Vec::with_capacity(pages.len() * DIRECTORY_WORDS);
        let mut page = 0;
        while page + 1 < pages.len() {
            let next = pages_that_fit(pages, page);
            let rows = &table.rows()[pages[page] as usize..pages[next] as usize];
            let words = self.words_of(rows, table.rules())?;
            let Some(piece) = self.take(words.len())? else {
                return Ok(None);
            };
            pieces.push(piece);
            self.space.write(piece, &words);
            for bounds in pages[page..=next].windows(2) {
                let rows = &table.rows()[bounds[0] as usize..bounds[1] as usize];
                directory.extend(directory_entry(piece.word + bounds[0] - pages[page], rows));
            }
            page = next;
        }
        let Some(piece) = self.take(directory.len())? else {
            return Ok(None);
        };
        pieces.push(piece);
        self.space.write(piece, &directory);
        Ok(Some(piece.word))
    }

    /// Rows with the numbers that their rules have among those of all files.
    fn words_of(&mut self, rows: &[Row], rules: &[Rule]) -> Result<Vec<u32>, Error> {
        let mut words = Vec::with_capacity(rows.len());
        for row in rows {
            let rule = rules
                .get(usize::from(row.rule))
                .copied()
                .unwrap_or(Rule::GAP);
            words.push(u32::from(row.low) | u32::from(self.intern(rule)?) << 16);
        }
        Ok(words)
    }

    fn intern(&mut self, rule: Rule) -> Result<u16, Error> {
        const UNSUPPORTED: u16 = 1;
        if let Some(&number) = self.pool.get(&rule) {
            return Ok(number);
        }
        if self.pool.len() >= RULES {
            return Ok(UNSUPPORTED);
        }
        let number = self.pool.len() as u16;
        let value = layout::Rule::from(rule);
        sys::update(self.rules.as_fd(), &u32::from(number), &value).map_err(Error::map("rules"))?;
        self.pool.insert(rule, number);
        Ok(number)
    }

    /// A piece; when there is none, tables that were not used for longest make room.
    fn take(&mut self, words: usize) -> Result<Option<Piece>, Error> {
        let Ok(words) = u32::try_from(words) else {
            return Ok(None);
        };
        loop {
            if let Some(piece) = self.space.take(words).map_err(Error::map("shards"))? {
                return Ok(Some(piece));
            }
            if !self.space.is_unsettled() && !self.evict()? {
                return Ok(None);
            }
            self.space.settle().map_err(Error::map("shards"))?;
        }
    }

    /// Takes the table out that was not looked at for longest; `false` when there is none.
    fn evict(&mut self) -> Result<bool, Error> {
        let mut oldest: Option<(u32, u32)> = None;
        for number in 1..self.held.len() as u32 {
            if !self.has_table(FileNumber(number)) {
                continue;
            }
            let mut file = [layout::File::default()];
            sys::lookup(self.files.as_fd(), &number, &mut file).map_err(Error::map("files"))?;
            let age = self.window.wrapping_sub(file[0].used);
            if oldest.is_none_or(|(most, _)| age > most) {
                oldest = Some((age, number));
            }
        }
        let Some((_, number)) = oldest else {
            return Ok(false);
        };
        self.withdraw(number)?;
        self.evicted += 1;
        Ok(true)
    }

    fn withdraw(&mut self, number: u32) -> Result<(), Error> {
        let Some(Some(held)) = self.held.get_mut(number as usize) else {
            return Ok(());
        };
        let none = layout::File {
            has_cfi: u32::from(held.has_cfi),
            ..layout::File::default()
        };
        let pieces = std::mem::take(&mut held.pieces);
        self.rows -= std::mem::take(&mut held.rows);
        sys::update(self.files.as_fd(), &number, &none).map_err(Error::map("files"))?;
        pieces.into_iter().for_each(|piece| self.space.free(piece));
        Ok(())
    }

    /// The file is mapped by no process any more: its number may become another's.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget_file(&mut self, file: FileNumber) -> Result<(), Error> {
        self.withdraw(file.0)?;
        if let Some(held) = self.held.get_mut(file.0 as usize)
            && held.take().is_some()
        {
            self.free_numbers.push(file.0);
        }
        Ok(())
    }

    /// From now on samples of `pid` are walked by these mappings, and carry `image`, the caller's number for its program. A new list replaces the old one at once; what was
    /// looked up before goes on with the old one. `false` when there is no room.
    ///
    /// # Errors
    /// When the kernel refuses memory.
    pub fn set_process(
        &mut self,
        pid: u32,
        image: u32,
        mappings: &[Mapping],
    ) -> Result<bool, Error> {
        let sorted = in_order(mappings);
        let words: Vec<u32> = sorted.iter().flat_map(mapping_words).collect();
        let Some(piece) = self.take(words.len())? else {
            return Ok(false);
        };
        self.space.write(piece, &words);
        let value = layout::Process {
            mappings: piece.word,
            count: sorted.len() as u32,
            image,
            version: self.next_version(),
            has_runtime: u32::from(self.interpreted.contains(&pid)),
        };
        sys::update(self.processes.as_fd(), &pid, &value).map_err(Error::map("processes"))?;
        if let Some((old, _)) = self.lists.insert(pid, (piece, value.count)) {
            self.space.free(old);
        }
        Ok(true)
    }

    fn next_version(&mut self) -> u32 {
        self.version = self.version.wrapping_add(1).max(1);
        self.version
    }

    /// What the next [`Tables::set_process`] of `pid` says of its interpreter. `false` when there is no room.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_runtime(&mut self, pid: u32, runtime: Option<Runtime>) -> Result<bool, Error> {
        let Some(runtime) = runtime else {
            self.remove_runtime(pid)?;
            return Ok(true);
        };
        let value = layout::Runtime::from(runtime);
        if self.interpreted.len() >= RUNTIMES && !self.interpreted.contains(&pid) {
            return Ok(false);
        }
        sys::update(self.runtimes.as_fd(), &pid, &value).map_err(Error::map("runtimes"))?;
        self.interpreted.insert(pid);
        Ok(true)
    }

    fn remove_runtime(&mut self, pid: u32) -> Result<(), Error> {
        if self.interpreted.remove(&pid) {
            sys::delete(self.runtimes.as_fd(), &pid).map_err(Error::map("runtimes"))?;
        }
        Ok(())
    }

    /// `pid` ended, or executes another program: its samples come raw from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_process(&mut self, pid: u32) -> Result<(), Error> {
        sys::delete(self.processes.as_fd(), &pid).map_err(Error::map("processes"))?;
        if let Some((piece, _)) = self.lists.remove(&pid) {
            self.space.free(piece);
        }
        self.remove_runtime(pid)
    }

    pub(crate) fn wait_for_programs(&mut self) -> Result<(), Error> {
        self.space.wait_for_programs().map_err(Error::map("shards"))
    }

    pub(crate) fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// How much there is.
    pub fn size(&self) -> TableSize {
        TableSize {
            files: self
                .held
                .iter()
                .flatten()
                .filter(|held| !held.pieces.is_empty())
                .count(),
            processes: self.lists.len(),
            rows: self.rows,
            rules: self.pool.len(),
            used_bytes: self.space.used_bytes(),
            held_bytes: self.space.held_bytes(),
            evicted: self.evicted,
        }
    }
}

/// What the tables take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    /// Files whose table is in the kernel.
    pub files: usize,
    /// Processes whose mappings are known there.
    pub processes: usize,
    /// Their rows.
    pub rows: u64,
    /// Distinct rules.
    pub rules: usize,
    /// Bytes of rows, directories and mappings.
    pub used_bytes: u64,
    /// Bytes of kernel memory that hold them.
    pub held_bytes: u64,
    /// Tables that made room for others.
    pub evicted: u64,
}

/// The end of the longest run of pages from `page` on whose rows make one piece; at least one page.
fn pages_that_fit(pages: &[u32], page: usize) -> usize {
    let mut next = page + 1;
    while next + 1 < pages.len() && (pages[next + 1] - pages[page]) as usize <= PIECE_WORDS {
        next += 1;
    }
    next
}

/// A page's entry in the directory of its file; `rows` are the page's, and lie in the kernel from word `first` on.
///
/// Its form is `docs/formats/unwind-table.md`, "In the kernel".
pub fn directory_entry(first: u32, rows: &[Row]) -> [u32; DIRECTORY_WORDS] {
    let mut entry = [0; DIRECTORY_WORDS];
    if rows.is_empty() {
        return entry;
    }
    entry[0] = first;
    for part in 0..=PARTS {
        let start = part << 12;
        let after = rows.partition_point(|row| usize::from(row.low) <= start);
        let in_force = after.saturating_sub(1) as u32 & 0xffff;
        entry[1 + part / 2] |= in_force << (part % 2 * 16);
    }
    entry
}

/// As the programs search them: by their starts, as many as fit, and of user space alone. A search compares by the sign of a
/// difference, and `[vsyscall]` lies so far up that everything would be above it; no task is ever sampled in there.
fn in_order(mappings: &[Mapping]) -> Vec<Mapping> {
    let most = (SHARD_WORDS / MAPPING_WORDS - 1) as usize;
    let of_user_space = mappings.iter().filter(|mapping| mapping.end >> 63 == 0);
    let mut sorted: Vec<Mapping> = of_user_space.take(most).copied().collect();
    sorted.sort_by_key(|mapping| mapping.start);
    sorted
}

fn mapping_words(mapping: &Mapping) -> [u32; MAPPING_WORDS as usize] {
    let halves = |n: u64| [n as u32, (n >> 32) as u32];
    let [a, b] = halves(mapping.start);
    let [c, d] = halves(mapping.end);
    let [e, f] = halves(mapping.image_base);
    [a, b, c, d, e, f, mapping.file.map_or(0, |file| file.0), 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_order_and_end_before_the_vsyscall_page() {
        let at = |start: u64| Mapping {
            start,
            end: start + 0x1000,
            image_base: 0,
            file: None,
        };
        let vsyscall = at(0xffff_ffff_ff60_0000);
        let (vdso, program) = (at(0x7ffd_1935_2000), at(0x55ff_e24e_b000));
        assert_eq!(in_order(&[vdso, program, vsyscall]), [program, vdso]);
    }

    #[test]
    fn an_entry_knows_the_row_in_force_at_each_part_of_its_page() {
        let row = |low| Row { low, rule: 0 };
        let rows = [row(0), row(0x10), row(0x1000), row(0x1001), row(0xf123)];
        let entry = directory_entry(77, &rows);
        let halves = entry[1..]
            .iter()
            .flat_map(|word| [word & 0xffff, word >> 16]);
        let halves: Vec<u32> = halves.collect();
        assert_eq!(entry[0], 77);
        assert_eq!(halves[..3], [0, 2, 3]);
        assert_eq!(halves[15..], [3, 4, 0]);
        assert_eq!(directory_entry(77, &[]), [0; DIRECTORY_WORDS]);
    }

    #[test]
    fn pages_are_packed_up_to_a_piece_and_a_large_page_is_one_of_its_own() {
        let piece = PIECE_WORDS as u32;
        let pages = [0, 10, piece, piece + 1, 4 * piece, 4 * piece + 5];
        assert_eq!(pages_that_fit(&pages, 0), 2);
        assert_eq!(pages_that_fit(&pages, 2), 3);
        assert_eq!(pages_that_fit(&pages, 3), 4);
        assert_eq!(pages_that_fit(&pages, 4), 5);
    }
}
