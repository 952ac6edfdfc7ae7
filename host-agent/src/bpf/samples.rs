//! Counts to samples, counters to losses.

use crate::process::{Process, ProcessId, Processes};
use crate::sampler::Comm;
use crate::{Batch, Losses, Sample, Why};
use pilotlight_agent_bpf::{Counted, Drained, StackFrames, is_interpreted};
use std::sync::Arc;

/// `None` when it is not known any more whose it was.
pub(super) fn sample(
    counted: &Counted,
    processes: &Processes,
    batch: &Batch,
    period: u64,
) -> Option<Sample> {
    let process = process_of(counted, processes)?;
    let user = counted.user.as_deref();
    // A kernel thread has no program.
    let lacks_stack = user.is_none() && !process.exe.is_empty();
    let (why, weight) = match counted.waiting {
        None => (Why::Cpu, counted.samples.saturating_mul(period)),
        Some(call) => (Why::Waiting(kind_of_wait(call)), counted.waited_ns),
    };
    Some(Sample {
        process: process.id,
        tid: counted.tid,
        comm: comm_of(counted, &process),
        why,
        user: user
            .map(|stack| frames(stack, process.id, processes))
            .unwrap_or_default(),
        cut: user
            .and_then(|stack| stack.cut)
            .or(lacks_stack.then_some("not_walked")),
        kernel: kernel_frames(counted),
        count: counted.samples,
        weight,
        time_ns: batch.until_ns,
    })
}

fn process_of(counted: &Counted, processes: &Processes) -> Option<Arc<Process>> {
    let id = ProcessId {
        pid: counted.pid,
        image: u64::from(counted.image),
    };
    match counted.image {
        0 => processes.last(counted.pid),
        _ => processes.get(id),
    }
}

/// The thread's own name while it runs, else that of its process.
fn comm_of(counted: &Counted, process: &Process) -> Comm {
    if counted.tid == counted.pid {
        return process.comm;
    }
    let path = format!("/proc/{}/task/{}/comm", counted.pid, counted.tid);
    match std::fs::read(path) {
        Ok(name) => Comm::new(name.trim_ascii_end()),
        Err(_) => process.comm,
    }
}

/// Frames of interpreters as numbers.
fn frames(stack: &StackFrames, id: ProcessId, processes: &Processes) -> Vec<u64> {
    if stack.frames.iter().any(|&word| is_interpreted(word)) {
        processes.runtimes().numbered(id, &stack.frames)
    } else {
        stack.frames.clone()
    }
}

/// Callers minus 1.
fn kernel_frames(counted: &Counted) -> Vec<u64> {
    let frames = counted.kernel.iter().flat_map(|stack| &stack.frames);
    frames
        .enumerate()
        .map(|(index, address)| address.wrapping_sub(u64::from(index > 0)))
        .collect()
}

/// By the number of the system call (`arch/x86/entry/syscalls/syscall_64.tbl`).
fn kind_of_wait(call: Option<u32>) -> &'static str {
    match call {
        Some(202) => "futex",
        Some(35 | 230) => "sleep",
        Some(7 | 23 | 232 | 270 | 271 | 281 | 441) => "poll",
        // read, write and their kin, sockets, files, io_uring_enter.
        Some(
            0..=2
            | 17..=20
            | 42..=47
            | 74
            | 75
            | 162
            | 257
            | 277
            | 288
            | 295
            | 296
            | 299
            | 306
            | 307,
        ) => "io",
        Some(326..=328 | 426) => "io",
        _ => "other",
    }
}

/// What the programs could not count.
pub(super) fn losses(drained: &Drained, losses: &mut Losses) {
    for reason in ["counts_full", "no_scratch", "switches_full"] {
        losses.add(reason, drained.counter(reason));
    }
    losses.add("stack_lost", drained.without_stack);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_apart_by_their_system_call() {
        let kinds: Vec<&str> = [Some(202), Some(230), Some(7), Some(0), Some(61), None]
            .into_iter()
            .map(kind_of_wait)
            .collect();
        assert_eq!(kinds, ["futex", "sleep", "poll", "io", "other", "other"]);
    }
}
