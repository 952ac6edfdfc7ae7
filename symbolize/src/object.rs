//! One ELF object: its names, lines and address maps.

use crate::dwarf::{self, Answer, Dwarf};
use crate::elf::{Elf, Segment};
use crate::memory::{Memory, Share};
use crate::symbols::{Symbol, Symbols};
use crate::{Error, Frame};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// The bytes of an object: a vector, a shared slice, the caller's memory map.
/// (Not a `Box`, which claims sole access to its contents when it is moved.)
type Bytes = Arc<dyn Deref<Target = [u8]> + Send + Sync>;

/// One parsed ELF object. Symbol table and DWARF are read when first asked for; nothing of the
/// file is copied, except debug sections that are stored compressed.
///
/// Every method takes `&self`; threads may share one object.
pub struct Object {
    // Before `bytes`: it borrows from them.
    dwarf: OnceLock<Option<Dwarf>>,
    /// `None` where they do not fit the memory.
    symbols: OnceLock<Option<Symbols>>,
    share: Share,
    elf: Elf,
    /// What `bytes` dereferenced to when parsing; owned by `bytes`.
    view: *const [u8],
    _bytes: Bytes,
}

// SAFETY: `view` points into `_bytes`, which is Send and Sync and moves along.
unsafe impl Send for Object {}
// SAFETY: as above; the bytes are only read.
unsafe impl Sync for Object {}

impl Object {
    /// Reads the headers of a 64-bit little-endian ELF file.
    ///
    /// # Errors
    /// When `bytes` is something else, or its header tables lie outside the file.
    ///
    /// ```
    /// let object = pilotlight_symbolize::Object::parse(std::fs::read("/proc/self/exe")?)?;
    /// assert!(object.build_id().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse<B>(bytes: B) -> Result<Object, Error>
    where
        B: Deref<Target = [u8]> + Send + Sync + 'static,
    {
        Object::parse_within(bytes, Arc::new(Memory::new(usize::MAX)))
    }

    /// As [`Object::parse`]; what is read later stays within `memory`. Where it does not fit,
    /// frames lack lines and inlined functions, or all names, and [`Memory::refused`] counts it.
    ///
    /// # Errors
    /// As [`Object::parse`].
    pub fn parse_within<B>(bytes: B, memory: Arc<Memory>) -> Result<Object, Error>
    where
        B: Deref<Target = [u8]> + Send + Sync + 'static,
    {
        let bytes: Bytes = Arc::new(bytes);
        // Dereferenced once, and after the owner got its final place on the heap: the slice is a
        // shared borrow of a value that nobody touches until it is dropped.
        let view: *const [u8] = &**bytes;
        // SAFETY: just made from a reference.
        let elf = Elf::parse(unsafe { &*view })?;
        Ok(Object {
            dwarf: OnceLock::new(),
            symbols: OnceLock::new(),
            share: Share::new(memory),
            elf,
            view,
            _bytes: bytes,
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `_bytes` owns the slice, is never touched, and lives as long as `self`.
        unsafe { &*self.view }
    }

    fn symbols(&self) -> Option<&Symbols> {
        let read = || {
            let fits = self.share.take(Symbols::bytes_needed(&self.elf));
            fits.then(|| Symbols::read(self.bytes(), &self.elf))
        };
        self.symbols.get_or_init(read).as_ref()
    }

    fn dwarf(&self) -> Option<&Dwarf> {
        // SAFETY: the bytes stay until `self` is dropped, and the field order drops DWARF first.
        let parse = || unsafe { Dwarf::parse(self.bytes(), &self.elf, &self.share) };
        self.dwarf.get_or_init(parse).as_ref()
    }

    /// The GNU build id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.elf.build_id.as_deref()
    }

    /// Loadable segments, in file order.
    pub fn segments(&self) -> &[Segment] {
        &self.elf.segments
    }

    /// Usable DWARF line information is present.
    pub fn has_debug_info(&self) -> bool {
        self.dwarf().is_some()
    }

    /// Number of function symbols.
    pub fn symbol_count(&self) -> usize {
        self.symbols().map_or(0, Symbols::len)
    }

    /// The function symbol that holds `svma`.
    pub fn symbol(&self, svma: u64) -> Option<Symbol<'_>> {
        self.symbols()?.find(self.bytes(), svma)
    }

    /// The stated address of the byte at `file_offset`; executable segments win.
    pub fn file_offset_to_svma(&self, file_offset: u64) -> Option<u64> {
        let holds = |s: &&Segment| s.svma_of(file_offset).is_some();
        let mut found = self.elf.segments.iter().filter(holds);
        let first = found
            .clone()
            .find(|s| s.executable)
            .or_else(|| found.next())?;
        first.svma_of(file_offset)
    }

    /// The functions at `svma`, innermost inlined one first; empty when nothing is known.
    ///
    /// Subtract 1 from a return address before asking.
    pub fn frames(&self, svma: u64) -> Vec<Frame> {
        // The symbol table first: should memory be short, it names more with less.
        let symbol = self.symbol(svma);
        let answer = self.dwarf().map(|dwarf| dwarf.frames(svma, &self.share));
        let refused = answer.is_none() && dwarf::is_there(&self.elf)
            || matches!(answer, Some(Answer::Refused))
            || self.symbols().is_none();
        if refused {
            self.share.memory.refuse();
        }
        let found = match answer {
            Some(Answer::Found(found)) => found,
            _ => Vec::new(),
        };
        if found.is_empty() {
            return symbol
                .map(|s| Frame::new(s.name, None, None))
                .into_iter()
                .collect();
        }
        let last = found.len() - 1;
        let frame = |(i, found): (usize, dwarf::Found)| {
            // Line tables alone carry names without their path; the symbol of the outermost
            // function has it. A mangled name in DWARF is exact, where symbols may be folded.
            let mangled = |n: &&[u8]| n.starts_with(b"_Z") || n.starts_with(b"_R");
            let symbol = symbol.filter(|_| i == last).map(|s| s.name);
            let known = found.name.as_deref();
            let name = known
                .filter(mangled)
                .or(symbol.filter(mangled))
                .or(known)
                .or(symbol)?;
            Some(Frame::new(name, found.file, found.line))
        };
        found.into_iter().enumerate().filter_map(frame).collect()
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("build_id", &self.build_id())
            .finish_non_exhaustive()
    }
}
