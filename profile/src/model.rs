//! The profile in columns: the central types of the crate.

use crate::strings::{StrId, Strings};

macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index_type!(
    /// Index into [`Profile::mappings`].
    MappingId
);
index_type!(
    /// Index into [`Profile::functions`].
    FunctionId
);
index_type!(
    /// Index into [`Profile::locations`].
    LocationId
);
index_type!(
    /// Index into [`Profile::stacks`].
    StackId
);
index_type!(
    /// Index into [`Profile::label_sets`]; 0 is the empty set.
    LabelSetId
);

/// Marks "no mapping" in [`Locations::mapping`].
pub const NO_MAPPING: u32 = u32::MAX;

/// A profile in columns. All references are indices into the tables of the same profile; what
/// [`decode`](crate::decode()), [`merge`](crate::merge()) and
/// [`ProfileBuilder`](crate::ProfileBuilder) return has no dangling one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Every string of the profile; id 0 is "".
    pub strings: Strings,
    /// What each value column means.
    pub sample_types: Vec<ValueType>,
    /// What [`period`](Self::period) counts.
    pub period_type: ValueType,
    /// Events between two samples, in units of `period_type`.
    pub period: i64,
    /// Start of the profile, nanoseconds since the Unix epoch; 0 when unknown.
    pub time_ns: i64,
    /// Length of the profile in nanoseconds; 0 when it is a snapshot.
    pub duration_ns: i64,
    /// Name of the value column to show first; empty means the last one.
    pub default_sample_type: StrId,
    /// Regular expression of frames to drop when shown, as pprof does.
    pub drop_frames: StrId,
    /// Regular expression of frames to keep although they match `drop_frames`.
    pub keep_frames: StrId,
    /// Where this kind of profile is documented.
    pub doc_url: StrId,
    /// Free text about the profile.
    pub comments: Vec<StrId>,
    /// Mapped binaries; the first is the main one.
    pub mappings: Vec<Mapping>,
    /// Functions, referred to by lines.
    pub functions: Vec<Function>,
    /// Addresses of code.
    pub locations: Locations,
    /// Lines of all locations; [`Locations::line_offsets`] cuts them.
    pub lines: Vec<Line>,
    /// Lists of location indices, leaf first.
    pub stacks: Lists,
    /// Sets of labels; set 0 is empty.
    pub label_sets: LabelSets,
    /// The samples.
    pub samples: Samples,
    /// Ids as the decoded file had them.
    pub source_ids: SourceIds,
}

/// A kind of value and its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValueType {
    /// Such as `cpu`.
    pub ty: StrId,
    /// Such as `nanoseconds`.
    pub unit: StrId,
}

/// A binary (or something like it) mapped into the profiled process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub limit: u64,
    /// Offset in the file of the first address.
    pub offset: u64,
    /// Path of the binary.
    pub file: StrId,
    /// Build id, in hexadecimal.
    pub build_id: StrId,
    /// All locations of this mapping carry functions.
    pub has_functions: bool,
    /// All locations of this mapping carry file names.
    pub has_filenames: bool,
    /// All locations of this mapping carry line numbers.
    pub has_line_numbers: bool,
    /// All locations of this mapping carry their inlined frames.
    pub has_inline_frames: bool,
}

/// A function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// Name for people, demangled.
    pub name: StrId,
    /// Name as the system knows it, mangled.
    pub system_name: StrId,
    /// Source file.
    pub filename: StrId,
    /// First line of the function in that file; 0 when unknown.
    pub start_line: i64,
}

/// One source line of a location. A location with several lines stands for inlined calls,
/// the innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Line number; 0 when unknown.
    pub line: i64,
    /// Column number; 0 when unknown.
    pub column: i64,
}

/// Locations in columns of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locations {
    /// Index of the mapping, or [`NO_MAPPING`].
    pub mapping: Vec<u32>,
    /// Address of the instruction; 0 when unknown.
    pub address: Vec<u64>,
    /// Several functions share this address by identical code folding.
    pub is_folded: Vec<bool>,
    /// Lines of location `i` are `line_offsets[i]..line_offsets[i + 1]` of [`Profile::lines`].
    pub line_offsets: Vec<u32>,
}

impl Default for Locations {
    fn default() -> Self {
        Locations {
            mapping: Vec::new(),
            address: Vec::new(),
            is_folded: Vec::new(),
            line_offsets: vec![0],
        }
    }
}

impl Locations {
    /// Number of locations.
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.address.is_empty()
    }
}

/// Lists of u32 behind each other: a row of `items` per list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// List `i` is `offsets[i]..offsets[i + 1]` of `items`.
    pub offsets: Vec<u32>,
    /// The items of all lists.
    pub items: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Self {
        Lists {
            offsets: vec![0],
            items: Vec::new(),
        }
    }
}

impl Lists {
    /// Number of lists.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A list; empty for an index past the end.
    #[inline]
    pub fn get(&self, index: usize) -> &[u32] {
        row(&self.offsets, &self.items, index)
    }

    /// Appends a list and returns its index.
    pub fn push(&mut self, items: &[u32]) -> u32 {
        self.items.extend_from_slice(items);
        self.offsets.push(self.items.len() as u32);
        self.len() as u32 - 1
    }
}

/// Sets of labels behind each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSets {
    /// Set `i` is `offsets[i]..offsets[i + 1]` of `labels`.
    pub offsets: Vec<u32>,
    /// The labels of all sets.
    pub labels: Vec<Label>,
}

