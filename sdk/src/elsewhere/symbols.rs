//! Names by the crate `backtrace`, which reads them from what is loaded.

use std::sync::atomic::{AtomicBool, Ordering};

use pilotlight_unwind::Module;

use crate::fork::{Held, Lock};

/// One function at an address.
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) system_name: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

static ON: AtomicBool = AtomicBool::new(true);

/// Whether names are looked up. How many bytes that takes is the crate's affair.
pub(crate) fn configure(on: bool, _limit_bytes: usize) {
    ON.store(on, Ordering::Relaxed);
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub(crate) fn forget() {}

/// Held around a fork: there is nothing to hold.
pub(crate) fn lock() -> &'static dyn Held {
    static NOTHING: Lock<()> = Lock::new(());
    &NOTHING
}

pub(crate) fn forget_in_child() {}

pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    crate::heap::unsampled(work)
}

/// The functions at an address, inlined ones first.
pub(crate) fn frames(_module: &Module, address: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    if !is_on() {
        return frames;
    }
    backtrace::resolve(address as *mut _, |symbol| {
        let Some(name) = symbol.name() else { return };
        frames.push(Frame {
            // Without the hash behind it.
            function: format!("{name:#}"),
            system_name: name.as_str().unwrap_or_default().to_string(),
            file: symbol.filename().map(|path| path.display().to_string()),
            line: symbol.lineno(),
        });
    });
    frames
}
