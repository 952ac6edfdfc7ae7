//! A data folder for measuring a start: `many_blocks DATA_DIR COUNT` makes so many small blocks,
//! `many_blocks DATA_DIR BYTES FOLDER` copies the blocks of a data folder until they have so many bytes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pilotlight_profile::{LabelSetId, Profile, ProfileBuilder};
use pilotlight_server::block::{self, Files, Layout};
use pilotlight_server::segment::{Header, Pushed, SegmentBuilder};

const SECOND: i64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder: PathBuf = args
        .next()
        .ok_or("usage: many_blocks DATA_DIR COUNT")?
        .into();
    let count: i64 = args.next().ok_or("how many?")?.parse()?;
    let blocks = folder.join("blocks");
    fs::create_dir_all(&blocks)?;
    if let Some(from) = args.next() {
        return copies(&PathBuf::from(from).join("blocks"), &blocks, count as u64);
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let now_ns = now.as_nanos() as i64;
    let made = block::from_parts(parts(now_ns), &Layout::default(), 0)?;
    let first = blocks.join("first");
    fs::write(first.with_extension("samples"), &made.samples)?;
    fs::write(first.with_extension("symbols"), &made.symbols)?;
    for n in 0..count {
        let created_ns = now_ns - n * 10 * SECOND;
        // Of the last level: none is merged.
        let mut header = Header {
            level: 4,
            created_ns,
            replaces: Vec::new(),
            parts: made.parts.clone(),
            file_len: 0,
        };
        for entry in header.parts.iter_mut().flat_map(|part| &mut part.series) {
            entry.min_time_ns -= n * 10 * SECOND;
            entry.max_time_ns -= n * 10 * SECOND;
        }
        let files: &Files = &made.files;
        let name = block::file_name(created_ns, 4, n as u64);
        fs::write(blocks.join(&name), block::encode_manifest(&header, files))?;
        for (end, from) in [(block::SAMPLES, "samples"), (block::SYMBOLS, "symbols")] {
            let to = blocks.join(block::sibling(&name, end));
            link(&first.with_extension(from), &to)?;
        }
    }
    fs::remove_file(first.with_extension("samples"))?;
    fs::remove_file(first.with_extension("symbols"))?;
    Ok(())
}

/// Copies blocks of the lowest levels as ones of the last, which are not merged any more.
fn copies(from: &Path, to: &Path, bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut manifests = Vec::new();
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(block::MANIFEST) {
            manifests.push(name);
        }
    }
    manifests.sort();
    let mut written = 0;
    for n in 0.. {
        let name = manifests.get(n % manifests.len().max(1));
        let name = name.ok_or("there are no blocks to copy")?;
        let (mut header, files) = block::decode_manifest(&fs::read(from.join(name))?)?;
        header.level = 4;
        header.replaces.clear();
        let copy = block::file_name(header.created_ns, 4, n as u64);
        for end in [block::SAMPLES, block::SYMBOLS] {
            let (old, new) = (block::sibling(name, end), block::sibling(&copy, end));
            written += fs::copy(from.join(old), to.join(new))?;
        }
        fs::write(to.join(&copy), block::encode_manifest(&header, &files))?;
        if written >= bytes {
            println!("{} blocks, {written} bytes", n + 1);
            return Ok(());
        }
    }
    Ok(())
}

/// A second name, or where the file has as many as it may, a copy that takes the next ones.
fn link(from: &PathBuf, to: &PathBuf) -> std::io::Result<()> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to)?;
    fs::remove_file(from)?;
    fs::hard_link(to, from)
}

fn parts(
    now_ns: i64,
) -> Vec<(
    pilotlight_server::segment::PartHeader,
    pilotlight_server::segment::Part,
)> {
    let mut builder = SegmentBuilder::default();
    for pod in 0..3 {
        let text = |text: &str| text.to_owned();
        let pushed = Pushed {
            labels: vec![
                (text("pod"), format!("checkout-{pod}")),
                (text("service_name"), text("checkout")),
            ],
            name: text("process_cpu"),
            time_ns: now_ns,
            duration_ns: 10 * SECOND,
            id: 1 + pod as u128,
        };
        builder.add_profile(&profile(), &pushed);
    }
    builder.finish()
}

fn profile() -> Profile {
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    for n in 0..20 {
        let name = out.string(format!("function_{n}").as_bytes());
        let function = out.function(name, name, name, 1);
        let location = out.location(None, 0, &[(function, 7)]);
        let stack = out.stack(&[location]);
        out.sample(stack, LabelSetId(0), &[1 + n]);
    }
    out.finish()
}
