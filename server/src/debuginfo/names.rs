//! A part's symbols with names in the place of addresses. The stored ones stay as they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pilotlight_symbolize::Frame;

use super::store::{Debuginfo, Found, Reason};
use super::svma::svma;
use super::upload::base_name;
use crate::hash::pair;
use crate::segment::{Function, Lines, Mapping, Symbols};

/// Whether a sender that had no name wrote `binary+0xoffset` or a mark such as `[unknown]` instead.
pub fn is_address(name: &[u8]) -> bool {
    if name == b"[unknown]" || name == b"<unknown>" {
        return true;
    }
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    digits > 0 && name[..name.len() - digits].ends_with(b"+0x")
}

/// Whether a name is an address with the reason why it has none: `binary[reason]+0xoffset`.
pub fn has_reason(name: &[u8]) -> bool {
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_hexdigit());
    let before = name[..name.len() - digits.count()].strip_suffix(b"]+0x");
    let word = before.and_then(|before| before.rsplit(|&byte| byte == b'[').next());
    word.is_some_and(|word| Reason::ALL.iter().any(|of| of.word().as_bytes() == word))
}

/// For each location, whether it has an address in a binary and no name.
pub fn unresolved(symbols: &Symbols) -> Vec<bool> {
    let text = |id: u32| symbols.strings.get(id);
    let functions = symbols.functions.iter();
    let nameless: Vec<bool> = functions
        .map(|function| text(function.name).is_empty() || is_address(text(function.name)))
        .collect();
    let columns = &symbols.locations;
    let of = |location: usize| {
        let lines = columns.lines(location as u32);
        columns.mapping[location] != 0
            && columns.address[location] != 0
            && lines.iter().all(|line| nameless[line.function as usize])
    };
    (0..columns.count()).map(of).collect()
}

type Key = (String, usize);

struct Held {
    /// Mappings with addresses that have no names; where there are none, nothing is to be done.
    open: Vec<u32>,
    /// Of what was known of these mappings.
    print: u64,
    named: Option<Arc<Symbols>>,
    used: u64,
}

impl Held {
    fn heap_bytes(&self) -> usize {
        let named = self
            .named
            .as_ref()
            .map_or(0, |symbols| symbols.heap_bytes());
        named + 128
    }
}

#[derive(Default)]
struct Inner {
    parts: HashMap<Key, Held>,
    uses: u64,
    bytes: usize,
}

/// Named parts, bounded in bytes, the least recently used out first.
pub struct NamedParts {
    inner: Mutex<Inner>,
    limit_bytes: usize,
}

impl NamedParts {
    /// A cache of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            inner: Mutex::default(),
            limit_bytes,
        }
    }

    fn get(&self, key: &Key) -> Option<(Vec<u32>, u64, Option<Arc<Symbols>>)> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let used = inner.uses;
        let held = inner.parts.get_mut(key)?;
        held.used = used;
        Some((held.open.clone(), held.print, held.named.clone()))
    }

    fn put(&self, key: Key, open: Vec<u32>, print: u64, named: Option<Arc<Symbols>>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.uses += 1;
        let held = Held {
            open,
            print,
            named,
            used: inner.uses,
        };
        if held.heap_bytes() > self.limit_bytes / 2 {
            return;
        }
        inner.bytes += held.heap_bytes();
        if let Some(old) = inner.parts.insert(key, held) {
            inner.bytes -= old.heap_bytes();
        }
        if inner.bytes > self.limit_bytes {
            inner.shrink(self.limit_bytes / 8 * 7);
        }
    }
}

impl Inner {
    fn shrink(&mut self, target: usize) {
        let mut order: Vec<(u64, Key)> = self
            .parts
            .iter()
            .map(|(key, held)| (held.used, key.clone()))
            .collect();
        order.sort_unstable();
        for (_, key) in order {
            if self.bytes <= target {
                break;
            }
            if let Some(held) = self.parts.remove(&key) {
                self.bytes -= held.heap_bytes();
            }
        }
    }
}

impl Debuginfo {
    /// The symbols of a part with the names that are known now; `None` where the stored ones say
    /// all there is to say. Nodes and locations keep their numbers.
    pub fn name(&self, segment: &str, part: usize, symbols: &Symbols) -> Option<Arc<Symbols>> {
        let key = (segment.to_owned(), part);
        let held = self.named.get(&key);
        let open = match &held {
            Some((open, ..)) => open.clone(),
            None => open_mappings(symbols, &unresolved(symbols)),
        };
        if open.is_empty() {
            if held.is_none() {
                self.named.put(key, open, 0, None);
            }
            return None;
        }
        let found: HashMap<u32, Found> = open
            .iter()
            .map(|&at| (at, self.of_mapping(symbols, at)))
            .collect();
        let print = open
            .iter()
            .fold(1, |print, at| pair(print, found[at].print()));
        if let Some((_, known, named)) = held
            && known == print
        {
            return named;
        }
        let named = Arc::new(Namer::new(symbols, &found).run(&unresolved(symbols)));
        self.named.put(key, open, print, Some(named.clone()));
        Some(named)
    }

    /// What is known of a mapping's binary.
    pub fn of_mapping(&self, symbols: &Symbols, mapping: u32) -> Found {
        let mapping = &symbols.mappings[mapping as usize];
        let text = |id: u32| String::from_utf8_lossy(symbols.strings.get(id)).into_owned();
        self.find(&text(mapping.build_id), &text(mapping.filename))
    }
}

