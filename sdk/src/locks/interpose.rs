//! The hooks as symbols that a shared library exports.

/// Exports the functions by which waits are timed (`syscall`, `pthread_mutex_lock` and relatives)
/// from the `cdylib` whose root this stands in: loaded by `LD_PRELOAD`, or linked before libc, it
/// then sees the waits of the whole process. Without it a `cdylib` sees those of its own code.
///
/// ```no_run
/// // lib.rs of a crate with crate-type = ["cdylib"]
/// # mod library {
/// pilotlight::interpose!();
/// # }
/// ```
#[macro_export]
macro_rules! interpose {
    () => {
        $crate::interpose!(@each
            syscall pthread_mutex_lock pthread_mutex_timedlock pthread_mutex_clocklock
            pthread_rwlock_rdlock pthread_rwlock_timedrdlock pthread_rwlock_clockrdlock
            pthread_rwlock_wrlock pthread_rwlock_timedwrlock pthread_rwlock_clockwrlock
            pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait
            sem_wait sem_timedwait pthread_barrier_wait pthread_join
        );
    };
    (@each $($name:ident)+) => {
        $(
            /// As libc's function of this name.
            #[doc(hidden)]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                ::core::arch::naked_asm!(concat!("jmp pilotlight_hook_", stringify!($name)));
                #[cfg(target_arch = "aarch64")]
                ::core::arch::naked_asm!(concat!("b pilotlight_hook_", stringify!($name)));
            }
        )+
    };
}
