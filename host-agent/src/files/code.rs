//! What is mapped in one process, as walks need it.

use super::{File, Files};
use crate::process::{Mapping, Process};
use pilotlight_unwind::{Module, Modules, Segment, Table};
use std::sync::{Arc, OnceLock};

/// What is mapped in a process, found out once.
#[derive(Debug)]
pub struct Code {
    mappings: Arc<Vec<Mapping>>,
    /// Those of `mappings`, where they are files that can be read.
    files: Vec<Option<Arc<File>>>,
    /// For walks.
    pub modules: Arc<Modules>,
}

impl Code {
    /// Mappings of files, with these.
    pub fn files(&self) -> impl Iterator<Item = (&Mapping, &Arc<File>)> {
        let both = self.mappings.iter().zip(&self.files);
        both.filter_map(|(mapping, file)| Some((mapping, file.as_ref()?)))
    }

    /// The file of a mapping that is here as it is.
    fn file(&self, mapping: &Mapping) -> Option<&Arc<File>> {
        let at = self
            .mappings
            .binary_search_by_key(&mapping.start, |known| known.start)
            .ok()?;
        let same = self.mappings.get(at) == Some(mapping);
        self.files.get(at)?.as_ref().filter(|_| same)
    }
}

impl Files {
    /// All code of a process. What `before`, the same program's, has of it too is taken from there.
    pub fn code(&self, process: &Process, before: Option<&Code>) -> Code {
        let none = Arc::new(Table::empty());
        let mut files = Vec::with_capacity(process.mappings.len());
        let mut modules = Vec::with_capacity(process.mappings.len());
        for mapping in process.mappings.iter() {
            let file = match before.and_then(|before| before.file(mapping)) {
                Some(known) => Some(Arc::clone(known)),
                None => self.of(process.id.pid, mapping),
            };
            let found = table(mapping, file.as_deref());
            let (table, bias) = found.unwrap_or_else(|| (Arc::clone(&none), mapping.start));
            modules.push(module(mapping, table, bias));
            files.push(file);
        }
        Code {
            mappings: Arc::clone(&process.mappings),
            files,
            modules: Arc::new(Modules::new(modules)),
        }
    }
}

/// Rows of a mapping, and what is added to their stated addresses.
fn table(mapping: &Mapping, file: Option<&File>) -> Option<(Arc<Table>, u64)> {
    if mapping.is_vdso() {
        let (table, bias) = vdso()?;
        return Some((Arc::clone(table), mapping.start.wrapping_add(*bias)));
    }
    let file = file?;
    Some((Arc::clone(&file.table), file.bias(mapping)?))
}

fn module(mapping: &Mapping, table: Arc<Table>, bias: u64) -> Module {
    Module {
        start_avma: mapping.start,
        end_avma: mapping.end,
        base_avma: bias,
        table,
        build_id: Vec::new(),
        path: Vec::new(),
        segments: vec![Segment {
            start: mapping.start,
            limit: mapping.end,
            file_offset: mapping.file_offset,
            executable: true,
        }],
    }
}

/// The kernel maps one and the same page of functions into every process: ours is read. The bias is relative to its
/// start.
fn vdso() -> Option<&'static (Arc<Table>, u64)> {
    static VDSO: OnceLock<Option<(Arc<Table>, u64)>> = OnceLock::new();
    let read = || {
        // SAFETY: no preconditions.
        let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        if start == 0 {
            return None;
        }
        // SAFETY: the kernel mapped an ELF image there, for as long as this process lives.
        let module = unsafe { Module::from_mapped_elf(start as *const u8, Vec::new()) }.ok()?;
        Some((module.table, module.base_avma.wrapping_sub(start)))
    };
    VDSO.get_or_init(read).as_ref()
}
