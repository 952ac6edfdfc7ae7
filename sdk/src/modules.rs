//! What is loaded in this process, as an immutable snapshot for handlers.

use std::ffi::CStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use pilotlight_unwind::{Cache, Module, Modules, ProgramHeader, build_id_in_memory};

use crate::fork::{Held, Lock};

/// Everything that a handler needs to walk a stack.
pub(crate) struct Snapshot {
    pub(crate) modules: Modules,
    pub(crate) cache: Cache,
    pub(crate) generation: u32,
    /// Readable and writable private mappings, ascending: a thread's stack is in one of them.
    pub(crate) stacks: Vec<Range<usize>>,
    pub(crate) main_stack_end: usize,
}

/// Modules as they were at one time, to resolve what was sampled then.
pub(crate) struct Generation {
    pub(crate) number: u32,
    pub(crate) modules: Modules,
    pub(crate) known: Vec<Arc<Module>>,
}

impl Generation {
    pub(crate) fn new(number: u32, known: Vec<Arc<Module>>) -> Generation {
        let copies = known.iter().map(|module| Module::clone(module)).collect();
        Generation {
            number,
            modules: Modules::new(copies),
            known,
        }
    }
}

/// How often the loader added and removed objects; equal pairs mean that nothing changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoaderCounts {
    adds: u64,
    removes: u64,
}

/// Reads the loader's counters. Takes the loader's lock: never in a handler.
pub(crate) fn loader_counts() -> LoaderCounts {
    let mut counts = LoaderCounts::default();
    each_object(&mut |object| {
        counts = LoaderCounts {
            adds: object.dlpi_adds,
            removes: object.dlpi_subs,
        };
        false
    });
    counts
}

/// All objects that are loaded now. Those already in `known`, as read at `counts`, are not read again.
pub(crate) fn loaded(known: &[Arc<Module>], counts: LoaderCounts) -> Vec<Arc<Module>> {
    let mut modules = Vec::new();
    each_object(&mut |object| {
        // The loaders of glibc and musl both begin with the program itself.
        let is_program = modules.is_empty();
        modules.extend(module_of(object, is_program, known, counts));
        true
    });
    modules.extend(unlisted_vdso(&modules, known));
    modules
}

/// Modules as they were at some state of the loader.
type Known = (LoaderCounts, Arc<Vec<Arc<Module>>>);

static KNOWN: Lock<Option<Known>> = Lock::new(None);

/// The loader's own lock would stay taken for ever in a child that is forked while we hold it.
static LOADER: Lock<()> = Lock::new(());

/// Held around a fork.
pub(crate) fn locks() -> [&'static dyn Held; 2] {
    [&KNOWN, &LOADER]
}

/// All objects that are loaded now, for looking up addresses one by one: read once, and again only
/// after a change.
pub(crate) fn current() -> Arc<Vec<Arc<Module>>> {
    let counts = loader_counts();
    let (at, before) = match KNOWN.lock().clone() {
        Some((at, before)) if at == counts => return before,
        known => known.unwrap_or_default(),
    };
    // Not under the lock: the loader has locks of its own.
    let modules = Arc::new(loaded(&before, at));
    *KNOWN.lock() = Some((counts, Arc::clone(&modules)));
    modules
}

/// The kernel's own library, where no loader lists it: in a program that holds its libc.
fn unlisted_vdso(modules: &[Arc<Module>], known: &[Arc<Module>]) -> Option<Arc<Module>> {
    let start = vdso();
    let is_it = |module: &&Arc<Module>| module.start_avma == start;
    if start == 0 || modules.iter().any(|module| is_it(&module)) {
        return None;
    }
    if let Some(module) = known.iter().find(is_it) {
        return Some(Arc::clone(module));
    }
    // SAFETY: the kernel maps it whole and keeps it as long as the process lives.
    let module = unsafe { Module::from_mapped_elf(start as *const u8, VDSO) };
    module.ok().map(Arc::new)
}

/// How the kernel's library is called in a profile.
const VDSO: &[u8] = b"[vdso]";

/// Where the kernel's library is mapped; 0 when there is none.
fn vdso() -> u64 {
    // SAFETY: a number in, a number out.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }
}

fn module_of(
    object: &libc::dl_phdr_info,
    is_program: bool,
    known: &[Arc<Module>],
    counts: LoaderCounts,
) -> Option<Arc<Module>> {
    // SAFETY: the loader describes its own table.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let headers: Vec<ProgramHeader> = headers.iter().map(header_of).collect();
    let load = |h: &&ProgramHeader| h.kind == libc::PT_LOAD;
    let first = headers.iter().find(load)?;
    let start = object.dlpi_addr.wrapping_add(first.vaddr);
    let path = if is_program {
        program_path()
    } else if start == vdso() {
        VDSO.to_vec()
    } else {
        path_of(object)
    };
    // SAFETY: the loader's lock is held during the callback: the object stays mapped.
    let build_id = unsafe { build_id_in_memory(object.dlpi_addr, &headers) };
    // A library that was rebuilt may come back at the same path and address. Without a build id
    // nobody can tell, so it is read again once anything was removed.
    let can_tell = !build_id.is_empty() || object.dlpi_subs == counts.removes;
    let same = |module: &&Arc<Module>| {
        module.path == path
            && module.base_avma == object.dlpi_addr
            && module.start_avma == start
            && module.build_id == build_id
            && can_tell
    };
    if let Some(module) = known.iter().find(same) {
        return Some(Arc::clone(module));
    }
    // SAFETY: the loader's lock is held during the callback: the object stays mapped.
    unsafe { Module::from_memory(object.dlpi_addr, &headers, path) }
        .ok()
        .map(Arc::new)
}

