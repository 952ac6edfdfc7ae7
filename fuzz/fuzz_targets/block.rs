//! Blocks: any bytes as a manifest, and real columns with bytes of the input in them whose
//! checksums are right. Damage is an error, never a panic that gets out.

#![no_main]

use std::sync::{Once, OnceLock};

use libfuzzer_sys::fuzz_target;
use pilotlight_server::block::{
    Chunk, Files, Rows, decode_manifest, profile_chunks, read_ids, read_profiles, read_sidecar,
    span,
};
use pilotlight_server::segment::Header;

const MANIFEST: &[u8] = include_bytes!("../../server/tests/fixtures/block1.plblk");
const SYMBOLS: &[u8] = include_bytes!("../../server/tests/fixtures/block1.symbols.parquet");
const SAMPLES: &[u8] = include_bytes!("../../server/tests/fixtures/block1.samples.parquet");

fuzz_target!(|data: &[u8]| {
    // The Parquet reader panics on some damage; the server catches that, and what it does not
    // catch ends the target all the same.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let _ = decode_manifest(data);
    let _ = decode_manifest(&sealed(data));
    if let [which, column, high, low, rest @ ..] = data {
        let at = usize::from(u16::from_be_bytes([*high, *low]));
        columns(*which, usize::from(*column), at, rest);
    }
});

fn real() -> &'static (Header, Files) {
    static REAL: OnceLock<(Header, Files)> = OnceLock::new();
    REAL.get_or_init(|| decode_manifest(MANIFEST).expect("the fixture is whole"))
}

/// A manifest whose body begins with that of the input, with the right checksum.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut bytes = MANIFEST.to_vec();
    let body = bytes.len() - 12;
    let len = data.len().min(body);
    bytes[8..8 + len].copy_from_slice(&data[..len]);
    let end = bytes.len() - 4;
    let crc = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Puts the input into a column of the real files.
fn put(file: &mut [u8], chunk: &mut Chunk, at: usize, rest: &[u8]) {
    let column = &mut file[chunk.offset as usize..(chunk.offset + chunk.len) as usize];
    let at = at % column.len().max(1);
    let len = rest.len().min(column.len() - at);
    column[at..at + len].copy_from_slice(&rest[..len]);
    chunk.crc = crc32fast::hash(column);
}

fn columns(which: u8, column: usize, at: usize, rest: &[u8]) {
    let (header, files) = real();
    let part = usize::from(which >> 1) % files.parts.len();
    let (about, mut files) = (&header.parts[part], files.parts[part].clone());
    if which & 1 == 0 {
        let mut symbols = SYMBOLS.to_vec();
        let chunks = files.symbols.len();
        put(&mut symbols, &mut files.symbols[column % chunks], at, rest);
        let of = |chunks: &[Chunk]| {
            let range = span(chunks);
            symbols[range.start as usize..range.end as usize].to_vec()
        };
        let _ = read_sidecar(about, &files, of(&files.symbols));
        let _ = read_profiles(about, &files, of(profile_chunks(&files)));
        let _ = read_ids(&files, of(pilotlight_server::block::id_chunk(&files)));
        return;
    }
    let mut samples = SAMPLES.to_vec();
    let Some(group) = files.groups.first_mut() else {
        return;
    };
    let width = about.type_sets[group.type_set as usize].values.len();
    let values: Vec<usize> = (0..width).collect();
    let chunks = group.chunks.len();
    put(&mut samples, &mut group.chunks[column % chunks], at, rest);
    let chunks = Rows::wanted(group, true, &values).into_iter().map(|chunk| {
        let range = chunk.offset as usize..(chunk.offset + chunk.len) as usize;
        (chunk, samples[range].to_vec())
    });
    if let Ok(mut rows) = Rows::open(group, true, width, chunks.collect()) {
        let _ = rows.read(group.rows as usize);
    }
}
