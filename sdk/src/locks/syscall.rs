//! libc's `syscall`, with futex waits timed.

use std::arch::{asm, global_asm};
use std::ffi::{c_int, c_long};

use super::{Kind, is_on, record};
use crate::sys;

// All but futex calls go straight to the kernel, as in libc. Written out, because the number of
// arguments is not known: seven registers and stack words are passed on whatever they hold.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".section .text.syscall,\"ax\",@progbits",
    ".weak syscall",
    ".weak pilotlight_hook_syscall",
    ".type syscall,@function",
    ".p2align 4",
    "pilotlight_hook_syscall:",
    "syscall:",
    ".cfi_startproc",
    "cmp rdi, {number}",
    "je {futex}",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "cmp rax, -4095",
    "jae 2f",
    "ret",
    "2: mov rdi, rax",
    "jmp {failed}",
    ".cfi_endproc",
    ".size syscall, . - syscall",
    ".text",
    number = const libc::SYS_futex,
    futex = sym futex,
    failed = sym failed,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".section .text.syscall,\"ax\",@progbits",
    ".weak syscall",
    ".weak pilotlight_hook_syscall",
    ".type syscall,@function",
    ".p2align 4",
    "pilotlight_hook_syscall:",
    "syscall:",
    ".cfi_startproc",
    "cmp x0, {number}",
    "b.eq 3f",
    "mov x8, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "mov x3, x4",
    "mov x4, x5",
    "mov x5, x6",
    "svc #0",
    "cmn x0, #4095",
    "b.hs 2f",
    "ret",
    "2: b {failed}",
    "3: b {futex}",
    ".cfi_endproc",
    ".size syscall, . - syscall",
    ".text",
    number = const libc::SYS_futex,
    futex = sym futex,
    failed = sym failed,
);

unsafe extern "C" {
    static pilotlight_hook_syscall: u8;
}

pub(super) fn keep() {
    std::hint::black_box(&raw const pilotlight_hook_syscall);
}

/// The program's `syscall` is the one above.
pub(super) fn is_ours() -> bool {
    // SAFETY: the kernel knows no such operation and touches nothing.
    unsafe { libc::syscall(libc::SYS_futex, 0, PROBE) == OURS }
}

/// Sets errno to what the kernel answered.
extern "C" fn failed(answer: c_long) -> c_long {
    // SAFETY: the calling thread's.
    unsafe { *sys::errno() = -answer as c_int };
    -1
}

/// No operation of the kernel's: answered by the function below.
const PROBE: c_long = 0x70;
const OURS: c_long = 0x7069_6c74;
/// What the kernel answers when the word had changed already: nothing was waited for.
const CHANGED: c_long = -(libc::EAGAIN as c_long);
/// The standard library's mutex: locked, and others wait.
const STD_CONTENDED: c_long = 2;

/// `syscall(SYS_futex, …)`.
unsafe extern "C" fn futex(
    _number: c_long,
    word: c_long,
    operation: c_long,
    value: c_long,
    timeout: c_long,
    word2: c_long,
    value3: c_long,
) -> c_long {
    let arguments = [word, operation, value, timeout, word2, value3];
    if !is_on() || !is_wait(operation) {
        if operation == PROBE {
            return OURS;
        }
        // SAFETY: the caller's arguments.
        return answered(unsafe { raw(arguments) });
    }
    let wait = record::Wait::begin();
    // SAFETY: the caller's arguments.
    let answer = unsafe { raw(arguments) };
    if answer != CHANGED {
        let bitset = operation as c_int & libc::FUTEX_CMD_MASK == libc::FUTEX_WAIT_BITSET;
        let kind = match bitset && timeout == 0 && value as u32 as c_long == STD_CONTENDED {
            true => Kind::FutexLock,
            false => Kind::Futex,
        };
        wait.end(kind);
    }
    answered(answer)
}

fn is_wait(operation: c_long) -> bool {
    matches!(
        operation as c_int & libc::FUTEX_CMD_MASK,
        libc::FUTEX_WAIT
            | libc::FUTEX_WAIT_BITSET
            | libc::FUTEX_LOCK_PI
            | libc::FUTEX_LOCK_PI2
            | libc::FUTEX_WAIT_REQUEUE_PI
    )
}

fn answered(answer: c_long) -> c_long {
    if (-4095..0).contains(&answer) {
        failed(answer)
    } else {
        answer
    }
}

/// # Safety
/// As the system call itself.
#[inline(always)]
unsafe fn raw(arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let answer;
    // SAFETY: the kernel's calling convention; rcx and r11 are lost.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_futex => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    // SAFETY: the kernel's calling convention.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc #0",
            in("x8") libc::SYS_futex,
            inlateout("x0") a => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    answer
}
