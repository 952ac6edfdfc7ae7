//! pilotlight's table and cache, set up as the SDK does.

use std::{error::Error, ffi::CStr, sync::OnceLock};

use pilotlight_unwind::{Cache, Module, Modules, ProgramHeader, Registers, unwind};

use crate::handler::Start;

static STATE: OnceLock<(Modules, Cache)> = OnceLock::new();

/// Compiles the tables of all loaded modules from memory.
///
/// # Errors
/// Called twice.
pub fn prepare() -> Result<(), Box<dyn Error>> {
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: `collect` gets back the pointer to `modules`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut modules).cast()) };
    let modules = Modules::new(modules);
    let cache = Cache::new(&modules);
    STATE
        .set((modules, cache))
        .map_err(|_| "prepared twice".into())
}

/// The walk of the SDK's handler.
pub fn walk(start: &Start, out: &mut [u64]) -> usize {
    let Some((modules, cache)) = STATE.get() else {
        return 0;
    };
    let registers = Registers {
        ip: start.ip,
        sp: start.sp,
        bp: start.bp,
        bx: start.bx,
    };
    // The red zone below the stack pointer belongs to the leaf.
    let stack = start.sp as usize - 128..start.stack.end as usize;
    // SAFETY: all of it is this thread's stack.
    unsafe { unwind(registers, modules, cache, stack, out) }.frames
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    argument: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the pointer given to `dl_iterate_phdr`.
    let modules = unsafe { &mut *argument.cast::<Vec<Module>>() };
    // SAFETY: glibc passes a valid record with `dlpi_phnum` headers and a C string.
    let (info, headers, name) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info, headers, CStr::from_ptr(info.dlpi_name))
    };
    let headers: Vec<ProgramHeader> = headers.iter().map(header).collect();
    // SAFETY: the module is loaded and this process never unloads one.
    let module = unsafe { Module::from_memory(info.dlpi_addr, &headers, name.to_bytes()) };
    modules.extend(module.ok());
    0
}

fn header(h: &libc::Elf64_Phdr) -> ProgramHeader {
    ProgramHeader {
        kind: h.p_type,
        flags: h.p_flags,
        offset: h.p_offset,
        vaddr: h.p_vaddr,
        paddr: h.p_paddr,
        file_size: h.p_filesz,
        memory_size: h.p_memsz,
        align: h.p_align,
    }
}
