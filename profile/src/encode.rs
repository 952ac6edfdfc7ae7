//! Writes pprof's protobuf.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::fields as f;
use crate::model::{Label, LabelValue, NO_MAPPING, Profile, ValueType};

impl Profile {
    /// The profile as uncompressed pprof protobuf.
    pub fn to_pprof(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_size_guess());
        for ty in &self.sample_types {
            put_value_type(&mut out, f::SAMPLE_TYPE, ty);
        }
        self.put_samples(&mut out);
        self.put_mappings(&mut out);
        self.put_locations(&mut out);
        self.put_functions(&mut out);
        for string in self.strings.iter() {
            put_key(&mut out, f::STRING_TABLE, f::BYTES);
            put_varint(&mut out, string.len() as u64);
            out.extend_from_slice(string);
        }
        self.put_header(&mut out);
        out
    }

    /// The profile as gzipped pprof protobuf, at the compression level that Go uses (1).
    pub fn to_pprof_gz(&self) -> Vec<u8> {
        let raw = self.to_pprof();
        let mut gzip = GzEncoder::new(Vec::with_capacity(raw.len() / 3 + 64), Compression::fast());
        // Writing to a Vec does not fail.
        let _ = gzip.write_all(&raw);
        gzip.finish().unwrap_or_default()
    }

    fn encoded_size_guess(&self) -> usize {
        let samples = self.samples.len() * 12 + self.samples.values.len() * 4;
        let frames = self.stacks.items.len() * 2;
        let tables = self.locations.len() * 32 + self.functions.len() * 16;
        let strings = self.strings.byte_len() + self.strings.len() * 3;
        samples + frames + tables + strings + 256
    }

    fn put_samples(&self, out: &mut Vec<u8>) {
        let ids = &self.source_ids.locations;
        let mut stack_ids: Vec<u64> = Vec::new();
        let mut labels = Vec::new();
        for sample in self.iter_samples() {
            stack_ids.clear();
            if ids.is_empty() {
                stack_ids.extend(sample.stack.iter().map(|&i| u64::from(i) + 1));
            } else {
                stack_ids.extend(sample.stack.iter().map(|&i| source_id(ids, i)));
            }
            labels.clear();
            for label in sample.labels {
                put_label(&mut labels, label);
            }
            let stack_size: usize = stack_ids.iter().map(|&id| varint_len(id)).sum();
            let value_size: usize = sample.values.iter().map(|&v| varint_len(v as u64)).sum();
            let size = packed_len(stack_size) + packed_len(value_size) + labels.len();
            put_key(out, f::SAMPLE, f::BYTES);
            put_varint(out, size as u64);
            put_packed(
                out,
                f::SAMPLE_LOCATION,
                stack_size,
                stack_ids.iter().copied(),
            );
            let values = sample.values.iter().map(|&v| v as u64);
            put_packed(out, f::SAMPLE_VALUE, value_size, values);
            out.extend_from_slice(&labels);
        }
    }

    fn put_mappings(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        for (i, mapping) in self.mappings.iter().enumerate() {
            body.clear();
            let id = source_id(&self.source_ids.mappings, i as u32);
            put_uint(&mut body, f::MAPPING_ID, id);
            put_uint(&mut body, f::MAPPING_START, mapping.start);
            put_uint(&mut body, f::MAPPING_LIMIT, mapping.limit);
            put_uint(&mut body, f::MAPPING_OFFSET, mapping.offset);
            put_uint(&mut body, f::MAPPING_FILE, mapping.file.0.into());
            put_uint(&mut body, f::MAPPING_BUILD_ID, mapping.build_id.0.into());
            put_uint(
                &mut body,
                f::MAPPING_HAS_FUNCTIONS,
                mapping.has_functions.into(),
            );
            put_uint(
                &mut body,
                f::MAPPING_HAS_FILENAMES,
                mapping.has_filenames.into(),
            );
            put_uint(
                &mut body,
                f::MAPPING_HAS_LINE_NUMBERS,
                mapping.has_line_numbers.into(),
            );
            put_uint(
                &mut body,
                f::MAPPING_HAS_INLINE_FRAMES,
                mapping.has_inline_frames.into(),
            );
            put_message(out, f::MAPPING, &body);
        }
    }

    fn put_locations(&self, out: &mut Vec<u8>) {
        let (mut body, mut line_body) = (Vec::new(), Vec::new());
        for i in 0..self.locations.len() {
            let location = self.location(i);
            body.clear();
            let id = source_id(&self.source_ids.locations, i as u32);
            put_uint(&mut body, f::LOCATION_ID, id);
            let mapping = self.locations.mapping[i];
            if mapping != NO_MAPPING {
                let id = source_id(&self.source_ids.mappings, mapping);
                put_uint(&mut body, f::LOCATION_MAPPING, id);
            }
            put_uint(&mut body, f::LOCATION_ADDRESS, location.address);
            for line in location.lines {
                line_body.clear();
                let id = source_id(&self.source_ids.functions, line.function.0);
                put_uint(&mut line_body, f::LINE_FUNCTION, id);
                put_uint(&mut line_body, f::LINE_LINE, line.line as u64);
                put_uint(&mut line_body, f::LINE_COLUMN, line.column as u64);
                put_message(&mut body, f::LOCATION_LINE, &line_body);
            }
            put_uint(&mut body, f::LOCATION_IS_FOLDED, location.is_folded.into());
            put_message(out, f::LOCATION, &body);
        }
    }

    fn put_functions(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        for (i, function) in self.functions.iter().enumerate() {
            body.clear();
            let id = source_id(&self.source_ids.functions, i as u32);
            put_uint(&mut body, f::FUNCTION_ID, id);
            put_uint(&mut body, f::FUNCTION_NAME, function.name.0.into());
            put_uint(
                &mut body,
                f::FUNCTION_SYSTEM_NAME,
                function.system_name.0.into(),
            );
            put_uint(&mut body, f::FUNCTION_FILENAME, function.filename.0.into());
            put_uint(
                &mut body,
                f::FUNCTION_START_LINE,
                function.start_line as u64,
            );
            put_message(out, f::FUNCTION, &body);
        }
    }

    fn put_header(&self, out: &mut Vec<u8>) {
        put_uint(out, f::DROP_FRAMES, self.drop_frames.0.into());
        put_uint(out, f::KEEP_FRAMES, self.keep_frames.0.into());
        put_uint(out, f::TIME_NANOS, self.time_ns as u64);
        put_uint(out, f::DURATION_NANOS, self.duration_ns as u64);
        if self.period_type != ValueType::default() {
            put_value_type(out, f::PERIOD_TYPE, &self.period_type);
        }
        put_uint(out, f::PERIOD, self.period as u64);
        let size = self.comments.iter().map(|c| varint_len(c.0.into())).sum();
        put_packed(
            out,
            f::COMMENT,
            size,
            self.comments.iter().map(|c| c.0.into()),
        );
        put_uint(
            out,
            f::DEFAULT_SAMPLE_TYPE,
            self.default_sample_type.0.into(),
        );
        put_uint(out, f::DOC_URL, self.doc_url.0.into());
    }
}

