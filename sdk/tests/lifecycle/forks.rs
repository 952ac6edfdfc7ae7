//! Children and successors of a sampled process.

use std::ffi::CString;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use pilotlight::spans::tasks;
use pilotlight::{AfterFork, Capture, Config, Engine, Labels, SpanExt, spans};

use super::common::{burn, profile_of, start};
use super::threads;

/// Runs `child` in a forked child; its exit status, or the signal that ended it, as a wait status.
fn forked(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs what the test says and leaves without the parent's exit handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: a child that waits for ever is ended.
        unsafe { libc::alarm(20) };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: as above.
        unsafe { libc::_exit(result.unwrap_or(99)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    while unsafe { libc::waitpid(pid, &mut status, 0) } != pid {}
    status
}

#[track_caller]
fn exited_with(status: i32, code: i32) {
    assert!(libc::WIFEXITED(status), "ended by status {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), code);
}

#[test]
fn a_forked_child_goes_on_by_itself_where_that_was_chosen() {
    let config = Config::new("parent").no_listener();
    let guard = config.after_fork(AfterFork::Restart).start().unwrap();
    let capture = Capture::begin().unwrap();
    let status = forked(|| {
        let profile = profile_of(|| burn(300_000_000));
        let sampled = profile.total(0) > 20;
        // A second start is refused as it would be in the parent.
        let refused = Config::new("child").no_listener().start().is_err();
        let grandchild = forked(|| i32::from(profile_of(|| burn(300_000_000)).total(0) > 20));
        // The guard is a copy of the parent's, and ends the child's own sampler.
        let ended = guard.dropped_here();
        i32::from(sampled)
            + 2 * i32::from(refused)
            + 4 * libc::WEXITSTATUS(grandchild)
            + 8 * i32::from(ended)
    });
    exited_with(status, 15);
    burn(300_000_000);
    assert!(capture.finish().total(0) > 20, "the parent went on");
}

/// Ends what a copy of a guard stands for, in a child that leaves without dropping it.
trait DroppedHere {
    fn dropped_here(&self) -> bool;
}

impl DroppedHere for pilotlight::Guard {
    fn dropped_here(&self) -> bool {
        // SAFETY: the child leaves by `_exit`: nothing else drops this guard there.
        drop(unsafe { std::ptr::read(self) });
        Capture::begin().is_err() && threads() == 1
    }
}

#[test]
fn a_forked_child_samples_nothing_unless_chosen() {
    let _guard = start(1000);
    let capture = Capture::begin().unwrap();
    let status = forked(|| {
        let before = pilotlight::stats().delivered;
        burn(200_000_000);
        let silent = pilotlight::stats().delivered == before;
        i32::from(silent) + 2 * i32::from(Capture::begin().is_err()) + 4 * i32::from(threads() == 1)
    });
    exited_with(status, 7);
    drop(capture);
}

#[test]
fn a_process_of_300_mb_forks_while_its_timers_run_fast() {
    let _guard = start(10_000);
    let memory = vec![1u8; 300 << 20];
    let capture = Capture::begin().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                burn(1_000_000);
            }
        });
        for _ in 0..5 {
            burn(1_000_000);
            exited_with(forked(|| i32::from(memory[123 << 20])), 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(capture.finish().total(0) > 100);
}

#[test]
fn children_can_capture_while_threads_of_the_parent_hold_what_the_sampler_locks() {
    let config = Config::new("parent").no_listener();
    let _guard = config.after_fork(AfterFork::Restart).start().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            // Symbols, modules, threads and labels are all in use at any moment.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let profile = profile_of(|| burn(1_000_000));
                    std::hint::black_box(profile);
                }
            });
        }
        let failed = (0..10)
            .map(|_| forked(|| i32::from(profile_of(|| burn(30_000_000)).total(0) > 0)))
            .find(|&status| status != 1 << 8);
        stop.store(true, Ordering::Relaxed);
        exited_with(failed.unwrap_or(1 << 8), 1);
    });
}

/// Names that no other call gave, so that each makes a site and a node.
fn fresh_names() -> impl Iterator<Item = &'static str> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::iter::repeat_with(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        &*Box::leak(format!("span {number}").into_boxed_str())
    })
}

/// Polls a spanned future once and drops it.
fn poll_a_span(name: &'static str) {
    let mut future = Box::pin(std::future::pending::<()>().span(name));
    let mut task = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut task).is_pending());
}

