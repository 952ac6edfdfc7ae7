//! The functions of pthreads that block. They are timed when they do: what is free is taken by
//! libc's `try` function, which answers the same.
//!
//! Some of them are cancellation points: a cancelled thread unwinds through ours, which hold nothing
//! that would have to be dropped.

use std::arch::global_asm;
use std::ffi::{CStr, c_int, c_void};

use super::next::Next;
use super::record::Wait;
use super::{Kind, is_on};

type Mutex = *mut libc::pthread_mutex_t;
type RwLock = *mut libc::pthread_rwlock_t;
type Condvar = *mut libc::pthread_cond_t;
type Semaphore = *mut libc::sem_t;
type Barrier = *mut libc::pthread_barrier_t;
type Clock = libc::clockid_t;
type Deadline = *const libc::timespec;

/// glibc 2.3.2 changed what a condition variable is; 64-bit Arm has no old ones.
const CONDVARS: Option<&CStr> = match cfg!(target_arch = "x86_64") {
    true => Some(c"GLIBC_2.3.2"),
    false => None,
};

/// How a call begins while waits are timed.
enum First {
    /// libc's `try` function has answered.
    Answered(c_int),
    /// It will not block.
    Free,
    Blocks,
}

type Try<T> = unsafe extern "C" fn(*mut T) -> c_int;

/// Takes what is free; all answers but "busy" are those of the call that waits.
unsafe fn tried<T>(attempt: Try<T>, lock: *mut T) -> First {
    // SAFETY: promised by the caller.
    match unsafe { attempt(lock) } {
        libc::EBUSY => First::Blocks,
        answer => First::Answered(answer),
    }
}

/// Not `sem_trywait`: that is no cancellation point.
unsafe fn available(semaphore: Semaphore) -> First {
    let mut value = 0;
    // SAFETY: promised by the caller.
    match unsafe { libc::sem_getvalue(semaphore, &mut value) } {
        0 if value <= 0 => First::Blocks,
        _ => First::Free,
    }
}

/// Waits without libc's function, which cannot be had while the loader itself is calling.
unsafe fn spin<T>(attempt: Try<T>, lock: *mut T) -> c_int {
    loop {
        // SAFETY: promised by the caller.
        match unsafe { attempt(lock) } {
            // SAFETY: no memory is involved.
            libc::EBUSY => _ = unsafe { libc::sched_yield() },
            answer => return answer,
        }
    }
}

/// `sem_wait` may be interrupted at any time.
fn interrupted() -> c_int {
    // SAFETY: the calling thread's.
    unsafe { *crate::sys::errno() = libc::EINTR };
    -1
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b"
    };
}

unsafe extern "C" {
    static pilotlight_defines_pthreads: u8;
}

pub(super) fn keep() {
    std::hint::black_box(&raw const pilotlight_defines_pthreads);
}

/// The functions that time libc's of the same name, and the symbols that lead to them.
///
/// `first`: whether the call will block. `lost`: the answer when libc's function cannot be had.
macro_rules! timed {
    ($($name:ident $arguments:tt is $kind:ident, version: $version:expr, first: $first:expr, lost: $lost:expr;)+) => {
        $(timed!(@function $name $arguments $kind, $version, $first, $lost);)+

        // Weak: a program, a sanitizer or another profiler that defines one of them keeps its own,
        // without an error from the linker. Ours still comes before libc's.
        global_asm!(
            ".text",
            ".weak pilotlight_defines_pthreads",
            "pilotlight_defines_pthreads:",
            $(
                concat!(".section .text.", stringify!($name), ",\"ax\",@progbits"),
                concat!(".weak ", stringify!($name)),
                concat!(".weak pilotlight_hook_", stringify!($name)),
                concat!(".type ", stringify!($name), ",@function"),
                ".p2align 4",
                concat!("pilotlight_hook_", stringify!($name), ":"),
                concat!(stringify!($name), ":"),
                ".cfi_startproc",
                concat!(jump!(), " {", stringify!($name), "}"),
                ".cfi_endproc",
                concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            )+
            // Before `main`: later the loader may be busy with a thread that waits for this one.
            ".section .init_array,\"aw\",@init_array",
            ".p2align 3",
            ".quad {look_up}",
            ".text",
            look_up = sym look_up,
            $($name = sym $name::hook,)+
        );

        extern "C" fn look_up() {
            $($name::NEXT.look_up();)+
        }
    };
    (@function $name:ident ($($argument:ident: $type:ty),* $(,)?) $kind:ident, $version:expr, $first:expr, $lost:expr) => {
        mod $name {
            use super::*;

            type Function = unsafe extern "C-unwind" fn($($type),*) -> c_int;

            pub(super) static NEXT: Next = Next::new(concat!(stringify!($name), "\0"), $version);

            /// # Safety
            /// As libc's function.
            #[allow(unused_unsafe, reason = "some first answers need no promise")]
            pub(super) unsafe extern "C-unwind" fn hook($($argument: $type),*) -> c_int {
                let blocks = is_on()
                    // SAFETY: the caller's arguments.
                    && match unsafe { $first } {
                        First::Answered(answer) => return answer,
                        First::Free => false,
                        First::Blocks => true,
                    };
                let next = NEXT.get();
                if next.is_null() {
                    // SAFETY: the caller's arguments.
                    return unsafe { $lost };
                }
                // SAFETY: libc's function of this name has this type.
                let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
                if !blocks {
                    // SAFETY: the caller's arguments.
                    return unsafe { next($($argument),*) };
                }
                let wait = Wait::begin();
                // SAFETY: the caller's arguments.
                let answer = unsafe { next($($argument),*) };
                wait.end(Kind::$kind);
                answer
            }
        }
    };
}

