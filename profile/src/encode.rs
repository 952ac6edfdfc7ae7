//! Writes pprof's protobuf.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::fields as f;
use crate::model::{Label, LabelValue, Profile, ValueType};

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
            out.push(key(f::STRING_TABLE, f::BYTES));
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
        for sample in self.iter_samples() {
            let start = begin(out, f::SAMPLE);
            if ids.is_empty() {
                let stack = sample.stack.iter().map(|&i| u64::from(i) + 1);
                put_packed(out, f::SAMPLE_LOCATION, stack);
            } else {
                let stack = sample.stack.iter().map(|&i| source_id(ids, i));
                put_packed(out, f::SAMPLE_LOCATION, stack);
            }
            let values = sample.values.iter().map(|&value| value as u64);
            put_packed(out, f::SAMPLE_VALUE, values);
            for label in sample.labels {
                put_label(out, label);
            }
            end(out, start);
        }
    }

    fn put_mappings(&self, out: &mut Vec<u8>) {
        for (i, mapping) in self.mappings.iter().enumerate() {
            let start = begin(out, f::MAPPING);
            let id = source_id(&self.source_ids.mappings, i as u32);
            put_uint(out, f::MAPPING_ID, id);
            put_uint(out, f::MAPPING_START, mapping.start);
            put_uint(out, f::MAPPING_LIMIT, mapping.limit);
            put_uint(out, f::MAPPING_OFFSET, mapping.offset);
            put_uint(out, f::MAPPING_FILE, mapping.file.0.into());
            put_uint(out, f::MAPPING_BUILD_ID, mapping.build_id.0.into());
            put_uint(out, f::MAPPING_HAS_FUNCTIONS, mapping.has_functions.into());
            put_uint(out, f::MAPPING_HAS_FILENAMES, mapping.has_filenames.into());
            put_uint(
                out,
                f::MAPPING_HAS_LINE_NUMBERS,
                mapping.has_line_numbers.into(),
            );
            put_uint(
                out,
                f::MAPPING_HAS_INLINE_FRAMES,
                mapping.has_inline_frames.into(),
            );
            end(out, start);
        }
    }

    fn put_locations(&self, out: &mut Vec<u8>) {
        for i in 0..self.locations.len() {
            let location = self.location(i);
            let start = begin(out, f::LOCATION);
            let id = source_id(&self.source_ids.locations, i as u32);
            put_uint(out, f::LOCATION_ID, id);
            if let Some(mapping) = location.mapping {
                let id = source_id(&self.source_ids.mappings, mapping.0);
                put_uint(out, f::LOCATION_MAPPING, id);
            }
            put_uint(out, f::LOCATION_ADDRESS, location.address);
            for line in location.lines {
                let start = begin(out, f::LOCATION_LINE);
                let id = source_id(&self.source_ids.functions, line.function.0);
                put_uint(out, f::LINE_FUNCTION, id);
                put_uint(out, f::LINE_LINE, line.line as u64);
                put_uint(out, f::LINE_COLUMN, line.column as u64);
                end(out, start);
            }
            put_uint(out, f::LOCATION_IS_FOLDED, location.is_folded.into());
            end(out, start);
        }
    }

    fn put_functions(&self, out: &mut Vec<u8>) {
        for (i, function) in self.functions.iter().enumerate() {
            let start = begin(out, f::FUNCTION);
            let id = source_id(&self.source_ids.functions, i as u32);
            put_uint(out, f::FUNCTION_ID, id);
            put_uint(out, f::FUNCTION_NAME, function.name.0.into());
            put_uint(out, f::FUNCTION_SYSTEM_NAME, function.system_name.0.into());
            put_uint(out, f::FUNCTION_FILENAME, function.filename.0.into());
            put_uint(out, f::FUNCTION_START_LINE, function.start_line as u64);
            end(out, start);
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
        put_packed(out, f::COMMENT, self.comments.iter().map(|c| c.0.into()));
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
    let start = begin(out, field);
    put_uint(out, f::VALUE_TYPE_TYPE, ty.ty.0.into());
    put_uint(out, f::VALUE_TYPE_UNIT, ty.unit.0.into());
    end(out, start);
}

fn put_label(out: &mut Vec<u8>, label: &Label) {
    let start = begin(out, f::SAMPLE_LABEL);
    put_uint(out, f::LABEL_KEY, label.key.0.into());
    match label.value {
        LabelValue::Str(value) => put_uint(out, f::LABEL_STR, value.0.into()),
        LabelValue::Num { value, unit } => {
            put_uint(out, f::LABEL_NUM, value as u64);
            put_uint(out, f::LABEL_UNIT, unit.0.into());
        }
    }
    end(out, start);
}

/// Starts a length-delimited field; returns where its body starts, for [`end`].
#[inline]
pub(crate) fn begin(out: &mut Vec<u8>, field: u64) -> usize {
    out.extend_from_slice(&[key(field, f::BYTES), 0]);
    out.len()
}

/// Puts the length before the body. One byte was left for it; a longer body moves.
#[inline]
pub(crate) fn end(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    if len < 0x80 {
        out[start - 1] = len as u8;
    } else {
        end_long(out, start, len);
    }
}

fn end_long(out: &mut Vec<u8>, start: usize, len: usize) {
    put_varint(out, len as u64);
    let len_size = out.len() - start - len;
    // The length, for now behind the body, goes before it: over the byte left for it, the body
    // moves by the rest.
    let mut length = [0; 10];
    length[..len_size].copy_from_slice(&out[start + len..]);
    out.truncate(start + len + len_size - 1);
    out.copy_within(start..start + len, start + len_size - 1);
    out[start - 1..start - 1 + len_size].copy_from_slice(&length[..len_size]);
}

#[inline]
pub(crate) fn key(field: u64, wire_type: u64) -> u8 {
    // Fields of pprof are below 16: one byte.
    (field << 3 | wire_type) as u8
}

#[inline]
pub(crate) fn put_uint(out: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        out.push(key(field, f::VARINT));
        put_varint(out, value);
    }
}

