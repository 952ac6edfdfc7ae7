//! aarch64.

pub(crate) use pilotlight_unwind::aarch64::{Registers, unwind};

/// The ABI lets nobody keep anything below the stack pointer.
pub(crate) const RED_ZONE: usize = 0;

/// Registers of the code that a signal interrupted.
///
/// # Safety
/// `context` is a valid ucontext.
pub(crate) unsafe fn interrupted(context: *const libc::ucontext_t) -> Registers {
    // SAFETY: promised by the caller.
    let machine = unsafe { &(*context).uc_mcontext };
    Registers {
        pc: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        lr: machine.regs[30],
    }
}

/// Registers at this instruction of the function that it is inlined into.
#[inline(always)]
pub(crate) fn own_registers() -> Registers {
    let (pc, sp, fp, lr): (u64, u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        std::arch::asm!(
            "adr {pc}, .",
            "mov {sp}, sp",
            "mov {fp}, x29",
            "mov {lr}, x30",
            pc = out(reg) pc,
            sp = out(reg) sp,
            fp = out(reg) fp,
            lr = out(reg) lr,
            options(nostack, nomem, preserves_flags),
        );
    }
    Registers { pc, sp, fp, lr }
}

/// x29.
pub(crate) fn frame_pointer(registers: &Registers) -> u64 {
    registers.fp
}

/// Where the calling thread's control block is: at the upper end of its stack, below its
/// thread-local storage.
#[cfg(feature = "thread-hook")]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register that the ABI gives this meaning.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// A system call of two arguments, without libc. Async-signal-safe.
///
/// # Safety
/// What the call reads or writes at its arguments must be there.
#[cfg(not(miri))]
pub(super) unsafe fn call(number: libc::c_long, first: usize, second: usize) -> isize {
    let result;
    // SAFETY: promised by the caller.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") first => result,
            in("x1") second, options(nostack));
    }
    result
}