/// musl's loader names the program as it was called, glibc's not at all.
fn program_path() -> Vec<u8> {
    std::env::current_exe().map_or_else(
        |_| b"/proc/self/exe".to_vec(),
        |path| path.as_os_str().as_bytes().to_vec(),
    )
}

fn path_of(object: &libc::dl_phdr_info) -> Vec<u8> {
    if object.dlpi_name.is_null() {
        return Vec::new();
    }
    // SAFETY: the loader's names end with a NUL.
    unsafe { CStr::from_ptr(object.dlpi_name) }
        .to_bytes()
        .to_vec()
}

fn header_of(header: &libc::Elf64_Phdr) -> ProgramHeader {
    ProgramHeader {
        kind: header.p_type,
        flags: header.p_flags,
        offset: header.p_offset,
        vaddr: header.p_vaddr,
        paddr: header.p_paddr,
        file_size: header.p_filesz,
        memory_size: header.p_memsz,
        align: header.p_align,
    }
}

type Visit<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info) -> bool;

/// Calls `visit` for each loaded object while it returns true.
fn each_object(mut visit: Visit<'_>) {
    unsafe extern "C" fn callback(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `data` is the pointer handed to dl_iterate_phdr below, `info` the loader's.
        let (visit, info) = unsafe { (&mut *data.cast::<Visit<'_>>(), &*info) };
        libc::c_int::from(!visit(info))
    }
    let _fork_waits = LOADER.lock();
    let data: *mut Visit<'_> = &raw mut visit;
    // SAFETY: the callback gets the right type back, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(callback), data.cast()) };
}

impl Snapshot {
    /// A snapshot of `modules` and of the stacks as they are mapped now.
    pub(crate) fn new(modules: &[Arc<Module>], generation: u32) -> Box<Snapshot> {
        let modules = Modules::new(modules.iter().map(|module| Module::clone(module)).collect());
        modules.prefault();
        let (stacks, main_stack_end) = writable_mappings();
        Box::new(Snapshot {
            cache: Cache::new(&modules),
            modules,
            generation,
            stacks,
            main_stack_end,
        })
    }
}

/// Readable, writable private mappings, and the end of the main thread's stack.
fn writable_mappings() -> (Vec<Range<usize>>, usize) {
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut areas = Vec::new();
    let mut main_stack_end = 0;
    for line in String::from_utf8_lossy(&maps).lines() {
        let Some((range, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((start, end)) = range.split_once('-') else {
            continue;
        };
        let (Ok(start), Ok(end)) = (
            usize::from_str_radix(start, 16),
            usize::from_str_radix(end, 16),
        ) else {
            continue;
        };
        if rest.starts_with("rw-p") {
            areas.push(start..end);
        }
        if line.ends_with("[stack]") {
            main_stack_end = end;
        }
    }
    (areas, main_stack_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_program_libc_and_the_vdso_are_loaded_and_this_stack_is_known() {
        let modules = loaded(&[], LoaderCounts::default());
        let here =
            the_own_program_libc_and_the_vdso_are_loaded_and_this_stack_is_known as *const ();
        let snapshot = Snapshot::new(&modules, 1);
        let own = snapshot.modules.find(here as u64).unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(own.path, exe.as_os_str().as_bytes());
        assert!(!own.build_id.is_empty());
        let libc = (!cfg!(target_feature = "crt-static")).then_some("libc.so");
        // Emulators have none.
        let kernel = (vdso() != 0).then_some("[vdso]");
        for name in libc.into_iter().chain(kernel) {
            let named = |m: &Arc<Module>| String::from_utf8_lossy(&m.path).contains(name);
            assert!(modules.iter().any(named), "{name}");
        }
        let local = &raw const own as usize;
        assert!(snapshot.stacks.iter().any(|area| area.contains(&local)));
    }

    #[test]
    fn modules_that_stay_are_not_read_again() {
        let counts = loader_counts();
        let first = loaded(&[], counts);
        let second = loaded(&first, counts);
        assert_eq!(first.len(), second.len());
        assert!(first.iter().zip(&second).all(|(a, b)| Arc::ptr_eq(a, b)));
    }

    #[cfg(not(target_feature = "crt-static"))]
    #[test]
    fn a_library_that_was_rebuilt_is_read_again_at_the_same_path_and_address() {
        let counts = loader_counts();
        let mut known = loaded(&[], counts);
        let libc = |m: &Arc<Module>| String::from_utf8_lossy(&m.path).contains("libc.so");
        let at = known.iter().position(libc).unwrap();
        let true_id = known[at].build_id.clone();
        let mut other = Module::clone(&known[at]);
        other.build_id = vec![7; 20];
        known[at] = Arc::new(other);
        let read = loaded(&known, counts);
        assert_eq!(read[at].build_id, true_id);
        for (index, module) in read.iter().enumerate() {
            assert_eq!(Arc::ptr_eq(module, &known[index]), index != at);
        }
    }
}
