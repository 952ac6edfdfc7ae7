//! Static thread-local storage, reached from the thread pointer: no call, so never into the loader.

/// Address of the thread-local `$symbol`, which this program or library defines, for the calling
/// thread. A number; it stays good while the thread lives.
macro_rules! static_tls {
    ($symbol:literal) => {{
        let address: usize;
        // SAFETY: reads the thread pointer and adds the offset that linker or loader put in.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "mov {address}, qword ptr fs:[0]",
                concat!("add {address}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                address = out(reg) address,
                options(pure, nomem, nostack),
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "mrs {address}, tpidr_el0",
                concat!("adrp {offset}, :gottprel:", $symbol),
                concat!("ldr {offset}, [{offset}, :gottprel_lo12:", $symbol, "]"),
                "add {address}, {address}, {offset}",
                address = out(reg) address,
                offset = out(reg) _,
                options(pure, nomem, nostack),
            );
        }
        address
    }};
}

pub(crate) use static_tls;
