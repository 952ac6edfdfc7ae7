//! The C of the unwinder, built as an ordinary program, walks recorded stacks as `pilotlight-unwind` does, and survives
//! reads that fail and tables, registers and stacks changed at random.
//!
//! `PILOTLIGHT_RECORD=1` (as root) records `tests/recorded` anew; `PILOTLIGHT_REPLAY_ROUNDS` sets how often it is tried.

#![allow(clippy::expect_used)]

mod common;

use common::{Code, Running, code_of, skip};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use pilotlight_agent_bpf::{Engine, Event, Options, Raw, directory_entry};
use pilotlight_unwind::{Cache, End, Module, Modules, Rule, Segment, Stack, unwind_with};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded");

/// Words of tables and mappings, files, and rules, laid out as in the kernel.
struct Bundle {
    words: Vec<u32>,
    files: Vec<[u32; 4]>,
    rules: HashMap<Rule, u16>,
    order: Vec<Rule>,
}

impl Bundle {
    fn rule(&mut self, rule: Rule) -> u32 {
        let next = self.order.len() as u16;
        let number = *self.rules.entry(rule).or_insert(next);
        if number == next {
            self.order.push(rule);
        }
        u32::from(number)
    }

    fn file(&mut self, module: &Module) -> u32 {
        let (table, first) = (&module.table, self.words.len() as u32);
        for row in table.rows() {
            let rule = self.rule(table.rules()[usize::from(row.rule)]);
            self.words.push(u32::from(row.low) | rule << 16);
        }
        self.words.resize(self.words.len().next_multiple_of(8), 0);
        let directory = self.words.len() as u32;
        for page in table.pages().windows(2) {
            let rows = &table.rows()[page[0] as usize..page[1] as usize];
            self.words.extend(directory_entry(first + page[0], rows));
        }
        self.words.resize(self.words.len().next_multiple_of(8), 0);
        let pages = table.pages().len() as u32 - 1;
        self.files
            .push([directory, pages, u32::from(!table.is_empty()), 0]);
        self.files.len() as u32 - 1
    }
}

fn bundle(raw: &Raw, code: &[Code]) -> Vec<u8> {
    let mut bundle = Bundle {
        words: vec![0; 8],
        files: vec![[0; 4]],
        rules: HashMap::new(),
        order: Vec::new(),
    };
    bundle.rule(Rule::GAP);
    let mut mappings = Vec::new();
    for code in code {
        let file = code.module.as_ref().map_or(0, |module| bundle.file(module));
        let mapping = code.mapping;
        for word in [
            mapping.start,
            mapping.end,
            mapping.image_base,
            u64::from(file),
        ] {
            mappings.extend([word as u32, (word >> 32) as u32]);
        }
    }
    let at = bundle.words.len() as u32;
    bundle.words.extend(&mappings);
    let registers = raw.registers;
    let mut out = Vec::new();
    for word in [
        registers.ip,
        registers.sp,
        registers.bp,
        registers.bx,
        raw.stack_start,
    ] {
        out.extend(word.to_le_bytes());
    }
    let counts = [
        u32::from(raw.exact),
        at,
        mappings.len() as u32 / 8,
        bundle.words.len() as u32,
        bundle.files.len() as u32,
        bundle.order.len() as u32,
        raw.stack.len() as u32,
        0,
    ];
    out.extend(counts.into_iter().flat_map(u32::to_le_bytes));
    out.extend(bundle.words.iter().flat_map(|word| word.to_le_bytes()));
    out.extend(
        bundle
            .files
            .iter()
            .flatten()
            .flat_map(|word| word.to_le_bytes()),
    );
    for rule in &bundle.order {
        out.extend([
            rule.kind as u8,
            rule.bp_saved as u8,
            rule.bx_saved as u8,
            rule.extra as u8,
        ]);
        out.extend(rule.cfa.to_le_bytes());
        out.extend(rule.bp.to_le_bytes());
        out.extend(rule.bx.to_le_bytes());
    }
    out.extend(&raw.stack);
    out
}

struct Copied<'a>(&'a Raw);

impl Stack for Copied<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.0.stack_start)?).ok()?;
        let word = self.0.stack.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?)).filter(|_| address.is_multiple_of(8))
    }
}

/// The walk of `pilotlight-unwind`, in the kernel's convention, if the copy reaches to the root.
fn expected(raw: &Raw, code: &[Code]) -> Option<Vec<u64>> {
    let module = |code: &Code| {
        let mut module = code.module.clone()?;
        let mapping = code.mapping;
        module.base_avma = mapping.image_base.wrapping_sub(module.table.base_svma());
        (module.start_avma, module.end_avma) = (mapping.start, mapping.end);
        module.segments = vec![Segment {
            start: mapping.start,
            limit: mapping.end,
            file_offset: 0,
            executable: true,
        }];
        Some(module)
    };
    let modules = Modules::new(code.iter().filter_map(module).collect());
    let mut out = vec![0; 1024];
    let cache = Cache::new(&modules);
    let unwound = unwind_with(raw.registers, &modules, &cache, &Copied(raw), &mut out);
    out.truncate(unwound.frames);
    let lookup = |(index, ip): (usize, &u64)| ip - u64::from(!unwound.is_exact(index));
    let frames = out.iter().enumerate().map(lookup).collect();
    (unwound.end == End::Root).then_some(frames)
}