timed! {
    pthread_mutex_lock(mutex: Mutex) is Mutex, version: None,
        first: tried(libc::pthread_mutex_trylock, mutex), lost: spin(libc::pthread_mutex_trylock, mutex);
    pthread_mutex_timedlock(mutex: Mutex, deadline: Deadline) is Mutex, version: None,
        first: tried(libc::pthread_mutex_trylock, mutex), lost: spin(libc::pthread_mutex_trylock, mutex);
    pthread_mutex_clocklock(mutex: Mutex, clock: Clock, deadline: Deadline) is Mutex, version: None,
        first: tried(libc::pthread_mutex_trylock, mutex), lost: spin(libc::pthread_mutex_trylock, mutex);
    pthread_rwlock_rdlock(lock: RwLock) is RwLock, version: None,
        first: tried(libc::pthread_rwlock_tryrdlock, lock), lost: spin(libc::pthread_rwlock_tryrdlock, lock);
    pthread_rwlock_timedrdlock(lock: RwLock, deadline: Deadline) is RwLock, version: None,
        first: tried(libc::pthread_rwlock_tryrdlock, lock), lost: spin(libc::pthread_rwlock_tryrdlock, lock);
    pthread_rwlock_clockrdlock(lock: RwLock, clock: Clock, deadline: Deadline) is RwLock, version: None,
        first: tried(libc::pthread_rwlock_tryrdlock, lock), lost: spin(libc::pthread_rwlock_tryrdlock, lock);
    pthread_rwlock_wrlock(lock: RwLock) is RwLock, version: None,
        first: tried(libc::pthread_rwlock_trywrlock, lock), lost: spin(libc::pthread_rwlock_trywrlock, lock);
    pthread_rwlock_timedwrlock(lock: RwLock, deadline: Deadline) is RwLock, version: None,
        first: tried(libc::pthread_rwlock_trywrlock, lock), lost: spin(libc::pthread_rwlock_trywrlock, lock);
    pthread_rwlock_clockwrlock(lock: RwLock, clock: Clock, deadline: Deadline) is RwLock, version: None,
        first: tried(libc::pthread_rwlock_trywrlock, lock), lost: spin(libc::pthread_rwlock_trywrlock, lock);
    // A return that nobody signalled is allowed at any time.
    pthread_cond_wait(condvar: Condvar, mutex: Mutex) is Condvar, version: CONDVARS,
        first: First::Blocks, lost: 0;
    pthread_cond_timedwait(condvar: Condvar, mutex: Mutex, deadline: Deadline) is Condvar, version: CONDVARS,
        first: First::Blocks, lost: 0;
    pthread_cond_clockwait(condvar: Condvar, mutex: Mutex, clock: Clock, deadline: Deadline) is Condvar, version: None,
        first: First::Blocks, lost: 0;
    sem_wait(semaphore: Semaphore) is Semaphore, version: None,
        first: available(semaphore), lost: interrupted();
    sem_timedwait(semaphore: Semaphore, deadline: Deadline) is Semaphore, version: None,
        first: available(semaphore), lost: interrupted();
    pthread_barrier_wait(barrier: Barrier) is Barrier, version: None,
        first: First::Blocks, lost: libc::EINVAL;
    pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) is Join, version: None,
        first: First::Blocks, lost: libc::EINVAL;
}
