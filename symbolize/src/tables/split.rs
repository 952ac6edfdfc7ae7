//! Units whose functions stand in a `.dwo` or `.dwp` file.

use super::sections::{Sections, Slice};
use addr2line::gimli::{self, Dwarf, DwarfPackage, EndianSlice, LittleEndian, Unit};
use std::collections::HashMap;

/// The split files that the caller gave.
pub(crate) struct Split<'a> {
    package: Option<DwarfPackage<Slice<'a>>>,
    objects: HashMap<u64, &'a Sections<'a>>,
    info_bytes: u64,
}

impl<'a> Split<'a> {
    pub fn new(package: Option<&'a Sections<'a>>, objects: &'a [Sections<'a>]) -> Split<'a> {
        let empty = EndianSlice::new(&[], LittleEndian);
        let load = |sections: &'a Sections<'a>| {
            DwarfPackage::load(|id| Ok::<_, gimli::Error>(sections.split(id)), empty).ok()
        };
        let mut split = Split {
            package: package.and_then(load),
            objects: HashMap::new(),
            info_bytes: 0,
        };
        let info = |s: &&Sections<'_>| s.get(".debug_info.dwo").len() as u64;
        split.info_bytes = package
            .iter()
            .copied()
            .chain(objects)
            .map(|s| info(&s))
            .sum();
        for sections in objects {
            let id = dwarf_of(sections)
                .ok()
                .and_then(|dwarf| first_id(&dwarf).ok()?);
            if let Some(id) = id {
                split.objects.insert(id, sections);
            }
        }
        split
    }

    /// Bytes of debug information in all of them.
    pub fn info_bytes(&self) -> u64 {
        self.info_bytes
    }

    /// The other half of a skeleton unit.
    pub fn find(
        &self,
        main: &Dwarf<Slice<'a>>,
        unit: &Unit<Slice<'a>>,
    ) -> Option<(Dwarf<Slice<'a>>, Unit<Slice<'a>>)> {
        let id = unit.dwo_id?;
        let packed = self
            .package
            .as_ref()
            .and_then(|p| p.find_cu(id, main).ok()?);
        let dwarf = match packed {
            Some(dwarf) => dwarf,
            None => {
                let mut dwarf = dwarf_of(self.objects.get(&id.0)?).ok()?;
                dwarf.make_dwo(main);
                dwarf
            }
        };
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Ok(mut split) = dwarf.unit(header) else {
                continue;
            };
            if split.dwo_id == Some(id) {
                split.copy_relocated_attributes(unit);
                return Some((dwarf, split));
            }
        }
        None
    }
}

fn dwarf_of<'a>(sections: &'a Sections<'a>) -> gimli::Result<Dwarf<Slice<'a>>> {
    let mut dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(sections.split(id)))?;
    dwarf.file_type = gimli::DwarfFileType::Dwo;
    Ok(dwarf)
}

fn first_id(dwarf: &Dwarf<Slice<'_>>) -> gimli::Result<Option<u64>> {
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        if let Some(id) = dwarf.unit(header)?.dwo_id {
            return Ok(Some(id.0));
        }
    }
    Ok(None)
}
