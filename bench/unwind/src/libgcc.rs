use crate::handler::Start;

#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

type Visit = extern "C" fn(*mut Context, *mut libc::c_void) -> libc::c_int;

unsafe extern "C" {
    fn _Unwind_Backtrace(visit: Visit, argument: *mut libc::c_void) -> libc::c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

struct Found<'a> {
    out: &'a mut [u64],
    frames: usize,
}

/// `_Unwind_Backtrace`; it starts at the handler itself, so it sees about four frames more.
pub fn walk(_: &Start, out: &mut [u64]) -> usize {
    let mut found = Found { out, frames: 0 };
    // SAFETY: `visit` gets back the pointer to `found`, which outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut found).cast()) };
    found.frames
}

extern "C" fn visit(context: *mut Context, argument: *mut libc::c_void) -> libc::c_int {
    const CONTINUE: libc::c_int = 0;
    const END_OF_STACK: libc::c_int = 5;
    // SAFETY: the pointer given to `_Unwind_Backtrace`.
    let found = unsafe { &mut *argument.cast::<Found<'_>>() };
    let Some(slot) = found.out.get_mut(found.frames) else {
        return END_OF_STACK;
    };
    // SAFETY: the context that libgcc passed in.
    *slot = unsafe { _Unwind_GetIP(context) } as u64;
    found.frames += 1;
    CONTINUE
}
