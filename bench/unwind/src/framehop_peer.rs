//! framehop with its own cache, set up as an in-process profiler would.

use std::{cell::UnsafeCell, error::Error, ops::Range, sync::OnceLock};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, UnwindRegsNative,
    Unwinder, UnwinderNative,
};

use crate::handler::Start;

type Policy = MustNotAllocateDuringUnwind;

struct State {
    unwinder: UnwinderNative<&'static [u8], Policy>,
    cache: UnsafeCell<CacheNative<Policy>>,
}

// SAFETY: only the one measuring thread's handler touches the cache.
unsafe impl Sync for State {}
// SAFETY: it stays where it is made.
unsafe impl Send for State {}

static STATE: OnceLock<State> = OnceLock::new();

/// Registers all loaded modules by their mapped `.eh_frame_hdr`.
///
/// # Errors
/// No module has unwind information, or it was called twice.
pub fn prepare() -> Result<(), Box<dyn Error>> {
    let mut unwinder = UnwinderNative::new();
    // SAFETY: `collect` gets back the pointer to `unwinder`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut unwinder).cast()) };
    let state = State {
        unwinder,
        cache: UnsafeCell::new(CacheNative::new_in()),
    };
    STATE.set(state).map_err(|_| "prepared twice".into())
}

/// One frame after the other until the thread's root.
pub fn walk(start: &Start, out: &mut [u64]) -> usize {
    let Some(state) = STATE.get() else { return 0 };
    // SAFETY: see `Sync` above; a handler does not interrupt itself.
    let cache = unsafe { &mut *state.cache.get() };
    let registers = UnwindRegsNative::new(start.ip, start.sp, start.bp);
    let mut read = |address: u64| {
        if address < start.sp || address > start.stack.end - 8 || !address.is_multiple_of(8) {
            return Err(());
        }
        // SAFETY: between the interrupted stack pointer and the stack's end.
        Ok(unsafe { *(address as *const u64) })
    };
    let mut frames = state
        .unwinder
        .iter_frames(start.ip, registers, cache, &mut read);
    let mut found = 0;
    for slot in out {
        match frames.next() {
            Ok(Some(frame)) => *slot = frame.address(),
            _ => break,
        }
        found += 1;
    }
    found
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    argument: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the pointer given to `dl_iterate_phdr`.
    let unwinder = unsafe { &mut *argument.cast::<UnwinderNative<&'static [u8], Policy>>() };
    // SAFETY: glibc passes a valid record with `dlpi_phnum` headers.
    let (base, headers) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        (info.dlpi_addr, headers)
    };
    if let Some(module) = module(base, headers) {
        unwinder.add_module(module);
    }
    0
}

fn module(base: u64, headers: &[libc::Elf64_Phdr]) -> Option<Module<&'static [u8]>> {
    let loads = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let range = |h: &libc::Elf64_Phdr| h.p_vaddr..h.p_vaddr + h.p_memsz;
    let hdr = range(headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME)?);
    let text = range(loads().find(|h| h.p_flags & libc::PF_X != 0)?);
    let end = loads().map(|h| range(h).end).max()?;
    // .eh_frame_hdr: four format bytes, then a pc-relative i32 to .eh_frame.
    let offset = i32::from_ne_bytes(
        mapped(base, &(hdr.start + 4..hdr.start + 8))
            .try_into()
            .ok()?,
    );
    let start = (hdr.start + 4).checked_add_signed(i64::from(offset))?;
    // Its own end is a zero word; the end of its segment bounds it.
    let frame = start..loads().map(range).find(|r| r.contains(&start))?.end;
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: Some(text.clone()),
        text: Some(mapped(base, &text)),
        eh_frame: Some(mapped(base, &frame)),
        eh_frame_svma: Some(frame),
        eh_frame_hdr: Some(mapped(base, &hdr)),
        eh_frame_hdr_svma: Some(hdr),
        ..Default::default()
    };
    Some(Module::new(
        "module".into(),
        base..base + end,
        base,
        sections,
    ))
}

fn mapped(base: u64, range: &Range<u64>) -> &'static [u8] {
    let length = (range.end - range.start) as usize;
    // SAFETY: a part of a segment of a module that this process never unloads.
    unsafe { std::slice::from_raw_parts((base + range.start) as *const u8, length) }
}
