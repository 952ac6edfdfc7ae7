//! A probe point on each looked-at allocation, in the format of SystemTap's `sys/sdt.h`: an agent
//! outside (`bpftrace -e 'usdt:/path:pilotlight:alloc { … }'`) can trap it; unused, it is one `nop`.
//!
//! Arguments: address, size in bytes, bytes that it stands for.

/// <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(never)]
pub(super) fn sampled(address: u64, size: u64, stands_for: u64) {
    // SAFETY: one instruction without effect; the rest is a note in the file.
    unsafe {
        std::arch::asm!(
            "990: nop",
            ".pushsection .note.stapsdt, \"?\", \"note\"",
            ".balign 4",
            ".4byte 992f-991f, 994f-993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 990b",
            ".8byte _.stapsdt.base",
            ".8byte 0",
            ".asciz \"pilotlight\"",
            ".asciz \"alloc\"",
            ".asciz \"8@%rdi 8@%rsi 8@%rdx\"",
            "994: .balign 4",
            ".popsection",
            ".ifndef _.stapsdt.base",
            ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            "_.stapsdt.base: .space 1",
            ".size _.stapsdt.base, 1",
            ".popsection",
            ".endif",
            in("rdi") address,
            in("rsi") size,
            in("rdx") stands_for,
            options(nostack, nomem, preserves_flags),
        );
    }
}

/// Not written for this processor.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) fn sampled(_address: u64, _size: u64, _stands_for: u64) {}
