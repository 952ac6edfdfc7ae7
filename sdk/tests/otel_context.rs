//! What readers outside of the process find: this test reads a child process as an agent would.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use pilotlight::otel::{TraceContext, is_process_context_published};
use pilotlight::{Config, Guard};

const ROLE: &str = "PILOTLIGHT_TEST_OTEL_CHILD";

fn start(service: &str) -> Guard {
    Config::new(service).no_listener().start().unwrap()
}

/// The child: does what it is told, line by line, and answers each with a line.
fn child() {
    let mut guard = Some(start("checkout"));
    let mut trace = None;
    let mut line = String::new();
    loop {
        println!("# {}", is_process_context_published());
        line.clear();
        if std::io::stdin().read_line(&mut line).unwrap() == 0 {
            return;
        }
        match line.trim() {
            "other service" => {
                drop(guard.take());
                guard = Some(start(&"long name ".repeat(100)));
            }
            "stop" => drop(guard.take()),
            "trace" => {
                let context = TraceContext {
                    trace_id: *b"0123456789abcdef",
                    span_id: *b"ABCDEFGH",
                    flags: 1,
                };
                trace = Some(context.enter());
            }
            "no trace" => drop(trace.take()),
            "fork" => {
                let _ = std::io::stdout().flush();
                // SAFETY: the child of the fork looks at itself and ends.
                let forked = unsafe { libc::fork() };
                if forked == 0 {
                    let inherited = maps_of("self").contains("OTEL_CTX");
                    let says = is_process_context_published();
                    // SAFETY: ends this process without running what belongs to the parent.
                    unsafe { libc::_exit(i32::from(inherited) + 2 * i32::from(says)) };
                }
                let mut status = 0;
                // SAFETY: waits for the child made above.
                unsafe { libc::waitpid(forked, &mut status, 0) };
                assert_eq!(status, 0, "a forked child has its parent's context");
            }
            other => panic!("{other:?}"),
        }
    }
}

struct Subject {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Subject {
    fn start() -> Subject {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "an_agent_finds_service_and_trace", "--nocapture"])
            .env(ROLE, "1")
            .env("RUST_TEST_THREADS", "2")
            .env(
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.version=1.2.3,service.name=ignored",
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut subject = Subject {
            child,
            input,
            output,
        };
        assert!(subject.answer());
        subject
    }

    /// Whether the child says that its context is published.
    fn answer(&mut self) -> bool {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "the child is gone"
            );
            // The test harness writes lines of its own, or the begin of this one.
            if let Some((_, said)) = line.trim_end().split_once("# ") {
                return said == "true";
            }
        }
    }

    fn tell(&mut self, what: &str) -> bool {
        writeln!(self.input, "{what}").unwrap();
        self.answer()
    }

    fn read(&self, address: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let here = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: size,
        };
        let there = libc::iovec {
            iov_base: address as *mut _,
            iov_len: size,
        };
        let pid = self.child.id() as i32;
        // SAFETY: writes to `bytes` and nowhere else.
        let read = unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) };
        assert_eq!(read, size as isize, "{:?}", std::io::Error::last_os_error());
        bytes
    }

    /// Payload of the process context, if there is one; and when it was published.
    fn process_context(&self) -> Option<(Vec<u8>, u64)> {
        let maps = maps_of(&self.child.id().to_string());
        let line = maps.lines().find(|line| {
            let name = line.split_whitespace().nth(5).unwrap_or_default();
            name.starts_with("/memfd:OTEL_CTX") || name.starts_with("[anon:OTEL_CTX]")
        })?;
        let start = u64::from_str_radix(line.split_once('-')?.0, 16).unwrap();
        let header = self.read(start, 32);
        assert_eq!(&header[..8], b"OTEL_CTX");
        assert_eq!(header[8..12], 2u32.to_le_bytes());
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        let size = u32::from_le_bytes(header[12..16].try_into().unwrap());
        Some((self.read(word(24), size as usize), word(16)))
    }

    /// The first 28 bytes of the thread context of the thread that answers.
    fn thread_context(&self) -> Option<[u8; 28]> {
        // The test harness runs the test in a thread of its own: the one that is called after it.
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_test = |tid: &String| {
            let name = std::fs::read_to_string(format!("{tasks}/{tid}/comm")).unwrap();
            name.trim_end() == "an_agent_finds_"
        };
        let tids = std::fs::read_dir(&tasks).unwrap();
        let mut tids = tids.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let tid: i32 = tids.find(is_test).unwrap().parse().unwrap();
        let pointer = thread_pointer(tid).wrapping_add_signed(tls_offset("otel_thread_ctx_v1"));
        let record = u64::from_le_bytes(self.read(pointer, 8).try_into().unwrap());
        (record != 0).then(|| self.read(record, 28).try_into().unwrap())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn maps_of(process: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap()
}

/// Stops a thread of a child for a moment and asks for its thread pointer.
fn thread_pointer(tid: i32) -> u64 {
    // SAFETY: a zeroed value of plain numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: attaches to a child of this process, reads its registers into `registers`, detaches.
    unsafe {
        let none = std::ptr::null_mut::<libc::c_void>();
        assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, tid, none, none), 0);
        assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, tid, none, none), 0);
        libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL);
        assert_eq!(
            libc::ptrace(libc::PTRACE_GETREGS, tid, none, &mut registers),
            0
        );
        libc::ptrace(libc::PTRACE_DETACH, tid, none, none);
    }
    registers.fs_base
}

