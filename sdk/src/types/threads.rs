//! `threads`, also under Go's name `goroutine`: where all threads stand; `threadcreate`: which stacks
//! created threads.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use pilotlight_profile::Profile;

use super::{Ask, Kind, Source, State, checked};
use crate::sites::{Row, Shape, profile_of};
use crate::threads::created;
use crate::wall::ThreadStack;
use crate::{capture, engine, symbols, wall};

/// Both names show the same.
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// Stacks of all threads, by the name of the endpoint.
pub(super) struct Threads {
    name: &'static str,
    description: &'static str,
    /// What the text form calls a thread.
    word: &'static str,
}

pub(super) static THREADS: Threads = Threads {
    name: "threads",
    description: "Stack traces of all current threads. Use debug=2 as a query parameter to list each \
                  with its name and what it waits for.",
    word: "thread",
};

pub(super) static GOROUTINE: Threads = Threads {
    name: "goroutine",
    description: "The same as threads, under the name and in the text form that tools for Go know.",
    word: "goroutine",
};

impl Source for Threads {
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        self.description
    }

    fn kind(&self) -> Kind {
        Kind::Level
    }

    fn state(&self) -> State {
        if !ALLOWED.load(Ordering::Relaxed) {
            return State::switched_off(self.name);
        }
        if !wall::SEES_THREADS {
            return State::off_elsewhere();
        }
        match engine::current() {
            Ok(_) => State::On,
            Err(error) => State::Off {
                why: error.to_string(),
                how_to_switch_on: "pilotlight::start(\"name\")".into(),
            },
        }
    }

    fn set_enabled(&self, on: bool) -> Result<(), String> {
        ALLOWED.store(on, Ordering::Relaxed);
        Ok(())
    }

    fn cost(&self) -> String {
        "nothing; when asked about 20 µs a thread, and a signal to those that run".into()
    }

    fn count(&self) -> usize {
        std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        checked(self)?;
        let threads = wall::stacks().map_err(|error| error.to_string())?;
        Ok(self.profile(threads))
    }

    fn text(&self, ask: &Ask<'_>) -> Option<Result<Vec<u8>, String>> {
        if ask.number("debug") < 2 {
            return None;
        }
        let threads = checked(self)
            .and_then(|()| wall::stacks().map_err(|error| error.to_string()))
            .map(|threads| symbols::on_own_thread(|| self.list(&threads)).into_bytes());
        Some(threads)
    }
}

impl Threads {
    fn profile(&self, threads: Vec<ThreadStack>) -> Profile {
        let mut rows: Vec<Row> = Vec::new();
        let mut by_stack = HashMap::new();
        for thread in threads {
            let at = *by_stack
                .entry((thread.frames, thread.truncated))
                .or_insert_with_key(|(frames, truncated)| {
                    rows.push(Row {
                        frames: frames.clone(),
                        truncated: *truncated,
                        is_overflow: false,
                        counters: [0; 4],
                    });
                    rows.len() - 1
                });
            rows[at].counters[0] += 1;
        }
        let shape = Shape {
            columns: [(self.word, "count")],
            default_column: self.word,
            period: (self.word, "count", 1),
            without_stack: "[running, not sampled]",
            // What stands before libc's function of this name is inlined into it.
            hidden: |name| name == "syscall" || capture::is_own_leaf(name),
        };
        profile_of(&rows, &shape, |counters| [counters[0] as i64])
    }

    /// As Go prints goroutines: a line for each thread, two for each frame.
    fn list(&self, threads: &[ThreadStack]) -> String {
        let mut out = String::new();
        for thread in threads {
            let name = one_line(&thread.name);
            let (word, tid, state) = (self.word, thread.tid, &thread.state);
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{word} {tid} [{state}, {name}]:");
            for &address in &thread.frames {
                frame(&mut out, address);
            }
            if thread.truncated {
                out.push_str("...additional frames elided...\n");
            }
            out.push('\n');
        }
        out
    }
}

fn frame(out: &mut String, address: u64) {
    let place = capture::place_at(address);
    let (module, offset) = (one_line(&place.module), place.offset);
    if place.frames.is_empty() {
        let _ = writeln!(out, "[unknown](...)\n\t{module}:0 +{offset:#x}");
    }
    for frame in place.frames {
        let function = one_line(&frame.function);
        let file = one_line(frame.file.as_deref().unwrap_or(&place.module));
        let line = frame.line.unwrap_or(0);
        let _ = writeln!(out, "{function}(...)\n\t{file}:{line} +{offset:#x}");
    }
}

/// Names may hold anything; a line break would forge a row.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect()
}

/// Stacks that created threads.
pub(super) struct ThreadCreate;

impl Source for ThreadCreate {
    fn name(&self) -> &'static str {
        "threadcreate"
    }

    fn description(&self) -> &'static str {
        "Stack traces that led to the creation of new threads"
    }

    fn kind(&self) -> Kind {
        Kind::Cumulative {
            growing: &["threadcreate"],
        }
    }

    fn state(&self) -> State {
        if !cfg!(all(
            feature = "thread-hook",
            target_os = "linux",
            not(feature = "backtrace")
        )) {
            return State::Off {
                why: "this build does not see threads start".into(),
                how_to_switch_on: "feature `thread-hook` of the crate pilotlight".into(),
            };
        }
        match created::is_enabled() {
            true => State::On,
            false => State::Off {
                why: "not switched on".into(),
                how_to_switch_on: "pilotlight::set_enabled(\"threadcreate\", true)".into(),
            },
        }
    }

    fn set_enabled(&self, on: bool) -> Result<(), String> {
        created::set_enabled(on);
        if on { checked(self) } else { Ok(()) }
    }

    fn cost(&self) -> String {
        match created::is_enabled() {
            true => "about 1 µs for each thread that is created, 256 KiB",
            false => "nothing",
        }
        .into()
    }

    fn count(&self) -> usize {
        created::sites()
    }

    fn take(&self, _ask: &Ask<'_>) -> Result<Profile, String> {
        checked(self)?;
        Ok(created::profile())
    }
}
