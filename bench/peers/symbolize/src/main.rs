//! One measuring process of `bench symbolize`: prints `name value` lines.
//!
//! | arguments | what |
//! |---|---|
//! | `measure OBJECT` | build of the table, lookups, peers' lookups |
//! | `build OBJECT` | build of the table alone |
//! | `llvm OBJECT`, `blazesym OBJECT` | what a peer takes to name the first thousand addresses of a file |
//!
//! The build of the table runs as it does in the server: in a sandboxed child, which this program is as well.

mod peers;

use pilotlight_sandbox::{Job, Limits, Parser};
use pilotlight_symbolize::Object;
use pilotlight_symbolize::tables::Table;
use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Addresses that our tables are asked for; peers get fewer, see `peers`.
const LOOKUPS: usize = 2_000_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "parse-debuginfo") {
        return pilotlight_sandbox::child();
    }
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Outcome<()> {
    let [what, object] = words else {
        return Err("usage: measure | build | llvm | blazesym, OBJECT".into());
    };
    let object = Path::new(object);
    match what.as_str() {
        "measure" => with_table(object, |table| lookups(object, table)),
        "build" => with_table(object, |_| Ok(())),
        "llvm" => peers::first_of_llvm(object, &in_code(object)?),
        "blazesym" => peers::first_of_blazesym(object, &in_code(object)?),
        other => Err(format!("unknown argument {other}").into()),
    }
}

/// Builds the table of a file, which is removed at the end.
fn with_table(object: &Path, work: impl FnOnce(&[u8]) -> Outcome<()>) -> Outcome<()> {
    let path = std::env::temp_dir().join(format!("pilotlight-bench-{}.table", std::process::id()));
    let result = build(object, &path).and_then(|()| work(&std::fs::read(&path)?));
    let _ = std::fs::remove_file(&path);
    result
}

/// A thousand addresses of executable code; the file is mapped, not read, as peers do.
fn in_code(path: &Path) -> Outcome<Vec<u64>> {
    let mut random = Random::new();
    let output = Command::new("readelf").arg("-lW").arg(path).output()?;
    let text = String::from_utf8(output.stdout)?;
    let segment = |line: &str| -> Option<(u64, u64)> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let hex = |at: usize| u64::from_str_radix(fields.get(at)?.trim_start_matches("0x"), 16).ok();
        (fields.first() == Some(&"LOAD") && fields.get(7) == Some(&"E")).then_some((hex(2)?, hex(5)?))
    };
    let (start, size) = text.lines().find_map(segment).ok_or("readelf shows no code")?;
    Ok((0..1000).map(|_| start + random.next() % size).collect())
}

/// Builds the table in a child.
fn build(object: &Path, table: &Path) -> Outcome<()> {
    let parser = Parser::new("/proc/self/exe", &["parse-debuginfo"]);
    let limits = Limits {
        table_bytes: 2 << 30,
        ..Limits::default()
    };
    let job = Job::new(File::open(object)?, File::create(table)?).within(limits);
    let before = usage(libc::RUSAGE_CHILDREN);
    let report = parser.build(&job)?;
    let after = usage(libc::RUSAGE_CHILDREN);
    println!("build_cpu_s {}", (after.0 - before.0).as_secs_f64());
    println!("build_rss_mb {}", after.1 as f64 / 1024.0);
    println!("table_mb {}", report.table_bytes as f64 / 1e6);
    println!("rows {}", report.rows);
    Ok(())
}

fn lookups(object: &Path, bytes: &[u8]) -> Outcome<()> {
    let table = Table::open(bytes)?;
    let svmas = addresses(object, &table)?;
    let mut places = Vec::new();
    let mut random = Random::new();
    let asked: Vec<u64> = (0..LOOKUPS)
        .map(|_| svmas[random.below(svmas.len())])
        .collect();
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let (took, found) = timed(|| {
            asked
                .iter()
                .filter(|&&svma| table.lookup(svma, &mut places).is_ok() && !places.is_empty())
                .count()
        });
        if found < LOOKUPS / 2 {
            return Err(format!("only {found} of {LOOKUPS} addresses have names").into());
        }
        best = best.min(took.as_secs_f64());
    }
    println!("lookups_s {}", LOOKUPS as f64 / best);
    let some = &asked[..LOOKUPS / 10];
    let (took, frames) = timed(|| {
        let named = some.iter().filter_map(|&svma| table.frames(svma).ok());
        named.map(|frames| frames.len()).sum::<usize>()
    });
    println!("named_s {}", some.len() as f64 / took.as_secs_f64());
    println!("frames_per_address {}", frames as f64 / some.len() as f64);
    peers::blazesym(object, &asked)?;
    peers::llvm(object, &asked)
}

/// Addresses that have a name, all over the code.
fn addresses(object: &Path, table: &Table<'_>) -> Outcome<Vec<u64>> {
    let object = Object::parse(std::fs::read(object)?)?;
    let code: Vec<_> = object.segments().iter().filter(|s| s.executable).collect();
    let bytes: u64 = code.iter().map(|s| s.memory_size).sum();
    let mut random = Random::new();
    let mut places = Vec::new();
    let mut all = Vec::new();
    for _ in 0..400_000 {
        let mut at = random.next() % bytes.max(1);
        for segment in &code {
            if at < segment.memory_size {
                let svma = segment.svma + at;
                if table.lookup(svma, &mut places).is_ok() && !places.is_empty() {
                    all.push(svma);
                }
                break;
            }
            at -= segment.memory_size;
        }
    }
    match all.len() {
        0 => Err("no address has a name".into()),
        _ => Ok(all),
    }
}

/// CPU time of this thread that `work` takes.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let before = usage(libc::RUSAGE_THREAD).0;
    let result = work();
    (usage(libc::RUSAGE_THREAD).0 - before, result)
}

/// CPU time and the most KiB that were resident.
pub fn usage(of: libc::c_int) -> (Duration, i64) {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid pointer to a structure that lives during the call.
    unsafe { libc::getrusage(of, &mut usage) };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    (time(usage.ru_utime) + time(usage.ru_stime), usage.ru_maxrss)
}

/// xorshift: the same addresses at each run.
struct Random(u64);

impl Random {
    fn new() -> Random {
        Random(0x2545_f491_4f6c_dd1d)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
