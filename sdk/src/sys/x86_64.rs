//! x86-64.

pub(crate) use pilotlight_unwind::{Registers, unwind};

/// What the ABI lets a function use below its stack pointer, bytes.
pub(crate) const RED_ZONE: usize = 128;

/// Registers of the code that a signal interrupted.
///
/// # Safety
/// `context` is a valid ucontext.
pub(crate) unsafe fn interrupted(context: *const libc::ucontext_t) -> Registers {
    // SAFETY: promised by the caller.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    Registers {
        ip: registers[libc::REG_RIP as usize] as u64,
        sp: registers[libc::REG_RSP as usize] as u64,
        bp: registers[libc::REG_RBP as usize] as u64,
        bx: registers[libc::REG_RBX as usize] as u64,
    }
}

/// Registers at this instruction of the function that it is inlined into.
#[inline(always)]
pub(crate) fn own_registers() -> Registers {
    let (ip, sp, bp, bx): (u64, u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]",
            "mov {sp}, rsp",
            "mov {bp}, rbp",
            "mov {bx}, rbx",
            ip = out(reg) ip,
            sp = out(reg) sp,
            bp = out(reg) bp,
            bx = out(reg) bx,
            options(nostack, nomem, preserves_flags),
        );
    }
    Registers { ip, sp, bp, bx }
}

/// `rbp`.
pub(crate) fn frame_pointer(registers: &Registers) -> u64 {
    registers.bp
}

/// Where the calling thread's control block is: at the upper end of its stack.
#[cfg(feature = "thread-hook")]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI keeps the thread pointer at %fs:0.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
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
    // SAFETY: promised by the caller; the kernel changes rcx and r11 only.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") first, in("rsi") second, out("rcx") _, out("r11") _, options(nostack));
    }
    result
}
