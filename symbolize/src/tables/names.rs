//! From a function's entry in DWARF to its number in the table, through declarations and abstract
//! instances, in other units and in the supplementary file too.

use super::format::NONE;
use super::lines::{Files, small};
use super::sections::Slice;
use super::write::Writer;
use addr2line::gimli::{
    self, Abbreviation, AttributeValue, Dwarf, EntriesRaw, Unit, UnitOffset, UnitRef,
};
use std::collections::HashMap;
use std::rc::Rc;

type Value<'a> = AttributeValue<Slice<'a>>;

/// Steps from a function to the declaration that has its name; compilers need three.
const STEPS: usize = 16;
/// Other units kept parsed.
const UNITS: usize = 512;

/// What we read of one entry.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry<'a> {
    pub low: Option<Value<'a>>,
    pub high: Option<Value<'a>>,
    pub ranges: Option<Value<'a>>,
    pub call_file: u64,
    pub call_line: u64,
    name: Option<Value<'a>>,
    linkage_name: Option<Value<'a>>,
    file: Option<u64>,
    line: Option<u64>,
    pub origin: Option<Value<'a>>,
}

impl<'a> Entry<'a> {
    pub fn read(
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        abbreviation: &Abbreviation,
    ) -> gimli::Result<Entry<'a>> {
        let mut entry = Entry::default();
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute_inline(spec)?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_low_pc => entry.low = Some(value),
                gimli::DW_AT_high_pc => entry.high = Some(value),
                gimli::DW_AT_ranges => entry.ranges = Some(value),
                gimli::DW_AT_name => entry.name = Some(value),
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    entry.linkage_name = Some(value)
                }
                gimli::DW_AT_abstract_origin => entry.origin = Some(value),
                // An abstract origin tells more.
                gimli::DW_AT_specification => entry.origin = entry.origin.or(Some(value)),
                gimli::DW_AT_decl_file => entry.file = Some(small(value)),
                gimli::DW_AT_decl_line => entry.line = Some(small(value)),
                gimli::DW_AT_call_file => entry.call_file = small(value),
                gimli::DW_AT_call_line => entry.call_line = small(value),
                _ => {}
            }
        }
        Ok(entry)
    }
}

/// Another unit than the one being read.
struct Other<'a> {
    unit: Unit<Slice<'a>>,
    files: std::cell::RefCell<Files>,
}

/// What is known of a function so far.
#[derive(Clone, Copy)]
struct Known<'a> {
    name: Option<&'a [u8]>,
    linkage_name: Option<&'a [u8]>,
    file: u32,
    line: u32,
}

/// Where an entry stands.
enum Home<'a> {
    Here,
    There {
        supplementary: bool,
        other: Rc<Other<'a>>,
    },
}

/// Numbers of functions by the offset of their entries.
pub(crate) struct Names<'a> {
    /// In the unit being read.
    local: HashMap<usize, u32>,
    /// In all of a file: whether it is the supplementary one, and the offset.
    distant: HashMap<(bool, usize), u32>,
    units: HashMap<(bool, usize), Rc<Other<'a>>>,
    /// Offsets where units start: of the file and of the supplementary one.
    starts: [Vec<usize>; 2],
}

impl<'a> Names<'a> {
    /// `relief` as in [`super::Limits`].
    pub fn new(dwarf: &Dwarf<Slice<'a>>, relief: &dyn Fn()) -> Names<'a> {
        Names {
            local: HashMap::new(),
            distant: HashMap::new(),
            units: HashMap::new(),
            starts: [
                starts(dwarf, relief),
                dwarf.sup().map_or_else(Vec::new, |sup| starts(sup, relief)),
            ],
        }
    }

    /// For a file without units.
    pub fn empty() -> Names<'a> {
        Names {
            local: HashMap::new(),
            distant: HashMap::new(),
            units: HashMap::new(),
            starts: [Vec::new(), Vec::new()],
        }
    }

    /// Forgets the unit that was read.
    pub fn next_unit(&mut self) {
        self.local.clear();
        if self.distant.len() > 1 << 20 {
            self.distant.clear();
        }
        if self.units.len() > UNITS {
            self.units.clear();
        }
    }

    /// The function that `origin` of an inlined call names; [`NONE`] when it cannot be found.
    pub fn origin(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        main: UnitRef<'_, Slice<'a>>,
        files: &mut Files,
        entry: &Entry<'a>,
        writer: &mut Writer<'a, '_>,
    ) -> u32 {
        let here = match entry.origin {
            Some(AttributeValue::UnitRef(offset)) => Some(offset.0),
            _ => None,
        };
        let there = match entry.origin {
            Some(AttributeValue::DebugInfoRef(offset)) => Some((false, offset.0)),
            Some(AttributeValue::DebugInfoRefSup(offset)) => Some((true, offset.0)),
            _ => None,
        };
        let known = here.and_then(|h| self.local.get(&h));
        if let Some(&known) = known.or_else(|| there.and_then(|t| self.distant.get(&t))) {
            return known;
        }
        let function = self.function(unit, main, files, entry, None, writer);
        if let Some(here) = here {
            self.local.insert(here, function);
        }
        if let Some(there) = there {
            self.distant.insert(there, function);
        }
        function
    }

    /// The function of an entry. `symbol` is the linker's name of the code, should it be better.
    pub fn function(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        main: UnitRef<'_, Slice<'a>>,
        files: &mut Files,
        entry: &Entry<'a>,
        symbol: Option<&'a [u8]>,
        writer: &mut Writer<'a, '_>,
    ) -> u32 {
        let known = self.follow(unit, main, files, entry, writer);
        let name = better(known.linkage_name.or(known.name), symbol);
        name.map_or(NONE, |name| writer.function(name, known.file, known.line))
    }

