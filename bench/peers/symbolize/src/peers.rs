//! What others take for the same addresses.

use crate::{Outcome, timed, usage};
use blazesym::symbolize::Symbolizer;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Addresses of blazesym, in batches as its users do it.
const BLAZESYM: usize = 100_000;
const BATCH: usize = 1000;
/// Addresses of llvm-symbolizer.
const LLVM: usize = 20_000;

/// Memory and CPU time to the first thousand answers, reading the file included.
pub fn first_of_blazesym(object: &Path, asked: &[u64]) -> Outcome<()> {
    let symbolizer = Symbolizer::builder().enable_code_info(true).enable_inlined_fns(true).build();
    let source = Source::Elf(Elf::new(object.canonicalize()?));
    let (took, answers) = timed(|| symbolizer.symbolize(&source, Input::VirtOffset(asked)).map(|found| found.len()));
    answers?;
    println!("cpu_s {}", took.as_secs_f64());
    println!("rss_mb {}", usage(libc::RUSAGE_SELF).1 as f64 / 1024.0);
    Ok(())
}

/// The same of a process of LLVM's.
pub fn first_of_llvm(object: &Path, asked: &[u64]) -> Outcome<()> {
    // `readelf` was a child too, and a small one.
    let cpu_s = ask_llvm(&object.canonicalize()?, asked)?;
    println!("cpu_s {cpu_s}");
    println!("rss_mb {}", usage(libc::RUSAGE_CHILDREN).1 as f64 / 1024.0);
    Ok(())
}

/// Asks twice: the first time it reads the file, the second time it has it.
pub fn blazesym(object: &Path, asked: &[u64]) -> Outcome<()> {
    let symbolizer = Symbolizer::builder()
        .enable_code_info(true)
        .enable_inlined_fns(true)
        .build();
    // The link of a process to its program is no name that can be opened again.
    let source = Source::Elf(Elf::new(object.canonicalize()?));
    for pass in ["first", "again"] {
        let (took, found) = timed(|| {
            let batches = asked[..BLAZESYM.min(asked.len())].chunks(BATCH);
            batches
                .map(|batch| {
                    let answers = symbolizer.symbolize(&source, Input::VirtOffset(batch));
                    let known = |one: &&Symbolized<'_>| matches!(one, Symbolized::Sym(_));
                    answers.map_or(0, |answers| answers.iter().filter(known).count())
                })
                .sum::<usize>()
        });
        println!("blazesym_{pass}_s {}", BLAZESYM as f64 / took.as_secs_f64());
        println!("blazesym_named {}", found as f64 / BLAZESYM as f64);
    }
    Ok(())
}

/// CPU time of a process that is asked all addresses, less that of one that is asked one.
pub fn llvm(object: &Path, asked: &[u64]) -> Outcome<()> {
    let object = object.canonicalize()?;
    let (one, all) = match (ask_llvm(&object, &asked[..1]), ask_llvm(&object, &asked[..LLVM.min(asked.len())])) {
        (Ok(one), Ok(all)) => (one, all),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("llvm-symbolizer: {error}");
            return Ok(());
        }
    };
    println!("llvm_s {}", LLVM as f64 / (all - one).max(1e-9));
    println!("llvm_start_s {one}");
    Ok(())
}

/// CPU time of a process that is asked `svmas`.
fn ask_llvm(object: &Path, svmas: &[u64]) -> Outcome<f64> {
    let mut text = String::new();
    for svma in svmas {
        writeln!(text, "{svma:#x}")?;
    }
    let before = usage(libc::RUSAGE_CHILDREN).0;
    let mut child = Command::new("llvm-symbolizer")
        .arg("--obj")
        .arg(object)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    if !child.wait()?.success() {
        return Err("llvm-symbolizer failed".into());
    }
    Ok((usage(libc::RUSAGE_CHILDREN).0 - before).as_secs_f64())
}
