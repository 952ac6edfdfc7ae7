//! Writes OTLP profiles (`opentelemetry.proto.collector.profiles.v1development`, as of
//! opentelemetry-proto 1.11).
//!
//! One profile with several value columns becomes several OTLP profiles over one dictionary, since
//! OTLP has one type a profile; but time that is a count times the period goes as the count alone. Entry 0 of each table is the empty one, so indices move up by one.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::encode::{begin, end, key, put_packed, put_uint, put_varint};
use crate::fields::BYTES;
use crate::model::{Label, LabelValue, Profile, ValueType};

const FIXED64: u64 = 1;

impl Profile {
    /// The body of an OTLP export request: the profile, and whose it is by the attributes of its
    /// resource, such as `service.name`. Strings that are not UTF-8 get replacement characters.
    pub fn to_otlp(&self, resource: &[(&str, &str)]) -> Vec<u8> {
        let tables = Tables::of(self);
        let mut out = Vec::new();
        let start = begin(&mut out, 1);
        let body = begin(&mut out, 1);
        for (name, value) in resource {
            let attribute = begin(&mut out, 1);
            put_text(&mut out, 1, name);
            put_text_value(&mut out, 2, value);
            end(&mut out, attribute);
        }
        end(&mut out, body);
        let scope = begin(&mut out, 2);
        let name = begin(&mut out, 1);
        put_text(&mut out, 1, "pilotlight");
        put_text(&mut out, 2, env!("CARGO_PKG_VERSION"));
        end(&mut out, name);
        for column in self.columns() {
            self.put_column(&mut out, &tables, column);
        }
        end(&mut out, scope);
        end(&mut out, start);
        let start = begin(&mut out, 2);
        tables.put(&mut out);
        end(&mut out, start);
        out
    }

    /// As [`Profile::to_otlp`], gzipped.
    pub fn to_otlp_gz(&self, resource: &[(&str, &str)]) -> Vec<u8> {
        let raw = self.to_otlp(resource);
        let mut gzip = GzEncoder::new(Vec::with_capacity(raw.len() / 3 + 64), Compression::fast());
        // Writing to a Vec does not fail.
        let _ = gzip.write_all(&raw);
        gzip.finish().unwrap_or_default()
    }

    /// The value columns, the one to show first in front: viewers take the first profile.
    ///
    /// Time that is a count times the period goes as the count: readers multiply, as they do for
    /// OpenTelemetry's own profiler, and would add both up.
    fn columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..self.sample_types.len()).collect();
        if let Some(first) = self.value_index(None) {
            columns.retain(|&column| column != first);
            columns.insert(0, first);
        }
        let counts = columns.clone();
        columns.retain(|&time| !counts.iter().any(|&count| self.is_counted(time, count)));
        columns
    }

    /// Every value of the column `time`, of the type of the period, is `count` times the period.
    fn is_counted(&self, time: usize, count: usize) -> bool {
        let ty = |column: usize| self.sample_types.get(column).copied().unwrap_or_default();
        let is_counted = |values: &[i64]| match (values.get(time), values.get(count)) {
            (Some(&time), Some(&count)) => time == count.wrapping_mul(self.period),
            _ => false,
        };
        time != count
            && self.period > 0
            && ty(time) == self.period_type
            && self.strings.get(ty(count).unit) == b"count"
            && self.iter_samples().all(|sample| is_counted(sample.values))
    }

    fn put_column(&self, out: &mut Vec<u8>, tables: &Tables<'_>, column: usize) {
        let start = begin(out, 2);
        let types = self.sample_types.get(column).copied();
        put_value_type(out, 1, &types.unwrap_or_default());
        for (index, sample) in self.iter_samples().enumerate() {
            let value = sample.values.get(column).copied().unwrap_or(0);
            if value == 0 {
                continue;
            }
            let start = begin(out, 2);
            let stack = self.samples.stack.get(index).copied().unwrap_or(0);
            put_uint(out, 1, u64::from(stack) + 1);
            let labels = self.samples.labels.get(index).copied().unwrap_or(0) as usize;
            let attributes = tables.attributes_of_set.get(labels);
            let attributes = attributes.map_or(&[][..], Vec::as_slice);
            put_packed(out, 2, attributes.iter().map(|&at| at.into()));
            put_packed(out, 4, [value as u64].into_iter());
            end(out, start);
        }
        put_fixed64(out, 3, self.time_ns as u64);
        put_uint(out, 4, self.duration_ns as u64);
        if self.period_type != ValueType::default() {
            put_value_type(out, 5, &self.period_type);
            put_uint(out, 6, self.period as u64);
        }
        end(out, start);
    }
}

/// The dictionary.
struct Tables<'a> {
    profile: &'a Profile,
    /// Strings of the profile, then those that attributes need.
    extra_strings: Vec<&'static str>,
    attributes: Vec<Attribute>,
    /// For each label set its attributes.
    attributes_of_set: Vec<Vec<u32>>,
    /// Attribute of the build id of each mapping; 0 where there is none.
    build_ids: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Attribute {
    key: u32,
    value: LabelValue,
}