/// Always packed, also for one or two numbers: it costs at most a byte, and sloppy readers that
/// know only one of the two forms know this one.
#[inline]
pub(crate) fn put_packed(
    out: &mut Vec<u8>,
    field: u64,
    values: impl ExactSizeIterator<Item = u64>,
) {
    if values.len() == 0 {
        return;
    }
    let start = begin(out, field);
    for value in values {
        put_varint(out, value);
    }
    end(out, start);
}

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else if value < 1 << 56 {
        // Eight bytes are written at once and the surplus taken back.
        let len = varint_len(value);
        let more = 0x8080_8080_8080_8080 & ((1 << (8 * (len - 1))) - 1);
        let bytes = (scatter(value) | more).to_le_bytes();
        let before = out.len();
        out.extend_from_slice(&bytes);
        out.truncate(before + len);
    } else {
        put_long_varint(out, value);
    }
}

#[cold]
fn put_long_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Spreads the bits of a number below 2^56, seven to a byte.
#[inline]
fn scatter(value: u64) -> u64 {
    let word = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x0fff_c000_0fff_c000) << 2;
    (word & 0x007f_007f_007f_007f) | (word & 0x3f80_3f80_3f80_3f80) << 1
}

#[inline]
fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    (bits * 9 + 64) / 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_written_as_seven_bits_a_byte() {
        for bits in 0..64 {
            for value in [
                1u64 << bits,
                (1u64 << bits) - 1,
                u64::MAX >> bits,
                0x5a5a_a5a5 << bits,
            ] {
                let (mut ours, mut plain) = (Vec::new(), Vec::new());
                put_varint(&mut ours, value);
                put_long_varint(&mut plain, value);
                assert_eq!(ours, plain, "{value:#x}");
                assert_eq!(varint_len(value), plain.len(), "{value:#x}");
            }
        }
    }

    #[test]
    fn lengths_of_one_to_three_bytes_stand_before_their_bodies() {
        for len in [0, 1, 127, 128, 300, 16_383, 16_384, 70_000] {
            let body: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut out = vec![9];
            let start = begin(&mut out, f::SAMPLE);
            out.extend_from_slice(&body);
            end(&mut out, start);
            let mut wanted = vec![9, key(f::SAMPLE, f::BYTES)];
            put_long_varint(&mut wanted, len);
            wanted.extend_from_slice(&body);
            assert_eq!(out, wanted, "{len}");
        }
    }
}
