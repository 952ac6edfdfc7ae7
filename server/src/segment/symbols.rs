//! Names of stacks: strings, functions, mappings, locations, and stacks as prefix-tree nodes.

/// Byte strings in one arena; 0 is the empty string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strings {
    pub(crate) bytes: Vec<u8>,
    /// End of each string in `bytes`.
    pub(crate) ends: Vec<u32>,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            ends: vec![0],
        }
    }
}

impl Strings {
    /// The string `id`; the empty one when there is no such id.
    pub fn get(&self, id: u32) -> &[u8] {
        let Some(&end) = self.ends.get(id as usize) else {
            return b"";
        };
        let start = if id == 0 {
            0
        } else {
            self.ends[id as usize - 1]
        };
        &self.bytes[start as usize..end as usize]
    }

    /// Number of strings, the empty one included.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn push(&mut self, value: &[u8]) -> u32 {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() as u32 - 1
    }
}

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Function {
    /// String ids.
    pub name: u32,
    /// Mangled name.
    pub system_name: u32,
    /// Source file.
    pub filename: u32,
    /// First line, 0 = unknown.
    pub start_line: i64,
}

/// A mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mapping {
    /// First address, as the first profile that named it had it.
    pub start: u64,
    /// One past the last address.
    pub limit: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// String id of the path.
    pub filename: u32,
    /// String id of the build id.
    pub build_id: u32,
    /// `has_functions` 1, `has_filenames` 2, `has_line_numbers` 4, `has_inline_frames` 8.
    pub flags: u32,
}

/// A source line of a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lines {
    /// Function index.
    pub function: u32,
    /// Line number.
    pub line: i64,
    /// Column number.
    pub column: i64,
}

/// Locations, as columns. Location 0 is the root's and has no lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locations {
    /// Mapping index + 1; 0 = none.
    pub mapping: Vec<u32>,
    /// Address; where there is a mapping it is an address inside it.
    pub address: Vec<u64>,
    /// Whether the linker folded this code with other code.
    pub folded: Vec<bool>,
    /// End of each location's lines in `lines`; innermost first.
    pub line_ends: Vec<u32>,
    /// Lines of all locations.
    pub lines: Vec<Lines>,
}

impl Default for Locations {
    fn default() -> Self {
        Self {
            mapping: vec![0],
            address: vec![0],
            folded: vec![false],
            line_ends: vec![0],
            lines: Vec::new(),
        }
    }
}

impl Locations {
    /// Number of locations, the root's included.
    pub fn count(&self) -> usize {
        self.mapping.len()
    }

    /// Lines of a location, innermost (inlined) function first.
    pub fn lines(&self, location: u32) -> &[Lines] {
        let at = location as usize;
        let start = if at == 0 {
            0
        } else {
            self.line_ends[at - 1] as usize
        };
        &self.lines[start..self.line_ends[at] as usize]
    }
}

/// A label of a sample: text, or number with unit when `text` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Label {
    /// String id.
    pub key: u32,
    /// String id; 0 = a number.
    pub text: u32,
    /// Number.
    pub number: i64,
    /// String id.
    pub unit: u32,
}

/// Everything that names a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbols {
    /// Strings.
    pub strings: Strings,
    /// Functions.
    pub functions: Vec<Function>,
    /// Mappings.
    pub mappings: Vec<Mapping>,
    /// Locations.
    pub locations: Locations,
    /// Parent of each stack node; always smaller than the node. Node 0 is the root, its own parent.
    pub parents: Vec<u32>,
    /// Location of each stack node; 0 for the root.
    pub node_locations: Vec<u32>,
    /// End of each label set in `labels`; set 0 is empty.
    pub label_set_ends: Vec<u32>,
    /// Labels of all sets.
    pub labels: Vec<Label>,
}

impl Default for Symbols {
    fn default() -> Self {
        Self {
            strings: Strings::default(),
            functions: Vec::new(),
            mappings: Vec::new(),
            locations: Locations::default(),
            parents: vec![0],
            node_locations: vec![0],
            label_set_ends: vec![0],
            labels: Vec::new(),
        }
    }
}

impl Symbols {
    /// Labels of a set.
    pub fn label_set(&self, id: u32) -> &[Label] {
        let at = id as usize;
        let start = if at == 0 {
            0
        } else {
            self.label_set_ends[at - 1] as usize
        };
        &self.labels[start..self.label_set_ends[at] as usize]
    }

    /// Heap bytes.
    pub fn heap_bytes(&self) -> usize {
        self.strings.bytes.len()
            + self.strings.ends.len() * 4
            + self.functions.len() * size_of::<Function>()
            + self.mappings.len() * size_of::<Mapping>()
            + self.locations.count() * 17
            + self.locations.lines.len() * size_of::<Lines>()
            + self.parents.len() * 8
            + self.label_set_ends.len() * 4
            + self.labels.len() * size_of::<Label>()
    }
}