    fn follow(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        main: UnitRef<'_, Slice<'a>>,
        files: &mut Files,
        entry: &Entry<'a>,
        writer: &mut Writer<'a, '_>,
    ) -> Known<'a> {
        let mut known = Known {
            name: None,
            linkage_name: None,
            file: NONE,
            line: 0,
        };
        let mut home = Home::Here;
        let mut entry = *entry;
        for _ in 0..STEPS {
            let origin = entry.origin;
            let next = match &home {
                Home::Here => {
                    note(&mut known, unit, main, files, &entry, writer);
                    self.step(unit, false, origin)
                }
                Home::There {
                    supplementary,
                    other,
                } => {
                    let dwarf = if *supplementary {
                        unit.dwarf.sup()
                    } else {
                        Some(unit.dwarf)
                    };
                    let Some(dwarf) = dwarf else { break };
                    let there = UnitRef::new(dwarf, &other.unit);
                    note(
                        &mut known,
                        there,
                        there,
                        &mut other.files.borrow_mut(),
                        &entry,
                        writer,
                    );
                    self.step(there, *supplementary, origin)
                }
            };
            let Some((next_home, next_entry)) = next else {
                break;
            };
            // An offset into the same unit keeps the home.
            home = match (next_home, home) {
                (Some(next), _) => next,
                (None, home) => home,
            };
            entry = next_entry;
        }
        known
    }

    /// The entry that `origin` points at, and its home where that is another.
    fn step(
        &mut self,
        unit: UnitRef<'_, Slice<'a>>,
        supplementary: bool,
        origin: Option<Value<'a>>,
    ) -> Option<(Option<Home<'a>>, Entry<'a>)> {
        let (supplementary, dwarf, offset) = match origin? {
            AttributeValue::UnitRef(offset) => return Some((None, entry_at(unit.unit, offset)?)),
            AttributeValue::DebugInfoRef(offset) => (supplementary, unit.dwarf, offset),
            AttributeValue::DebugInfoRefSup(offset) if !supplementary => {
                (true, unit.dwarf.sup()?, offset)
            }
            _ => return None,
        };
        let starts = &self.starts[usize::from(supplementary)];
        let start = *starts.get(starts.partition_point(|&s| s <= offset.0).checked_sub(1)?)?;
        let other = match self.units.get(&(supplementary, start)) {
            Some(other) => other.clone(),
            None => {
                let header = dwarf.unit_header(gimli::DebugInfoOffset(start)).ok()?;
                let other = Rc::new(Other {
                    unit: dwarf.unit(header).ok()?,
                    files: Files::new().into(),
                });
                self.units.insert((supplementary, start), other.clone());
                other
            }
        };
        let offset = offset.to_unit_offset(&other.unit.header)?;
        let entry = entry_at(&other.unit, offset)?;
        Some((
            Some(Home::There {
                supplementary,
                other,
            }),
            entry,
        ))
    }
}

/// Of the name in DWARF and the symbol of the code: the symbol where it is the same name with a
/// clone's suffix (the linker's name), or the only one that has a path.
fn better<'a>(name: Option<&'a [u8]>, symbol: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let (Some(known), Some(other)) = (name, symbol) else {
        return name.or(symbol);
    };
    let mangled = |n: &[u8]| n.starts_with(b"_Z") || n.starts_with(b"_R");
    let suffix = other.strip_prefix(known);
    let clone = suffix.is_some_and(|suffix| suffix.starts_with(b"."));
    let path = mangled(other) && !mangled(known);
    Some(if clone || path { other } else { known })
}

/// Where units start. Each touches a page, and the system maps its neighbours too.
fn starts(dwarf: &Dwarf<Slice<'_>>, relief: &dyn Fn()) -> Vec<usize> {
    let mut starts = Vec::new();
    let (mut units, mut relieved) = (dwarf.units(), 0);
    while let Ok(Some(header)) = units.next() {
        let Some(start) = header.debug_info_offset() else {
            continue;
        };
        if start.0 - relieved > super::RELIEF_BYTES {
            relieved = start.0;
            relief();
        }
        starts.push(start.0);
    }
    starts
}

fn entry_at<'a>(unit: &Unit<Slice<'a>>, offset: UnitOffset) -> Option<Entry<'a>> {
    let mut entries = unit.entries_raw(Some(offset)).ok()?;
    let abbreviation = entries.read_abbreviation().ok()??;
    Entry::read(&mut entries, abbreviation).ok()
}

/// Takes from an entry what is not known yet.
fn note<'a>(
    known: &mut Known<'a>,
    unit: UnitRef<'_, Slice<'a>>,
    main: UnitRef<'_, Slice<'a>>,
    files: &mut Files,
    entry: &Entry<'a>,
    writer: &mut Writer<'a, '_>,
) {
    let text = |value: Option<Value<'a>>| {
        unit.attr_string(value?)
            .ok()
            .map(|s| s.slice())
            .filter(|s| !s.is_empty())
    };
    known.name = known.name.or_else(|| text(entry.name));
    known.linkage_name = known.linkage_name.or_else(|| text(entry.linkage_name));
    if let Some(file) = entry.file.filter(|_| known.file == NONE) {
        known.file = files.get(main, file, writer);
    }
    if let Some(line) = entry.line.filter(|_| known.line == 0) {
        known.line = u32::try_from(line).unwrap_or(0);
    }
}
