//! What is mapped where: an immutable snapshot that a signal handler can search.

use crate::image::{Image, ProgramHeader, mapped_headers};
use crate::rule::Rule;
use crate::{Error, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One mapped segment of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address (avma).
    pub start: u64,
    /// First address behind it (avma).
    pub limit: u64,
    /// Offset of `start` in the file, bytes.
    pub file_offset: u64,
    /// Code may run here.
    pub executable: bool,
}

/// One mapped image: executable, shared library, vDSO.
#[derive(Clone, Debug)]
pub struct Module {
    /// Lowest mapped address.
    pub start_avma: u64,
    /// First address behind the highest segment.
    pub end_avma: u64,
    /// Load bias: what is added to a stated address (svma) to get an actual one (avma).
    pub base_avma: u64,
    /// Unwind rows, relative to the image base.
    pub table: Arc<Table>,
    /// GNU build id; empty when there is none.
    pub build_id: Vec<u8>,
    /// Path or name such as `[vdso]`, as raw bytes.
    pub path: Vec<u8>,
    /// Mapped segments in file order.
    pub segments: Vec<Segment>,
}

/// The GNU build id of an object that the loader mapped; empty when it has none.
///
/// # Safety
/// As for [`Module::from_memory`], for the time of the call.
pub unsafe fn build_id_in_memory(bias: u64, headers: &[ProgramHeader]) -> Vec<u8> {
    // SAFETY: passed on to the caller.
    let image = unsafe { Image::from_memory(bias, headers) };
    image.build_id().unwrap_or_default().to_vec()
}

impl Module {
    /// A module from the bytes of its file, loaded with bias `bias` (0 for non-PIE).
    ///
    /// # Errors
    /// See [`Table::from_elf`].
    pub fn from_elf(bytes: &[u8], bias: u64, path: impl Into<Vec<u8>>) -> Result<Module, Error> {
        Module::from_image(&Image::from_file(bytes)?, bias, path.into())
    }

    /// A module from mapped memory, without file access: what `dl_iterate_phdr` hands out.
    ///
    /// # Errors
    /// When its code spans more than 4 GiB.
    ///
    /// # Safety
    /// See [`Table::from_memory`].
    pub unsafe fn from_memory(
        bias: u64,
        headers: &[ProgramHeader],
        path: impl Into<Vec<u8>>,
    ) -> Result<Module, Error> {
        // SAFETY: passed on to the caller.
        Module::from_image(
            &unsafe { Image::from_memory(bias, headers) },
            bias,
            path.into(),
        )
    }

    /// A module mapped in one piece, such as the vDSO at `getauxval(AT_SYSINFO_EHDR)`.
    ///
    /// # Errors
    /// When there is no x86-64 or aarch64 ELF header.
    ///
    /// # Safety
    /// See [`Table::from_mapped_elf`].
    pub unsafe fn from_mapped_elf(
        start: *const u8,
        path: impl Into<Vec<u8>>,
    ) -> Result<Module, Error> {
        // SAFETY: passed on to the caller.
        let headers = unsafe { mapped_headers(start) }?;
        let first = headers.iter().find(|h| h.kind == 1).map_or(0, |h| h.vaddr);
        // SAFETY: passed on to the caller.
        unsafe { Module::from_memory((start as u64).wrapping_sub(first), &headers, path) }
    }

    fn from_image(image: &Image<'_>, bias: u64, path: Vec<u8>) -> Result<Module, Error> {
        let segment = |l: &crate::image::Load<'_>| Segment {
            start: bias.wrapping_add(l.svma),
            limit: bias.wrapping_add(l.svma).saturating_add(l.memory_size),
            file_offset: l.file_offset,
            executable: l.executable,
        };
        let segments: Vec<Segment> = image.loads.iter().map(segment).collect();
        Ok(Module {
            start_avma: segments.iter().map(|s| s.start).min().unwrap_or(0),
            end_avma: segments.iter().map(|s| s.limit).max().unwrap_or(0),
            base_avma: bias,
            table: Arc::new(Table::from_image(image)?),
            build_id: image.build_id().unwrap_or_default().to_vec(),
            path,
            segments,
        })
    }

    /// Where relative address 0 of the table is mapped.
    pub fn image_base(&self) -> u64 {
        self.base_avma.wrapping_add(self.table.base_svma())
    }

    /// The unwind rule at actual address `pc`.
    pub fn rule_at(&self, pc: u64) -> Rule {
        match u32::try_from(pc.wrapping_sub(self.image_base())) {
            Ok(rel) => self.table.lookup(rel),
            Err(_) => Rule::GAP,
        }
    }
}

/// An immutable set of modules, sorted by their executable segments.
#[derive(Debug, Default)]
pub struct Modules {
    id: u64,
    modules: Vec<Module>,
    /// Start, limit and module index of every executable segment, ascending.
    code: Vec<Code>,
}

/// One executable segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Code {
    start: u64,
    limit: u64,
    module: u32,
}

impl Modules {
    /// Takes a snapshot; each one has its own identity, to which caches are bound.
    pub fn new(mut modules: Vec<Module>) -> Modules {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        modules.sort_by_key(|m| m.start_avma);
        let mut code: Vec<Code> = (0u32..)
            .zip(&modules)
            .flat_map(|(module, m)| {
                m.segments
                    .iter()
                    .filter(|s| s.executable)
                    .map(move |s| Code {
                        start: s.start,
                        limit: s.limit,
                        module,
                    })
            })
            .collect();
        code.sort_by_key(|c| c.start);
        Modules {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            modules,
            code,
        }
    }

    /// The module whose code holds `pc`. Async-signal-safe.
    pub fn find(&self, pc: u64) -> Option<&Module> {
        self.modules.get(self.code(pc)?.module as usize)
    }

    /// The executable segment that holds `pc`.
    fn code(&self, pc: u64) -> Option<Code> {
        let above = self.code.partition_point(|c| c.start <= pc);
        let code = self.code.get(above.checked_sub(1)?)?;
        (pc < code.limit).then_some(*code)
    }

    /// [`Self::find`] for callers who ask about one module again and again.
    pub(crate) fn find_near(&self, pc: u64, last: &mut Code) -> Option<&Module> {
        if pc.wrapping_sub(last.start) >= last.limit - last.start {
            *last = self.code(pc)?;
        }
        self.modules.get(last.module as usize)
    }

    /// All modules, by start address.
    pub fn iter(&self) -> std::slice::Iter<'_, Module> {
        self.modules.iter()
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// There is no module.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Touches every page of every table, so that no page fault waits in the signal handler.
    pub fn prefault(&self) {
        const PAGE: usize = 4096;
        let touch = |bytes: usize, at: &dyn Fn(usize) -> u64| {
            (0..bytes).step_by(PAGE).map(at).fold(0, u64::wrapping_add)
        };
        for module in &self.modules {
            let (rows, rules) = (module.table.rows(), module.table.rules());
            let sum = touch(size_of_val(rows), &|b| u64::from(rows[b / 4].rule));
            let more = touch(size_of_val(rules), &|b| rules[b / 12].cfa as u64);
            std::hint::black_box(sum.wrapping_add(more));
        }
    }
}