/// Mappings with a build id, some of whose addresses have no name.
fn open_mappings(symbols: &Symbols, unresolved: &[bool]) -> Vec<u32> {
    let mut open = vec![false; symbols.mappings.len()];
    for (location, _) in unresolved.iter().enumerate().filter(|(_, open)| **open) {
        let mapping = symbols.locations.mapping[location] as usize - 1;
        open[mapping] = symbols.mappings[mapping].build_id != 0;
    }
    let open = open.iter().enumerate().filter(|(_, open)| **open);
    open.map(|(at, _)| at as u32).collect()
}

/// Writes new lines beside the old ones.
struct Namer<'a> {
    symbols: &'a Symbols,
    found: &'a HashMap<u32, Found>,
    out: Symbols,
    strings: HashMap<Vec<u8>, u32>,
    functions: HashMap<Function, u32>,
}

impl<'a> Namer<'a> {
    fn new(symbols: &'a Symbols, found: &'a HashMap<u32, Found>) -> Self {
        let mut out = symbols.clone();
        out.locations.line_ends.clear();
        out.locations.lines.clear();
        Self {
            symbols,
            found,
            out,
            strings: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    fn run(mut self, unresolved: &[bool]) -> Symbols {
        for (location, &open) in unresolved.iter().enumerate() {
            if !(open && self.rename(location)) {
                let lines = self.symbols.locations.lines(location as u32);
                self.out.locations.lines.extend_from_slice(lines);
            }
            let end = self.out.locations.lines.len() as u32;
            self.out.locations.line_ends.push(end);
        }
        self.out
    }

    /// Writes the lines of an address; false where nothing is to be said beyond what is stored.
    fn rename(&mut self, location: usize) -> bool {
        let symbols = self.symbols;
        let at = symbols.locations.mapping[location] - 1;
        let mapping = &symbols.mappings[at as usize];
        let mut address = symbols.locations.address[location];
        let reason = match self.found.get(&at) {
            None => return false,
            Some(Found::Missing(reason)) => reason.word(),
            Some(Found::File {
                read,
                segments,
                exact,
                lacks,
                ..
            }) => {
                let svma = svma(segments, *exact, mapping, address);
                let frames = svma.map_or(Vec::new(), |svma| read.frames(svma));
                if frames.iter().any(|frame| !frame.function.is_empty()) {
                    let lacks = lacks.map(|why| self.with_reason(mapping, address, why.word()));
                    frames.iter().for_each(|frame| self.line(frame, lacks));
                    return true;
                }
                // Addresses of one function are one frame, though it has no name.
                let start = svma.and_then(|svma| svma.checked_sub(read.extent(svma)?));
                address = address.wrapping_sub(start.unwrap_or(0));
                lacks.unwrap_or(Reason::NotInDebuginfo).word()
            }
        };
        let name = self.with_reason(mapping, address, reason);
        self.add(Function {
            name,
            system_name: name,
            filename: mapping.filename,
            start_line: 0,
        });
        true
    }

    /// A function; a nameless one is called `lacks`, or left out.
    fn line(&mut self, frame: &Frame, lacks: Option<u32>) {
        let (name, system_name) = match (frame.function.as_str(), lacks) {
            ("", None) => return,
            ("", Some(lacks)) => (lacks, lacks),
            (name, _) => (
                self.string(name.as_bytes()),
                self.string(frame.system_name.as_bytes()),
            ),
        };
        let function = Function {
            name,
            system_name,
            filename: self.string(frame.file.as_deref().unwrap_or_default().as_bytes()),
            start_line: 0,
        };
        self.add(function);
        if let Some(line) = self.out.locations.lines.last_mut() {
            line.line = frame.line.unwrap_or(0).into();
        }
    }

    fn add(&mut self, function: Function) {
        let functions = &mut self.out.functions;
        let function = *self.functions.entry(function).or_insert_with(|| {
            functions.push(function);
            functions.len() as u32 - 1
        });
        self.out.locations.lines.push(Lines {
            function,
            line: 0,
            column: 0,
        });
    }

    /// `binary[reason]+0xoffset`.
    fn with_reason(&mut self, mapping: &Mapping, address: u64, reason: &str) -> u32 {
        let file = String::from_utf8_lossy(self.symbols.strings.get(mapping.filename));
        let binary = match base_name(&file) {
            "" => "unknown",
            name => name,
        };
        let offset = address
            .wrapping_sub(mapping.start)
            .wrapping_add(mapping.offset);
        let name = format!("{binary}[{reason}]+{offset:#x}");
        self.string(name.as_bytes())
    }

    fn string(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let id = self.out.strings.push(text);
        self.strings.insert(text.to_vec(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_from_other_names() {
        assert!(has_reason(b"libc.so.6[no-debuginfo]+0x1098eb"));
        assert!(is_address(b"libc.so.6[no-debuginfo]+0x1098eb"));
        let others: [&[u8]; 5] = [
            b"[vdso]+0xbe1",
            b"a[b]+0x1",
            b"libc.so.6+0x1",
            b"waiting",
            b"",
        ];
        assert!(others.iter().all(|name| !has_reason(name)));
    }
}