/// Whether spans, tasks and labels work here.
fn spans_work() -> bool {
    let mut names = fresh_names();
    let spans: Vec<_> = names.by_ref().take(20).map(spans::enter).collect();
    // One, where the parent has as many stacks as there may be.
    let has_spans = matches!(spans::current().len(), 1 | 20);
    names.take(40).for_each(poll_a_span);
    let labels = Labels::new(&[("child", &std::process::id())]);
    let _entered = labels.enter();
    drop(spans);
    has_spans && tasks().is_empty()
}

#[test]
fn children_have_spans_while_threads_of_the_parent_enter_and_drop_theirs() {
    // Nothing was started: a program may have spans and no sampler.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut names = fresh_names();
                while !stop.load(Ordering::Relaxed) {
                    let name = names.next().unwrap();
                    let _span = spans::enter(name);
                    poll_a_span(name);
                    drop(tasks());
                }
            });
        }
        // The first that fails is the last: it may have taken its 20 seconds.
        let failed = (0..50)
            .map(|_| forked(|| i32::from(spans_work())))
            .find(|&status| status != 1 << 8);
        stop.store(true, Ordering::Relaxed);
        exited_with(failed.unwrap_or(1 << 8), 1);
    });
}

#[test]
fn a_child_lists_its_own_tasks_and_ends_those_it_has_from_its_parent() {
    let mut task = Context::from_waker(Waker::noop());
    let mut older: Vec<_> = (0..40)
        .map(|_| Box::pin(std::future::pending::<()>().span("older")))
        .collect();
    for future in &mut older {
        assert!(future.as_mut().poll(&mut task).is_pending());
    }
    assert_eq!(tasks().len(), 40);
    let status = forked(|| {
        let forgotten = tasks().is_empty();
        let mut own = Box::pin(std::future::pending::<()>().span("own"));
        let pending = own.as_mut().poll(&mut task).is_pending();
        let still = older[0].as_mut().poll(&mut task).is_pending();
        // The child's copies: none of them is in a list.
        older.drain(..).for_each(drop);
        let names: Vec<_> = tasks().iter().map(|task| task.stack[0].name).collect();
        i32::from(forgotten && pending && still && names == ["own"])
    });
    exited_with(status, 1);
    assert_eq!(tasks().len(), 40);
}

/// Part of the next test, which starts it: a program that is replaced by another while sampled.
#[test]
#[ignore = "started by another test"]
fn replaced_while_sampled() {
    let config = Config::new("replaced").no_listener().frequency_hz(1000);
    let by_process_timer = std::env::var_os("BY_PROCESS_TIMER").is_some();
    let config = match by_process_timer {
        true => config.engine(Engine::ProcessTimer),
        false => config,
    };
    let guard = config.start().unwrap();
    let _capture = Capture::begin().unwrap();
    std::thread::spawn(|| burn(10_000_000_000));
    burn(100_000_000);
    // The one engine that survives: its documentation asks for this.
    let _guard = (!by_process_timer).then_some(guard);
    let arguments = [
        "sh",
        "-c",
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; grep -E '^Sig(Blk|Pnd|Cgt)|ShdPnd' /proc/self/status",
    ];
    let arguments = arguments.map(|text| CString::new(text).unwrap());
    let mut pointers: Vec<_> = arguments.iter().map(|text| text.as_ptr()).collect();
    pointers.push(null());
    // SAFETY: a list of C strings that ends with null.
    unsafe { libc::execv(c"/bin/sh".as_ptr(), pointers.as_ptr()) };
    unreachable!("execv failed");
}

#[test]
fn a_program_that_takes_our_place_by_exec_inherits_no_timer_and_no_mask() {
    the_program_after_has_no_signal(false);
}

#[test]
fn a_program_that_takes_our_place_lives_when_the_guard_of_a_process_timer_was_dropped() {
    the_program_after_has_no_signal(true);
}

fn the_program_after_has_no_signal(by_process_timer: bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if by_process_timer {
        command.env("BY_PROCESS_TIMER", "1");
    }
    command.args([
        "--exact",
        "forks::replaced_while_sampled",
        "--ignored",
        "--nocapture",
    ]);
    // A signal may expire during the call itself: not in every one.
    let mut output = command.output().unwrap();
    for _ in 0..3 {
        assert_eq!(output.status.signal(), None, "{output:?}");
        output = command.output().unwrap();
    }
    assert_eq!(output.status.signal(), None, "{output:?}");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let profiling = 1u64 << (libc::SIGPROF - 1);
    let mut seen = 0;
    for line in text.lines() {
        let Some((name @ ("SigBlk" | "SigPnd" | "ShdPnd" | "SigCgt"), mask)) = line.split_once(':')
        else {
            continue;
        };
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        assert_eq!(mask & profiling, 0, "{name}: {text}");
        seen += 1;
    }
    assert_eq!(seen, 4, "{text}");
}