impl Default for LabelSets {
    /// Holds the empty set, index 0.
    fn default() -> Self {
        LabelSets {
            offsets: vec![0, 0],
            labels: Vec::new(),
        }
    }
}

impl LabelSets {
    /// Number of sets, the empty one included.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Never: set 0 is the empty set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A set; empty for an index past the end.
    #[inline]
    pub fn get(&self, index: usize) -> &[Label] {
        row(&self.offsets, &self.labels, index)
    }
}

#[inline]
pub(crate) fn row<'a, T>(offsets: &[u32], items: &'a [T], index: usize) -> &'a [T] {
    match (offsets.get(index), offsets.get(index + 1)) {
        (Some(&start), Some(&end)) => items.get(start as usize..end as usize).unwrap_or_default(),
        _ => &[],
    }
}

/// A label of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The key. pprof allows a key several times in one set.
    pub key: StrId,
    /// The value.
    pub value: LabelValue,
}

/// Value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LabelValue {
    /// Text.
    Str(StrId),
    /// A number and its unit; an empty unit means none was given.
    Num {
        /// The number.
        value: i64,
        /// Its unit.
        unit: StrId,
    },
}

/// Samples in columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Index into [`Profile::stacks`].
    pub stack: Vec<u32>,
    /// Index into [`Profile::label_sets`].
    pub labels: Vec<u32>,
    /// Values row by row: number of samples × number of sample types.
    pub values: Vec<i64>,
}

impl Samples {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.stack.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.stack.is_empty()
    }
}

/// Ids of mappings, functions and locations as the decoded file had them, so that a file that is
/// decoded and encoded keeps them. An empty list means 1, 2, 3 and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceIds {
    /// Ids of [`Profile::mappings`].
    pub mappings: Vec<u64>,
    /// Ids of [`Profile::functions`].
    pub functions: Vec<u64>,
    /// Ids of [`Profile::locations`].
    pub locations: Vec<u64>,
}

/// One location, looked at across the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The mapping it lies in.
    pub mapping: Option<MappingId>,
    /// Address of the instruction; 0 when unknown.
    pub address: u64,
    /// Several functions share this address.
    pub is_folded: bool,
    /// Source lines, innermost inlined call first; empty when not symbolized.
    pub lines: &'a [Line],
}

/// One sample, looked at across the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Location indices, leaf first.
    pub stack: &'a [u32],
    /// Its labels.
    pub labels: &'a [Label],
    /// One value per sample type.
    pub values: &'a [i64],
}

impl Profile {
    /// Location number `index`; one without address and lines when there is no such location.
    #[inline]
    pub fn location(&self, index: usize) -> Location<'_> {
        let columns = &self.locations;
        let mapping = columns.mapping.get(index).copied().unwrap_or(NO_MAPPING);
        Location {
            mapping: (mapping != NO_MAPPING).then_some(MappingId(mapping)),
            address: columns.address.get(index).copied().unwrap_or(0),
            is_folded: columns.is_folded.get(index).copied().unwrap_or(false),
            lines: row(&columns.line_offsets, &self.lines, index),
        }
    }

    /// All samples in order.
    pub fn iter_samples(&self) -> impl ExactSizeIterator<Item = Sample<'_>> {
        (0..self.samples.len()).map(|index| self.sample(index))
    }

    /// Sample number `index`; an empty one when there is no such sample.
    #[inline]
    pub fn sample(&self, index: usize) -> Sample<'_> {
        let width = self.sample_types.len();
        let at = |column: &[u32]| column.get(index).map_or(usize::MAX - 1, |&i| i as usize);
        Sample {
            stack: self.stacks.get(at(&self.samples.stack)),
            labels: self.label_sets.get(at(&self.samples.labels)),
            values: self
                .samples
                .values
                .get(index * width..(index + 1) * width)
                .unwrap_or_default(),
        }
    }

    /// The value column that a name selects, by pprof's rules: no name means the default sample
    /// type, else the last column; a number is an index; `inuse_x` also finds `x`.
    pub fn value_index(&self, name: Option<&str>) -> Option<usize> {
        let named = |wanted: &[u8]| {
            let mut types = self.sample_types.iter();
            types.position(|t| self.strings.get(t.ty) == wanted)
        };
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let default = self.strings.get(self.default_sample_type);
            let last = self.sample_types.len().checked_sub(1);
            return named(default).filter(|_| !default.is_empty()).or(last);
        };
        if let Ok(index) = name.parse::<usize>() {
            return (index < self.sample_types.len()).then_some(index);
        }
        let short = name.strip_prefix("inuse_").unwrap_or(name);
        self.sample_types.iter().position(|t| {
            let ty = self.strings.get(t.ty);
            ty == name.as_bytes() || ty == short.as_bytes()
        })
    }

    /// Sum of a value column; wraps around like pprof's when it leaves 64 bits. 0 for a column
    /// that does not exist.
    pub fn total(&self, value_index: usize) -> i64 {
        self.column(value_index).fold(0, i64::wrapping_add)
    }

    /// The values of one column, a value per sample; nothing for a column that does not exist.
    pub fn column(&self, value_index: usize) -> impl Iterator<Item = i64> + '_ {
        let width = self.sample_types.len();
        let rows = self.samples.values.chunks_exact(width.max(1));
        rows.filter_map(move |row| row.get(value_index).copied())
    }
}
