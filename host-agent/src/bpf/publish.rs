//! Keeps what the kernel knows of processes and files true.

use crate::process::{ProcessId, Processes};
use pilotlight_agent_bpf::{Error, FileNumber, Mapping, Tables};
use pilotlight_unwind::{Module, Modules, Table};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// What was handed over.
#[derive(Default)]
pub(super) struct Publisher {
    /// By the address of the table, which is no other's as long as the weak reference is here.
    files: HashMap<usize, (Weak<Table>, FileNumber)>,
    processes: HashMap<u32, (ProcessId, Arc<Modules>)>,
    /// Processes whose mappings found no room.
    refused: u64,
}

impl Publisher {
    /// Hands over what runs in `pid` now, or takes it back when that ended.
    pub fn update(
        &mut self,
        pid: u32,
        tables: &mut Tables,
        processes: &Processes,
    ) -> Result<(), Error> {
        let Some(id) = processes.known(pid) else {
            self.processes.remove(&pid);
            return tables.remove_process(pid);
        };
        let Some(code) = processes.code(pid) else {
            return Ok(());
        };
        let modules = Arc::clone(&code.modules);
        let known = self.processes.get(&pid);
        if known.is_some_and(|(known, old)| *known == id && Arc::ptr_eq(old, &modules)) {
            // Only tables that were evicted can be missing.
            return self.refill(&modules, tables);
        }
        let runtime = processes.runtimes().of(id, &code);
        tables.set_runtime(pid, runtime)?;
        let mut mappings = Vec::with_capacity(modules.len());
        for module in modules.iter() {
            mappings.push(self.mapping(module, tables)?);
        }
        if tables.set_process(pid, id.image as u32, &mappings)? {
            self.processes.insert(pid, (id, modules));
        } else {
            self.refused += 1;
        }
        Ok(())
    }

    fn mapping(&mut self, module: &Module, tables: &mut Tables) -> Result<Mapping, Error> {
        Ok(Mapping {
            start: module.start_avma,
            end: module.end_avma,
            image_base: module.image_base(),
            file: self.file(&module.table, tables)?,
        })
    }

    /// Code without CFI needs no table.
    fn file(
        &mut self,
        table: &Arc<Table>,
        tables: &mut Tables,
    ) -> Result<Option<FileNumber>, Error> {
        if table.is_empty() {
            return Ok(None);
        }
        let address = Arc::as_ptr(table) as usize;
        if let Some((_, number)) = self.files.get(&address) {
            tables.fill(*number, table)?;
            return Ok(Some(*number));
        }
        let number = tables.add_file(table)?;
        if let Some(number) = number {
            self.files.insert(address, (Arc::downgrade(table), number));
        }
        Ok(number)
    }

    fn refill(&mut self, modules: &Modules, tables: &mut Tables) -> Result<(), Error> {
        for module in modules.iter() {
            self.file(&module.table, tables)?;
        }
        Ok(())
    }

    /// Forgets files that nobody maps any more. Returns how many lists of mappings found no room since the last time.
    pub fn sweep(&mut self, tables: &mut Tables) -> Result<u64, Error> {
        let gone =
            |(_, (table, _)): &(&usize, &(Weak<Table>, FileNumber))| table.strong_count() == 0;
        let gone: Vec<usize> = self.files.iter().filter(gone).map(|(at, _)| *at).collect();
        for address in gone {
            if let Some((_, number)) = self.files.remove(&address) {
                tables.forget_file(number)?;
            }
        }
        Ok(std::mem::take(&mut self.refused))
    }
}
