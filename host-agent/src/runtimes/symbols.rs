//! What an ELF file exports: single names, looked up in its hash table, so that a handful of short reads tells whether a
//! file of hundreds of megabytes has them. It may be forged: every loop has a bound, and nothing is believed.

use std::fs::File;
use std::os::unix::fs::FileExt;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Names that share a place of the hash table.
const MOST_IN_BUCKET: u32 = 64;
const MOST_HEADERS: u16 = 64;
const MOST_DYNAMIC: usize = 128;

/// A defined symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// Stated address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// The exports of a file.
#[derive(Debug)]
pub struct Symbols<'a> {
    file: &'a File,
    /// Stated address, bytes in the file, offset in it.
    segments: Vec<(u64, u64, u64)>,
    names: u64,
    symbols: u64,
    hash: Hash,
}

/// The header of `DT_GNU_HASH`.
#[derive(Clone, Copy, Debug, Default)]
struct Hash {
    buckets: u32,
    first: u32,
    bloom_words: u32,
    shift: u32,
    bloom: u64,
}

impl<'a> Symbols<'a> {
    /// `None` for what is no 64-bit ELF file or exports nothing by `DT_GNU_HASH`.
    pub fn open(file: &'a File) -> Option<Symbols<'a>> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (table, count) = (word(&header, 32), half(&header, 56).min(MOST_HEADERS));
        let mut headers = vec![0; usize::from(count) * 56];
        file.read_exact_at(&mut headers, table).ok()?;
        let mut this = Symbols {
            file,
            segments: Vec::new(),
            names: 0,
            symbols: 0,
            hash: Hash::default(),
        };
        let mut dynamic = None;
        for header in headers.chunks_exact(56) {
            let segment = (word(header, 16), word(header, 32), word(header, 8));
            match int(header, 0) {
                PT_LOAD => this.segments.push(segment),
                PT_DYNAMIC => dynamic = Some(segment),
                _ => {}
            }
        }
        this.dynamic(dynamic?)
    }

    fn dynamic(mut self, (_, size, offset): (u64, u64, u64)) -> Option<Symbols<'a>> {
        let mut bytes = vec![0; (size as usize).min(MOST_DYNAMIC * 16)];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        let mut hash = 0;
        for entry in bytes.chunks_exact(16) {
            let value = word(entry, 8);
            match word(entry, 0) {
                DT_STRTAB => self.names = value,
                DT_SYMTAB => self.symbols = value,
                DT_GNU_HASH => hash = value,
                0 => break,
                _ => {}
            }
        }
        let mut header = [0; 16];
        self.read(hash, &mut header).filter(|()| hash != 0)?;
        self.hash = Hash {
            buckets: int(&header, 0),
            first: int(&header, 4),
            bloom_words: int(&header, 8),
            shift: int(&header, 12),
            bloom: hash + 16,
        };
        (self.hash.buckets != 0 && self.hash.bloom_words != 0).then_some(self)
    }

    /// Bytes at a stated address, as they are in the file.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        let holds = |(start, size, _): &&(u64, u64, u64)| address.wrapping_sub(*start) < *size;
        let (start, _, offset) = self.segments.iter().find(holds)?;
        let at = offset.checked_add(address - start)?;
        self.file.read_exact_at(bytes, at).ok()
    }

    fn int(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// A symbol that is defined here, by its name.
    pub fn find(&self, name: &str) -> Option<Symbol> {
        let hash = self.hash;
        let key = name.bytes().fold(5381_u32, |key, byte| {
            key.wrapping_mul(33).wrapping_add(u32::from(byte))
        });
        let mut bloom = [0; 8];
        let place = u64::from((key / 64) % hash.bloom_words) * 8;
        self.read(hash.bloom.checked_add(place)?, &mut bloom)?;
        let bits = 1_u64 << (key % 64) | 1_u64 << (key.checked_shr(hash.shift).unwrap_or(0) % 64);
        if u64::from_le_bytes(bloom) & bits != bits {
            return None;
        }
        let buckets = hash.bloom.checked_add(u64::from(hash.bloom_words) * 8)?;
        let chains = buckets.checked_add(u64::from(hash.buckets) * 4)?;
        let first = self.int(buckets.checked_add(u64::from(key % hash.buckets) * 4)?)?;
        for index in first..first.checked_add(MOST_IN_BUCKET)? {
            let chain = u64::from(index.checked_sub(hash.first)?) * 4;
            let found = self.int(chains.checked_add(chain)?)?;
            if found | 1 == key | 1
                && let Some(symbol) = self.symbol(index, name)
            {
                return Some(symbol);
            }
            if found & 1 == 1 {
                break;
            }
        }
        None
    }

    fn symbol(&self, index: u32, name: &str) -> Option<Symbol> {
        let mut bytes = [0; 24];
        let at = self.symbols.checked_add(u64::from(index) * 24)?;
        self.read(at, &mut bytes)?;
        let mut found = vec![0; name.len() + 1];
        self.read(
            self.names.checked_add(u64::from(int(&bytes, 0)))?,
            &mut found,
        )?;
        let is_it = found.strip_suffix(b"\0") == Some(name.as_bytes()) && half(&bytes, 6) != 0;
        is_it.then_some(Symbol {
            address: word(&bytes, 8),
            size: word(&bytes, 16),
        })
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let part = bytes.get(at..at + N).and_then(|part| part.try_into().ok());
    part.unwrap_or([0; N])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

fn int(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The C library that this test runs with.
    fn library() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| {
            let path = &line[line.find('/')?..];
            path.contains("libc.so").then_some(path)
        });
        std::fs::read(path.unwrap()).unwrap()
    }

    fn file(bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!(
            "pilotlight-symbols-{}-{:p}",
            std::process::id(),
            bytes
        ));
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        file.write_all(bytes).unwrap();
        let _ = std::fs::remove_file(path);
        file
    }

    #[test]
    fn exports_are_found_by_name_and_nothing_else_is() {
        let file = file(&library());
        let symbols = Symbols::open(&file).unwrap();
        let qsort = symbols.find("qsort").unwrap();
        assert!(qsort.address != 0 && qsort.size != 0);
        assert_ne!(symbols.find("malloc"), symbols.find("free"));
        assert_eq!(symbols.find("qsor"), None);
        assert_eq!(symbols.find("_PyRuntime"), None);
        assert_eq!(super::super::find(&file), None);
    }

    #[test]
    fn changed_files_neither_panic_nor_take_long() {
        let whole = library();
        let mut bytes = whole[..whole.len().min(1 << 18)].to_vec();
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize
        };
        for _ in 0..300 {
            let (at, was) = (next() % 4096, bytes.clone());
            for offset in 0..next() % 16 {
                bytes[at + offset] = next() as u8;
            }
            let file = file(&bytes);
            if let Some(symbols) = Symbols::open(&file) {
                for name in ["qsort", "malloc", "_PyRuntime"] {
                    let _ = symbols.find(name);
                }
            }
            bytes = was;
        }
    }
}
