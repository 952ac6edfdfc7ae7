//! One pass over the protobuf, into columns.

use crate::error::DecodeError;
use crate::fields as f;
use crate::limits::Limits;
use crate::model::{Function, FunctionId, Label, LabelValue, Line, Mapping};

use super::columns::{Census, Columns, passed};
use super::wire::{Fault, Reader};

impl Columns {
    pub fn parse(raw: &[u8], limits: &Limits) -> Result<Columns, Fault> {
        let census = Census::take(raw, limits)?;
        let mut columns = Columns::with_capacity(&census, limits);
        let mut reader = Reader::new(raw);
        while reader.more()? {
            let key = reader.varint()?;
            match key {
                KEY_SAMPLE => columns.sample(reader.message()?, limits)?,
                KEY_LOCATION => columns.location(reader.message()?, limits)?,
                KEY_FUNCTION => columns.function(reader.message()?)?,
                KEY_STRING => columns.string(reader.message()?)?,
                _ => columns.rare(key, &mut reader, limits)?,
            }
        }
        Ok(columns)
    }

    #[inline(never)]
    fn sample(&mut self, mut body: Reader<'_>, limits: &Limits) -> Result<(), Fault> {
        let first_value = self.values.all.len();
        let first_label = self.label_sets.labels.len();
        let first_frame = self.stacks.items.len();
        while body.more()? {
            let key = body.varint()?;
            if key == KEY_LOCATIONS_PACKED {
                self.frames(body.message()?, first_frame, limits)?;
            } else if key == KEY_VALUES_PACKED {
                self.sample_values(body.message()?, first_value, limits)?;
            } else if key == KEY_LABEL {
                self.label(body.message()?, limits)?;
            } else if key == KEY_VALUE_UNPACKED {
                let value = body.varint()? as i64;
                self.sample_value(value, body.pos(), first_value, limits)?;
            } else if key == KEY_LOCATION_UNPACKED {
                let id = body.varint()?;
                self.frame(id, body.pos(), first_frame, limits)?;
            } else {
                body = body.past_unknown(key, f::SAMPLE_LABEL)?;
            }
        }
        let frames = self.stacks.items.len();
        if frames as u64 > limits.stack_frames {
            return Err(passed("stack_frames", limits.stack_frames, body.pos()));
        }
        if self.values.all.len() as u64 > limits.values {
            return Err(passed("values", limits.values, body.pos()));
        }
        let sample = self.sample_labels.len();
        self.stacks.offsets.push(frames as u32);
        self.values.end_sample(sample, first_value);
        self.end_label_set(first_label);
        Ok(())
    }

    /// A packed list of location ids.
    #[inline]
    fn frames(&mut self, body: Reader<'_>, first: usize, limits: &Limits) -> Result<(), Fault> {
        // A number takes at most ten bytes: what is longer than this is too deep for certain.
        if body.left() as u64 > limits.stack_depth.saturating_mul(10) {
            return Err(passed("stack_depth", limits.stack_depth, body.pos()));
        }
        let (ids, offset) = (&mut self.location_ids, body.pos());
        body.packed(&mut self.stacks.items, |id| ids.reference(id, offset))?;
        self.check_depth(first, offset, limits)
    }

    #[inline(always)]
    fn check_depth(&self, first: usize, offset: usize, limits: &Limits) -> Result<(), Fault> {
        if (self.stacks.items.len() - first) as u64 > limits.stack_depth {
            return Err(passed("stack_depth", limits.stack_depth, offset));
        }
        Ok(())
    }

    #[inline]
    fn frame(
        &mut self,
        id: u64,
        offset: usize,
        first: usize,
        limits: &Limits,
    ) -> Result<(), Fault> {
        let reference = self.location_ids.reference(id, offset)?;
        self.stacks.items.push(reference);
        self.check_depth(first, offset, limits)
    }