/// Where an executable's thread-local symbol stands from the thread pointer, from its file alone:
/// local exec, x86-64.
fn tls_offset(symbol: &str) -> i64 {
    let mut file = Vec::new();
    std::fs::File::open("/proc/self/exe")
        .unwrap()
        .read_to_end(&mut file)
        .unwrap();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let short = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap()) as usize;
    const PT_TLS: usize = 7;
    const STT_TLS: u8 = 6;
    let segment = (0..short(0x38)).map(|n| word(0x20) + n * short(0x36));
    let segment = segment.into_iter().find(|&at| half(at) == PT_TLS).unwrap();
    let size = word(segment + 0x28).next_multiple_of(word(segment + 0x30));
    let sections: Vec<usize> = (0..short(0x3c))
        .map(|n| word(0x28) + n * short(0x3a))
        .collect();
    // Tables of symbols: all of them, and those for the loader.
    for &table in sections
        .iter()
        .filter(|&&at| matches!(half(at + 4), 2 | 11))
    {
        let names = word(sections[half(table + 0x28)] + 0x18);
        let (start, length) = (word(table + 0x18), word(table + 0x20));
        for at in (start..start + length).step_by(24) {
            let name = &file[names + half(at)..];
            let is_it = name.starts_with(symbol.as_bytes()) && name[symbol.len()] == 0;
            if is_it && file[at + 4] & 0xf == STT_TLS {
                return word(at + 8) as i64 - size as i64;
            }
        }
    }
    panic!("{symbol} is in no table of symbols");
}

/// The texts in a message, whatever the nesting.
fn texts(message: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut at = 0;
    while at < message.len() {
        assert_eq!(
            message[at] & 7,
            2,
            "only length-delimited fields are expected"
        );
        let (mut length, mut shift) = (0, 0);
        loop {
            at += 1;
            length |= usize::from(message[at] & 0x7f) << shift;
            shift += 7;
            if message[at] & 0x80 == 0 {
                break;
            }
        }
        at += 1;
        let inner = &message[at..at + length];
        at += length;
        let is_text = inner
            .first()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        match is_text {
            true => texts.push(String::from_utf8(inner.to_vec()).unwrap()),
            false => texts.extend(self::texts(inner)),
        }
    }
    texts
}

#[test]
fn an_agent_finds_service_and_trace() {
    if std::env::var_os(ROLE).is_some() {
        return child();
    }
    let mut subject = Subject::start();
    let (payload, first_ns) = subject.process_context().unwrap();
    let found = texts(&payload);
    for pair in [
        ["service.name", "checkout"],
        ["service.version", "1.2.3"],
        ["telemetry.sdk.name", "pilotlight"],
        ["threadlocal.schema_version", "tlsdesc_v1_dev"],
    ] {
        assert!(
            found.windows(2).any(|known| known == pair),
            "{pair:?} is not in {found:?}"
        );
    }
    assert!(first_ns > 0 && !found.contains(&"ignored".to_string()));

    assert_eq!(subject.thread_context(), None);
    subject.tell("trace");
    let record = subject.thread_context().unwrap();
    assert_eq!(&record[..24], b"0123456789abcdefABCDEFGH");
    assert_eq!(record[24..], [1, 1, 0, 0]);
    subject.tell("no trace");
    assert_eq!(subject.thread_context(), None);

    assert!(subject.tell("fork"));
    assert!(subject.tell("other service"));
    let (payload, second_ns) = subject.process_context().unwrap();
    assert!(texts(&payload).contains(&"long name ".repeat(100)));
    assert!(second_ns > first_ns);
    assert!(!subject.tell("stop"));
    assert_eq!(subject.process_context(), None);
}