/// Builds the replay with sanitizers, and runs it.
fn replay(bundle: &[u8], rounds: u32) -> (Vec<u64>, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("pilotlight-replay-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let (program, input) = (folder.join("replay"), folder.join("bundle"));
    compile(&program, "replay.c");
    std::fs::write(&input, bundle).expect("written");
    let output = Command::new(&program)
        .arg(&input)
        .arg(rounds.to_string())
        .output();
    let output = output.expect("runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let _ = std::fs::remove_dir_all(&folder);
    assert!(
        output.status.success(),
        "{}\n{said}\n{errors}",
        output.status
    );
    assert!(
        said.starts_with("end 1\n"),
        "the root is not reached: {said}"
    );
    let frames = said
        .lines()
        .filter_map(|line| u64::from_str_radix(line, 16).ok());
    (frames.collect(), said)
}

fn compile(program: &Path, source: &str) {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("c");
    let mut cc = Command::new("cc");
    cc.args([
        "-O1",
        "-g",
        "-w",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]);
    cc.args(["-DPILOTLIGHT_HOST", "-o"])
        .arg(program)
        .arg(here.join(source));
    let output = cc.output().expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn rounds() -> u32 {
    let set = std::env::var("PILOTLIGHT_REPLAY_ROUNDS").ok();
    set.and_then(|rounds| rounds.parse().ok()).unwrap_or(3000)
}

/// Samples of the victim without tables: registers and stack.
fn record() -> (Vec<Raw>, Vec<Code>) {
    let victim = Running::victim(&["100", "recursion", "signal", "qsort"]);
    let mut engine = Engine::load(&Options {
        only_pid: Some(victim.pid()),
        event: Event::clock(497),
        ..Options::default()
    })
    .expect("loads");
    engine.attach().expect("attaches");
    let until = Instant::now() + Duration::from_secs(30);
    let mut raw = Vec::new();
    while raw.len() < 20 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        raw.extend(engine.raw());
    }
    (raw, code_of(victim.pid()))
}

#[test]
fn live_stacks_are_walked_as_by_the_other_unwinder() {
    if skip() {
        return;
    }
    let (raw, code) = record();
    let walked = raw.iter().filter(|raw| raw.exact).filter_map(|raw| {
        let frames = expected(raw, &code)?;
        Some((frames.len(), raw, frames))
    });
    let (_, raw, expected) = walked
        .max_by_key(|(depth, ..)| *depth)
        .expect("a whole sample");
    let bundle = bundle(raw, &code);
    let (frames, _) = replay(&bundle, 1);
    assert_eq!(frames, expected);
    if std::env::var_os("PILOTLIGHT_RECORD").is_some() {
        save(&bundle, &frames);
    }
}

fn save(bundle: &[u8], frames: &[u64]) {
    std::fs::create_dir_all(RECORDED).expect("a folder");
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bundle).expect("packed");
    let packed = packed.finish().expect("packed");
    std::fs::write(Path::new(RECORDED).join("victim.bundle.gz"), packed).expect("written");
    let text: String = frames.iter().map(|frame| format!("{frame:x}\n")).collect();
    std::fs::write(Path::new(RECORDED).join("victim.frames"), text).expect("written");
}

#[test]
fn a_recorded_stack_is_walked_and_nothing_breaks_when_reads_fail_and_bytes_change() {
    let packed = std::fs::read(Path::new(RECORDED).join("victim.bundle.gz")).expect("recorded");
    let mut bundle = Vec::new();
    GzDecoder::new(&packed[..])
        .read_to_end(&mut bundle)
        .expect("gzip");
    let text =
        std::fs::read_to_string(Path::new(RECORDED).join("victim.frames")).expect("recorded");
    let expected = text
        .lines()
        .map(|line| u64::from_str_radix(line, 16).expect("hexadecimal"));
    let (frames, said) = replay(&bundle, rounds());
    println!(
        "{} frames, {}",
        frames.len(),
        said.lines().last().unwrap_or("")
    );
    assert_eq!(frames, expected.collect::<Vec<u64>>());
    assert!(frames.len() > 10, "{}", frames.len());
}

#[test]
fn frames_of_an_interpreter_are_put_in_their_places_and_hostile_memory_ends_the_walk() {
    let name = format!("pilotlight-replay-python-{}", std::process::id());
    let program = std::env::temp_dir().join(name);
    compile(&program, "replay_python.c");
    let output = Command::new(&program).arg(rounds().to_string()).output();
    let output = output.expect("runs");
    let _ = std::fs::remove_file(&program);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{said}\n{errors}",
        output.status
    );
    // Of 3.11 and of 3.13.
    assert_eq!(said.lines().count(), 2, "{said}");
    println!("{said}");
}