    #[inline]
    fn sample_values(
        &mut self,
        mut body: Reader<'_>,
        first: usize,
        limits: &Limits,
    ) -> Result<(), Fault> {
        while body.more()? {
            let value = body.varint()? as i64;
            self.sample_value(value, body.pos(), first, limits)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn sample_value(
        &mut self,
        value: i64,
        offset: usize,
        first: usize,
        limits: &Limits,
    ) -> Result<(), Fault> {
        if (self.values.all.len() - first) as u64 >= limits.sample_types {
            return Err(passed("sample_types", limits.sample_types, offset));
        }
        self.values.all.push(value);
        Ok(())
    }

    #[inline(never)]
    fn label(&mut self, mut body: Reader<'_>, limits: &Limits) -> Result<(), Fault> {
        let (mut key_index, mut text, mut number, mut unit) = (0, 0, 0, 0);
        while body.more()? {
            let key = body.varint()?;
            if key & 7 != f::VARINT {
                body = body.past_unknown(key, f::LABEL_UNIT)?;
                continue;
            }
            let value = body.varint()?;
            match key >> 3 {
                1 => key_index = value,
                2 => text = value,
                3 => number = value as i64,
                4 => unit = value,
                _ => {}
            }
        }
        // As google/pprof: text hides the number, and only what is kept is looked up.
        let check = &mut self.string_check;
        let key = check.note(key_index, body.pos());
        let value = if text != 0 {
            LabelValue::Str(check.note(text, body.pos()))
        } else if number != 0 || unit != 0 {
            LabelValue::Num {
                value: number,
                unit: check.note(unit, body.pos()),
            }
        } else {
            self.empty_labels += 1;
            return Ok(());
        };
        if self.label_sets.labels.len() as u64 >= limits.labels {
            return Err(passed("labels", limits.labels, body.pos()));
        }
        self.label_sets.labels.push(Label { key, value });
        Ok(())
    }

    /// Gives the sample the labels since `first`; repeats of the sample before share its set.
    #[inline(always)]
    fn end_label_set(&mut self, first: usize) {
        let sets = &mut self.label_sets;
        if sets.labels.len() == first {
            self.sample_labels.push(0);
            return;
        }
        let last = sets.len() - 1;
        let (known, new) = sets.labels.split_at(first);
        let before = &known[sets.offsets[last] as usize..];
        if before == new {
            sets.labels.truncate(first);
            self.sample_labels.push(last as u32);
        } else {
            sets.offsets.push(sets.labels.len() as u32);
            self.sample_labels.push(last as u32 + 1);
        }
    }

    #[inline(never)]
    fn location(&mut self, mut body: Reader<'_>, limits: &Limits) -> Result<(), Fault> {
        let (mut id, mut mapping, mut address, mut is_folded) = (0, 0, 0, false);
        while body.more()? {
            let key = body.varint()?;
            if key == KEY_LINE {
                self.line(body.message()?, limits)?;
                continue;
            }
            if key & 7 != f::VARINT {
                body = body.past_unknown(key, f::LOCATION_IS_FOLDED)?;
                continue;
            }
            let value = body.varint()?;
            match key >> 3 {
                f::LOCATION_ID => id = value,
                f::LOCATION_MAPPING => mapping = value,
                f::LOCATION_ADDRESS => address = value,
                f::LOCATION_LINE => return Err(body.mismatch()),
                f::LOCATION_IS_FOLDED => is_folded = value != 0,
                _ => {}
            }
        }
        self.location_ids.push(id);
        let mapping = self.mapping_ids.reference(mapping, body.pos())?;
        self.location_mapping.push(mapping);
        self.location_address.push(address);
        self.location_is_folded.push(is_folded);
        self.line_offsets.push(self.lines.len() as u32);
        Ok(())
    }

    #[inline]
    fn line(&mut self, mut body: Reader<'_>, limits: &Limits) -> Result<(), Fault> {
        let (mut function, mut line, mut column) = (0, 0, 0);
        while body.more()? {
            let key = body.varint()?;
            if key & 7 != f::VARINT {
                body = body.past_unknown(key, f::LINE_COLUMN)?;
                continue;
            }
            let value = body.varint()?;
            match key >> 3 {
                f::LINE_FUNCTION => function = value,
                f::LINE_LINE => line = value as i64,
                f::LINE_COLUMN => column = value as i64,
                _ => {}
            }
        }
        if self.lines.len() as u64 >= limits.lines {
            return Err(passed("lines", limits.lines, body.pos()));
        }
        let function = FunctionId(self.function_ids.reference(function, body.pos())?);
        self.lines.push(Line {
            function,
            line,
            column,
        });
        Ok(())
    }

    #[inline(never)]
    fn function(&mut self, mut body: Reader<'_>) -> Result<(), Fault> {
        let (mut id, mut name, mut system_name, mut filename, mut start_line) = (0, 0, 0, 0, 0);
        while body.more()? {
            let key = body.varint()?;
            if key & 7 != f::VARINT {
                body = body.past_unknown(key, f::FUNCTION_START_LINE)?;
                continue;
            }
            let value = body.varint()?;
            match key >> 3 {
                f::FUNCTION_ID => id = value,
                f::FUNCTION_NAME => name = value,
                f::FUNCTION_SYSTEM_NAME => system_name = value,
                f::FUNCTION_FILENAME => filename = value,
                f::FUNCTION_START_LINE => start_line = value as i64,
                _ => {}
            }
        }
        self.function_ids.push(id);
        let check = &mut self.string_check;
        self.functions.push(Function {
            name: check.note(name, body.pos()),
            system_name: check.note(system_name, body.pos()),
            filename: check.note(filename, body.pos()),
            start_line,
        });
        Ok(())
    }

    #[inline]
    fn string(&mut self, body: Reader<'_>) -> Result<(), Fault> {
        let bytes = body.rest();
        if self.strings.is_empty() && !bytes.is_empty() {
            return Err(body.fault("the first string is not empty"));
        }
        match body.next_bytes() {
            Some(next) if bytes.len() <= next.len() => self.strings.push_short(next, bytes.len()),
            _ => {
                self.strings.push(bytes);
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn mapping(&mut self, mut body: Reader<'_>) -> Result<(), Fault> {
        let mut mapping = Mapping::default();
        let (mut id, mut file, mut build_id) = (0, 0, 0);
        while body.more()? {
            let key = body.varint()?;
            if key & 7 != f::VARINT {
                body = body.past_unknown(key, f::MAPPING_HAS_INLINE_FRAMES)?;
                continue;
            }
            let value = body.varint()?;
            match key >> 3 {
                f::MAPPING_ID => id = value,
                f::MAPPING_START => mapping.start = value,
                f::MAPPING_LIMIT => mapping.limit = value,
                f::MAPPING_OFFSET => mapping.offset = value,
                f::MAPPING_FILE => file = value,
                f::MAPPING_BUILD_ID => build_id = value,
                f::MAPPING_HAS_FUNCTIONS => mapping.has_functions = value != 0,
                f::MAPPING_HAS_FILENAMES => mapping.has_filenames = value != 0,
                f::MAPPING_HAS_LINE_NUMBERS => mapping.has_line_numbers = value != 0,
                f::MAPPING_HAS_INLINE_FRAMES => mapping.has_inline_frames = value != 0,
                _ => {}
            }
        }
        mapping.file = self.string_check.note(file, body.pos());
        mapping.build_id = self.string_check.note(build_id, body.pos());
        self.mapping_ids.push(id);
        self.mappings.push(mapping);
        Ok(())
    }

    /// Fields of the profile itself that stand once or a few times.
    #[inline(never)]
    fn rare(&mut self, key: u64, reader: &mut Reader<'_>, limits: &Limits) -> Result<(), Fault> {
        const NUMBER: u64 = f::VARINT;
        const MESSAGE: u64 = f::BYTES;
        let start = reader.pos();
        let field = key >> 3;
        match (field, key & 7) {
            // As in google/pprof, this comes before everything else about the second one.
            (f::TIME_NANOS, wire_type) => {
                let mut probe = *reader;
                probe.skip(key)?;
                if self.header.time_ns != 0 {
                    let offset = start as u64;
                    return Err(Box::new(DecodeError::Concatenated { offset }));
                }
                if wire_type != NUMBER {
                    return Err(reader.mismatch());
                }
                self.header.time_ns = reader.varint()? as i64;
            }
            (f::MAPPING, MESSAGE) => self.mapping(reader.message()?)?,
            (f::SAMPLE_TYPE, MESSAGE) => {
                let (ty, unit) = value_type(reader.message()?)?;
                let check = &mut self.string_check;
                let ty = (check.note(ty, start), check.note(unit, start));
                self.sample_types.push(ty);
            }
            (f::PERIOD_TYPE, MESSAGE) => self.header.period_type = value_type(reader.message()?)?,
            (f::COMMENT, MESSAGE) => {
                let mut body = reader.message()?;
                while body.more()? {
                    let index = body.varint()?;
                    self.comment(index, start, limits)?;
                }
            }
            (f::COMMENT, NUMBER) => {
                let index = reader.varint()?;
                self.comment(index, start, limits)?;
            }
            (f::DROP_FRAMES, NUMBER) => self.header.drop_frames = reader.varint()?,
            (f::KEEP_FRAMES, NUMBER) => self.header.keep_frames = reader.varint()?,
            (f::DURATION_NANOS, NUMBER) => self.header.duration_ns = reader.varint()? as i64,
            (f::PERIOD, NUMBER) => self.header.period = reader.varint()? as i64,
            (f::DEFAULT_SAMPLE_TYPE, NUMBER) => {
                self.header.default_sample_type = reader.varint()?;
            }
            (f::DOC_URL, NUMBER) => self.header.doc_url = reader.varint()?,
            _ => {
                reader.skip(key)?;
                if (f::SAMPLE_TYPE..=f::DOC_URL).contains(&field) {
                    return Err(reader.mismatch());
                }
            }
        }
        Ok(())
    }

    fn comment(&mut self, index: u64, offset: usize, limits: &Limits) -> Result<(), Fault> {
        if self.comments.len() as u64 >= limits.comments {
            return Err(passed("comments", limits.comments, offset));
        }
        let id = self.string_check.note(index, offset);
        self.comments.push(id);
        Ok(())
    }
}

fn value_type(mut body: Reader<'_>) -> Result<(u64, u64), Fault> {
    let (mut ty, mut unit) = (0, 0);
    while body.more()? {
        let key = body.varint()?;
        if key & 7 != f::VARINT {
            body = body.past_unknown(key, f::VALUE_TYPE_UNIT)?;
            continue;
        }
        let value = body.varint()?;
        match key >> 3 {
            f::VALUE_TYPE_TYPE => ty = value,
            f::VALUE_TYPE_UNIT => unit = value,
            _ => {}
        }
    }
    Ok((ty, unit))
}

const fn key(field: u64, wire_type: u64) -> u64 {
    field << 3 | wire_type
}

const KEY_SAMPLE: u64 = key(f::SAMPLE, f::BYTES);
const KEY_LOCATION: u64 = key(f::LOCATION, f::BYTES);
const KEY_FUNCTION: u64 = key(f::FUNCTION, f::BYTES);
const KEY_STRING: u64 = key(f::STRING_TABLE, f::BYTES);
const KEY_LOCATIONS_PACKED: u64 = key(f::SAMPLE_LOCATION, f::BYTES);
const KEY_LOCATION_UNPACKED: u64 = key(f::SAMPLE_LOCATION, f::VARINT);
const KEY_VALUES_PACKED: u64 = key(f::SAMPLE_VALUE, f::BYTES);
const KEY_VALUE_UNPACKED: u64 = key(f::SAMPLE_VALUE, f::VARINT);
const KEY_LABEL: u64 = key(f::SAMPLE_LABEL, f::BYTES);
const KEY_LINE: u64 = key(f::LOCATION_LINE, f::BYTES);