impl<'a> Tables<'a> {
    fn of(profile: &'a Profile) -> Tables<'a> {
        let mut tables = Tables {
            profile,
            extra_strings: Vec::new(),
            attributes: Vec::new(),
            attributes_of_set: Vec::new(),
            build_ids: Vec::new(),
        };
        let mut known = HashMap::new();
        for set in 0..profile.label_sets.len() {
            let labels = profile.label_sets.get(set);
            let attributes = labels
                .iter()
                // OTLP allows a key once.
                .enumerate()
                .filter(|(at, label)| labels[..*at].iter().all(|l| l.key != label.key))
                .map(|(_, label)| tables.attribute(&mut known, Attribute::of(label)))
                .collect();
            tables.attributes_of_set.push(attributes);
        }
        if profile.mappings.iter().any(|m| m.build_id.0 != 0) {
            let key = profile.strings.len().max(1) as u32;
            tables.extra_strings.push("process.executable.build_id.gnu");
            for mapping in &profile.mappings {
                let value = LabelValue::Str(mapping.build_id);
                let attribute = Attribute { key, value };
                let at = match mapping.build_id.0 {
                    0 => 0,
                    _ => tables.attribute(&mut known, attribute),
                };
                tables.build_ids.push(at);
            }
        }
        tables
    }

    fn attribute(&mut self, known: &mut HashMap<Attribute, u32>, attribute: Attribute) -> u32 {
        *known.entry(attribute).or_insert_with(|| {
            self.attributes.push(attribute);
            self.attributes.len() as u32
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.put_mappings(out);
        self.put_locations(out);
        self.put_functions(out);
        put_no_link(out);
        if self.profile.strings.is_empty() {
            put_text(out, 5, "");
        }
        for string in self.profile.strings.iter() {
            put_text(out, 5, &String::from_utf8_lossy(string));
        }
        for string in &self.extra_strings {
            put_text(out, 5, string);
        }
        self.put_attributes(out);
        put_empty(out, 7);
        for index in 0..self.profile.stacks.len() {
            let start = begin(out, 7);
            let stack = self.profile.stacks.get(index).iter();
            put_packed(out, 1, stack.map(|&location| u64::from(location) + 1));
            end(out, start);
        }
    }

    fn put_mappings(&self, out: &mut Vec<u8>) {
        put_empty(out, 1);
        for (index, mapping) in self.profile.mappings.iter().enumerate() {
            let start = begin(out, 1);
            put_uint(out, 1, mapping.start);
            put_uint(out, 2, mapping.limit);
            put_uint(out, 3, mapping.offset);
            put_uint(out, 4, mapping.file.0.into());
            let build_id = self.build_ids.get(index).copied().filter(|&at| at != 0);
            put_packed(out, 5, build_id.map(u64::from).as_slice().iter().copied());
            end(out, start);
        }
    }

    fn put_locations(&self, out: &mut Vec<u8>) {
        put_empty(out, 2);
        for index in 0..self.profile.locations.len() {
            let location = self.profile.location(index);
            let start = begin(out, 2);
            put_uint(out, 1, location.mapping.map_or(0, |m| u64::from(m.0) + 1));
            put_uint(out, 2, location.address);
            for line in location.lines {
                let start = begin(out, 3);
                put_uint(out, 1, u64::from(line.function.0) + 1);
                put_uint(out, 2, line.line as u64);
                put_uint(out, 3, line.column as u64);
                end(out, start);
            }
            end(out, start);
        }
    }

    fn put_functions(&self, out: &mut Vec<u8>) {
        put_empty(out, 3);
        for function in &self.profile.functions {
            let start = begin(out, 3);
            put_uint(out, 1, function.name.0.into());
            put_uint(out, 2, function.system_name.0.into());
            put_uint(out, 3, function.filename.0.into());
            put_uint(out, 4, function.start_line as u64);
            end(out, start);
        }
    }

    fn put_attributes(&self, out: &mut Vec<u8>) {
        put_empty(out, 6);
        for attribute in &self.attributes {
            let start = begin(out, 6);
            put_uint(out, 1, attribute.key.into());
            match attribute.value {
                LabelValue::Str(text) => {
                    put_text_value(out, 2, &self.profile.strings.text(text));
                }
                LabelValue::Num { value, unit } => {
                    let body = begin(out, 2);
                    // An AnyValue keeps a zero: it says which kind of value it is.
                    out.push(key(3, 0));
                    put_varint(out, value as u64);
                    end(out, body);
                    put_uint(out, 3, unit.0.into());
                }
            }
            end(out, start);
        }
    }
}

impl Attribute {
    fn of(label: &Label) -> Attribute {
        Attribute {
            key: label.key.0,
            value: label.value,
        }
    }
}

fn put_value_type(out: &mut Vec<u8>, field: u64, ty: &ValueType) {
    let start = begin(out, field);
    put_uint(out, 1, ty.ty.0.into());
    put_uint(out, 2, ty.unit.0.into());
    end(out, start);
}

/// The entry 0 of a table.
fn put_empty(out: &mut Vec<u8>, field: u64) {
    let start = begin(out, field);
    end(out, start);
}

/// The link that is none, in full length for readers that insist on it.
fn put_no_link(out: &mut Vec<u8>) {
    let start = begin(out, 4);
    put_text(out, 1, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    put_text(out, 2, "\0\0\0\0\0\0\0\0");
    end(out, start);
}

/// Also where it is empty: entry 0 of the string table is.
fn put_text(out: &mut Vec<u8>, field: u64, text: &str) {
    out.push(key(field, BYTES));
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// An AnyValue that is text.
fn put_text_value(out: &mut Vec<u8>, field: u64, text: &str) {
    let start = begin(out, field);
    put_text(out, 1, text);
    end(out, start);
}

fn put_fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    out.push(key(field, FIXED64));
    out.extend_from_slice(&value.to_le_bytes());
}