/// The id to write for index `i`: the file's own, or 1, 2, 3 and so on.
#[inline]
fn source_id(ids: &[u64], i: u32) -> u64 {
    ids.get(i as usize).copied().unwrap_or(u64::from(i) + 1)
}

fn put_value_type(out: &mut Vec<u8>, field: u64, ty: &ValueType) {
    let mut body = Vec::with_capacity(12);
    put_uint(&mut body, f::VALUE_TYPE_TYPE, ty.ty.0.into());
    put_uint(&mut body, f::VALUE_TYPE_UNIT, ty.unit.0.into());
    put_message(out, field, &body);
}

fn put_label(out: &mut Vec<u8>, label: &Label) {
    let mut body = Vec::with_capacity(24);
    put_uint(&mut body, f::LABEL_KEY, label.key.0.into());
    match label.value {
        LabelValue::Str(value) => put_uint(&mut body, f::LABEL_STR, value.0.into()),
        LabelValue::Num { value, unit } => {
            put_uint(&mut body, f::LABEL_NUM, value as u64);
            put_uint(&mut body, f::LABEL_UNIT, unit.0.into());
        }
    }
    put_message(out, f::SAMPLE_LABEL, &body);
}

#[inline]
fn put_key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    // Fields of pprof are below 16: one byte.
    out.push((field << 3 | wire_type) as u8);
}

#[inline]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn put_uint(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        put_key(out, field, f::VARINT);
        put_varint(out, value);
    }
}

fn put_message(out: &mut Vec<u8>, field: u64, body: &[u8]) {
    put_key(out, field, f::BYTES);
    put_varint(out, body.len() as u64);
    out.extend_from_slice(body);
}

/// Always packed, also for one or two numbers: it costs at most a byte, and sloppy readers that
/// know only one of the two forms know this one.
#[inline]
fn put_packed(out: &mut Vec<u8>, field: u64, size: usize, values: impl Iterator<Item = u64>) {
    if size == 0 {
        return;
    }
    put_key(out, field, f::BYTES);
    put_varint(out, size as u64);
    for value in values {
        put_varint(out, value);
    }
}

#[inline]
fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
fn packed_len(size: usize) -> usize {
    if size == 0 {
        return 0;
    }
    1 + varint_len(size as u64) + size
}
