//! libc is a shared library: the loader finds what a definition of ours stands before.

#[cfg(feature = "thread-hook")]
use std::ffi::c_void;

/// A library that holds this code stays mapped, also after `dlclose`.
pub(crate) fn pin_code(address: usize) {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills `found` when it returns other than 0; the name is the loader's.
    unsafe {
        if libc::dladdr(address as *const _, found.as_mut_ptr()) != 0 {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            libc::dlopen(found.assume_init().dli_fname, flags);
        }
    }
}

/// libc's own `pthread_create`.
#[cfg(feature = "thread-hook")]
pub(crate) fn pthread_create() -> Option<super::thread::Create> {
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut found = NEXT.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: a lookup by a constant name.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        NEXT.store(found, Ordering::Relaxed);
    }
    // SAFETY: libc's function of this name has this type.
    (!found.is_null())
        .then(|| unsafe { std::mem::transmute::<*mut c_void, super::thread::Create>(found) })
}
