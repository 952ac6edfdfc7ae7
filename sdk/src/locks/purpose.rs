//! What a wait was for, told by the names of its innermost frames.

use super::Kind;

/// What a thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// A mutex, a read-write lock, or the first caller of a `Once`.
    Lock,
    Condvar,
    /// `std::thread::park` and the like: idle workers of a runtime, say.
    Park,
    Channel,
    Semaphore,
    Barrier,
    /// The end of a thread.
    Join,
    /// A futex of somebody else, or frames without names.
    Futex,
}

impl Purpose {
    /// Value of the label `wait`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Purpose::Lock => "lock",
            Purpose::Condvar => "condvar",
            Purpose::Park => "park",
            Purpose::Channel => "channel",
            Purpose::Semaphore => "semaphore",
            Purpose::Barrier => "barrier",
            Purpose::Join => "join",
            Purpose::Futex => "futex",
        }
    }
}

/// Parts of names of functions that wait. The first frame that has one decides, from the leaf on:
/// a condition variable that takes its mutex again waits for a lock then.
const WAITERS: &[(&str, Purpose)] = &[
    // std
    ("::lock_contended", Purpose::Lock),
    ("::read_contended", Purpose::Lock),
    ("::write_contended", Purpose::Lock),
    ("::once::", Purpose::Lock),
    ("::condvar::", Purpose::Condvar),
    ("::thread_parking::", Purpose::Park),
    ("thread::park", Purpose::Park),
    ("::parker::", Purpose::Park),
    // parking_lot, and what is built on its core
    ("::lock_slow", Purpose::Lock),
    ("::lock_shared_slow", Purpose::Lock),
    ("::lock_exclusive_slow", Purpose::Lock),
    ("::lock_upgradable_slow", Purpose::Lock),
    ("::upgrade_slow", Purpose::Lock),
    ("::wait_for_readers", Purpose::Lock),
    ("::lock_common", Purpose::Lock),
];

/// What parks and condition variables are used for, by the frames further out.
const USERS: &[(&str, Purpose)] = &[
    ("::mpmc::", Purpose::Channel),
    ("::mpsc::", Purpose::Channel),
    ("crossbeam_channel::", Purpose::Channel),
    ("flume::", Purpose::Channel),
    ("kanal::", Purpose::Channel),
    ("::barrier::", Purpose::Barrier),
    ("thread::scoped::", Purpose::Join),
    ("::once::", Purpose::Lock),
];

/// Code between the wait and whoever wanted something.
const RUNTIME: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "parking_lot",
    "lock_api::",
    "syscall",
    "pthread_",
    "pilotlight::sync::",
    "pilotlight::locks::",
    "pilotlight::threads::hook::run",
];

/// Names that are looked at; deeper ones belong to the program.
pub(super) const NAMES_SEEN: usize = 24;

/// What a wait was for. `names` are those of its frames, leaf first, inlined ones too.
pub(super) fn purpose(kind: Kind, names: &[String]) -> Purpose {
    match kind {
        Kind::Mutex | Kind::RwLock => return Purpose::Lock,
        Kind::Semaphore => return Purpose::Semaphore,
        Kind::Barrier => return Purpose::Barrier,
        Kind::Join => return Purpose::Join,
        Kind::Condvar => return Purpose::Condvar,
        Kind::Futex | Kind::FutexLock => {}
    }
    let found = names.iter().enumerate().find_map(|(at, name)| {
        let found = WAITERS.iter().find(|(part, _)| name.contains(part));
        found.map(|(_, purpose)| (at, *purpose))
    });
    match found {
        Some((at, Purpose::Park | Purpose::Condvar)) => {
            user(&names[at..]).unwrap_or(found.map_or(Purpose::Futex, |f| f.1))
        }
        Some((_, purpose)) => purpose,
        None if kind == Kind::FutexLock => Purpose::Lock,
        None => Purpose::Futex,
    }
}

/// The next frames of libraries may say what the thread was parked for.
fn user(names: &[String]) -> Option<Purpose> {
    names.iter().find_map(|name| {
        let found = USERS.iter().find(|(part, _)| name.contains(part));
        found.map(|(_, purpose)| *purpose)
    })
}

/// A wait of pilotlight's own.
pub(super) fn is_own(names: &[String]) -> bool {
    let plain = |name: &String| name.trim_start_matches(['<', '&']).to_string();
    let runtime = |name: &String| RUNTIME.iter().any(|prefix| name.starts_with(prefix));
    let wanted = names.iter().map(plain).find(|name| !runtime(name));
    wanted.is_some_and(|name| name.starts_with("pilotlight::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, names: &[&str]) -> Purpose {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        purpose(kind, &names)
    }

    #[test]
    fn the_innermost_function_that_waits_decides() {
        let futex = "std::sys::pal::unix::futex::futex_wait";
        let condvar = "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout";
        let mutex = "std::sys::sync::mutex::futex::Mutex::lock_contended";
        let user = "app::serve";
        assert_eq!(
            of(Kind::FutexLock, &[futex, mutex, condvar, user]),
            Purpose::Lock
        );
        assert_eq!(of(Kind::Futex, &[futex, condvar, user]), Purpose::Condvar);
        assert_eq!(of(Kind::Futex, &[futex, user]), Purpose::Futex);
        // Without names: by how the standard library's mutexes ask.
        assert_eq!(of(Kind::FutexLock, &[]), Purpose::Lock);
    }

    #[test]
    fn frames_further_out_tell_what_a_thread_was_parked_for() {
        let park = "std::sys::sync::thread_parking::futex::Parker::park";
        let channel = "std::sync::mpmc::context::Context::wait_until";
        assert_eq!(
            of(Kind::Futex, &[park, channel, "app::main"]),
            Purpose::Channel
        );
        assert_eq!(of(Kind::Futex, &[park, "app::main"]), Purpose::Park);
        let scope = "std::thread::scoped::scope";
        assert_eq!(of(Kind::Futex, &[park, scope]), Purpose::Join);
    }

    #[test]
    fn waits_of_pilotlight_are_told_from_those_of_its_wrappers() {
        let own = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            is_own(&names)
        };
        let std = "std::sync::poison::condvar::Condvar::wait_timeout";
        assert!(own(&[std, "pilotlight::engine::Engine::wait", "app::main"]));
        assert!(own(&[std, "<pilotlight::engine::Background>::run"]));
        assert!(!own(&[
            std,
            "pilotlight::sync::Mutex<T>::lock",
            "app::main"
        ]));
        assert!(!own(&[
            std,
            "<app::Server as Serve>::serve",
            "pilotlight::threads::hook::run"
        ]));
        assert!(!own(&[
            std,
            "pilotlight::threads::hook::run",
            "start_thread"
        ]));
    }
}
