//! From ids to indices, with google/pprof's validity rules in google/pprof's order.

use crate::error::{DecodeError, Invalid, Table};
use crate::fields as f;
use crate::limits::Limits;
use crate::model::{LabelValue, Locations, Profile, Samples, SourceIds, ValueType};
use crate::report::{Reason, Report};
use crate::strings::StrId;

use super::Mode;
use super::columns::{Columns, passed};
use super::ids::{IdFaults, NOWHERE};
use super::repair;
use super::wire::{Fault, Reader};

impl Columns {
    /// Checks that every string index is in the table. Tolerant mode makes those that are not the
    /// empty string.
    pub fn check_strings(&mut self, mode: Mode, report: &mut Report) -> Result<(), Fault> {
        let count = self.strings.len() as u64;
        if count == 0 {
            return Err(malformed(0, "no string table"));
        }
        let header = &self.header;
        let once = [
            header.drop_frames,
            header.keep_frames,
            header.period_type.0,
            header.period_type.1,
            header.default_sample_type,
            header.doc_url,
        ];
        let bad_header = once.iter().any(|&index| index >= count);
        if self.string_check.largest < count && !bad_header {
            return Ok(());
        }
        if mode == Mode::Strict {
            let offset = if bad_header {
                0
            } else {
                self.string_check.offset
            };
            return Err(malformed(offset, "string index outside the string table"));
        }
        report.add(Reason::BadStringIndex, self.clear_bad_strings(count));
        Ok(())
    }

    fn clear_bad_strings(&mut self, count: u64) -> u64 {
        let mut cleared = 0;
        let mut clear = |id: &mut StrId| {
            if u64::from(id.0) >= count {
                *id = StrId::EMPTY;
                cleared += 1;
            }
        };
        for (ty, unit) in &mut self.sample_types {
            clear(ty);
            clear(unit);
        }
        self.comments.iter_mut().for_each(&mut clear);
        for mapping in &mut self.mappings {
            clear(&mut mapping.file);
            clear(&mut mapping.build_id);
        }
        for function in &mut self.functions {
            clear(&mut function.name);
            clear(&mut function.system_name);
            clear(&mut function.filename);
        }
        for label in &mut self.label_sets.labels {
            clear(&mut label.key);
            match &mut label.value {
                LabelValue::Str(text) => clear(text),
                LabelValue::Num { unit, .. } => clear(unit),
            }
        }
        let header = &mut self.header;
        for index in [
            &mut header.drop_frames,
            &mut header.keep_frames,
            &mut header.period_type.0,
            &mut header.period_type.1,
            &mut header.default_sample_type,
            &mut header.doc_url,
        ] {
            if *index >= count {
                *index = 0;
                cleared += 1;
            }
        }
        cleared
    }
}

fn malformed(offset: usize, reason: &'static str) -> Fault {
    let offset = offset as u64;
    Box::new(DecodeError::Malformed { offset, reason })
}

/// What linking found to be wrong.
struct Faults {
    mappings: IdFaults,
    functions: IdFaults,
    locations: IdFaults,
    lost_mappings: usize,
    lost_functions: usize,
    lost_locations: usize,
}

impl Faults {
    fn resolve(columns: &mut Columns) -> Faults {
        let lost_mappings = {
            let map = columns.mapping_ids.map();
            let named = columns
                .location_mapping
                .iter()
                .filter(|&&id| id != 0)
                .count();
            let references = &mut columns.location_mapping;
            columns.mapping_ids.resolve(&map, references);
            let found = references.iter().filter(|&&index| index != NOWHERE).count();
            named.saturating_sub(found)
        };
        let lost_functions = {
            let map = columns.function_ids.map();
            let mut references: Vec<u32> = columns.lines.iter().map(|l| l.function.0).collect();
            let lost = columns.function_ids.resolve(&map, &mut references);
            for (line, index) in columns.lines.iter_mut().zip(references) {
                line.function.0 = index;
            }
            lost
        };
        let map = columns.location_ids.map();
        Faults {
            mappings: columns.mapping_ids.faults(),
            functions: columns.function_ids.faults(),
            locations: columns.location_ids.faults(),
            lost_mappings,
            lost_functions,
            lost_locations: columns
                .location_ids
                .resolve(&map, &mut columns.stacks.items),
        }
    }

    fn note(&self, report: &mut Report) {
        let tables = [&self.mappings, &self.functions, &self.locations];
        report.add(Reason::ZeroId, tables.iter().map(|t| t.zeros).sum());
        let duplicates = tables.iter().map(|t| t.duplicates).sum();
        report.add(Reason::DuplicateId, duplicates);
        report.add(Reason::UnknownMapping, self.lost_mappings as u64);
    }
}

/// Resolves ids and checks that the parts fit each other.
pub fn link(
    mut columns: Columns,
    raw: &[u8],
    mode: Mode,
    limits: &Limits,
    report: &mut Report,
) -> Result<Profile, Fault> {
    let samples = columns.sample_labels.len();
    let invalid = |field, nth, cause| {
        let offset = offset_of(raw, field, nth);
        Err(Box::new(DecodeError::Invalid { offset, cause }))
    };
    if columns.sample_types.is_empty() && samples > 0 {
        return invalid(f::SAMPLE, 0, Invalid::NoSampleTypes);
    }
    let faults = Faults::resolve(&mut columns);
    report.add(Reason::EmptyLabel, columns.empty_labels);
    if let Some((field, nth, cause)) = first_invalid(&columns, &faults, mode) {
        return invalid(field, nth, cause);
    }
    if mode == Mode::Tolerant {
        faults.note(report);
        repair::drop_misfits(&mut columns, report);
        if faults.lost_functions > 0 {
            repair::drop_lost_lines(&mut columns, report);
        }
        if faults.lost_locations > 0 {
            repair::drop_lost_frames(&mut columns, report);
        }
    }
    columns.check_inlined_frames(limits)?;
    Ok(assemble(columns, &faults))
}

/// The first thing that the mode refuses: field, number of the entry and cause.
fn first_invalid(columns: &Columns, faults: &Faults, mode: Mode) -> Option<(u64, usize, Invalid)> {
    let types = columns.sample_types.len();
    let misfit = columns.first_misfit();
    if mode == Mode::Tolerant {
        // Nothing would be left.
        let all_misfit = (0..columns.sample_labels.len()).all(|i| columns.value_count(i) != types);
        return misfit.filter(|_| all_misfit);
    }
    let lost = || {
        let at = columns.stacks.items.iter().position(|&l| l == NOWHERE)?;
        let sample = columns
            .stacks
            .offsets
            .partition_point(|&o| o as usize <= at)
            - 1;
        Some((f::SAMPLE, sample, Invalid::NilLocation { sample }))
    };
    let lost = if faults.lost_locations > 0 {
        lost()
    } else {
        None
    };
    match (misfit, lost) {
        (Some(misfit), Some(lost)) if lost.1 < misfit.1 => return Some(lost),
        (Some(misfit), _) => return Some(misfit),
        (None, Some(lost)) => return Some(lost),
        (None, None) => {}
    }
    let by_table = |table, field, ids: &super::ids::Ids, faults: &IdFaults| {
        let zero = faults
            .zero
            .map(|at| (field, at, Invalid::ReservedId { table }));
        let duplicate = faults.duplicate.map(|at| {
            let id = ids.id(at);
            (field, at, Invalid::DuplicateId { table, id })
        });
        [zero, duplicate].into_iter().flatten().min_by_key(|f| f.1)
    };
    by_table(
        Table::Mapping,
        f::MAPPING,
        &columns.mapping_ids,
        &faults.mappings,
    )
    .or_else(|| {
        let ids = &columns.function_ids;
        by_table(Table::Function, f::FUNCTION, ids, &faults.functions)
    })
    .or_else(|| {
        let ids = &columns.location_ids;
        let by_id = by_table(Table::Location, f::LOCATION, ids, &faults.locations);
        let nil = first_nil_function(columns, faults);
        // Of one location, the id is looked at first.
        [by_id, nil].into_iter().flatten().min_by_key(|f| f.1)
    })
}

/// A line without function: none found, or function 0, which google/pprof never looks up.
fn first_nil_function(columns: &Columns, faults: &Faults) -> Option<(u64, usize, Invalid)> {
    if faults.lost_functions == 0 {
        return None;
    }
    let lost = |line: &crate::model::Line| line.function.0 == NOWHERE;
    let at = columns.lines.iter().position(lost)?;
    let index = columns.line_offsets.partition_point(|&o| o as usize <= at) - 1;
    let location = columns.location_ids.id(index);
    Some((f::LOCATION, index, Invalid::NilFunction { location }))
}

impl Columns {
    /// A few frames can stand for very many, by locations with very many lines.
    fn check_inlined_frames(&self, limits: &Limits) -> Result<(), Fault> {
        let lines = |pair: &[u32]| u64::from(pair[1] - pair[0]).max(1);
        let most_lines = self.line_offsets.windows(2).map(lines).max().unwrap_or(1);
        let frames = self.stacks.items.len() as u64;
        if frames.saturating_mul(most_lines) <= limits.inlined_frames {
            return Ok(());
        }
        let frames = self.stacks.items.iter().map(|&l| l as usize);
        let counted: u64 = frames.map(|l| lines(&self.line_offsets[l..l + 2])).sum();
        if counted <= limits.inlined_frames {
            return Ok(());
        }
        Err(passed("inlined_frames", limits.inlined_frames, 0))
    }

    /// Number of values of a sample.
    pub fn value_count(&self, sample: usize) -> usize {
        let ends = &self.values.ends;
        match (ends.get(sample), sample.checked_sub(1)) {
            (None, _) => self.values.width,
            (Some(&end), None) => end as usize,
            (Some(&end), Some(before)) => (end - ends[before]) as usize,
        }
    }

    fn first_misfit(&self) -> Option<(u64, usize, Invalid)> {
        let types = self.sample_types.len();
        let samples = self.sample_labels.len();
        if self.values.width == types && self.values.ends.is_empty() {
            return None;
        }
        let sample = (0..samples).find(|&i| self.value_count(i) != types)?;
        let values = self.value_count(sample);
        let cause = Invalid::ValueCount {
            sample,
            values,
            types,
        };
        Some((f::SAMPLE, sample, cause))
    }
}

/// Where entry number `nth` of a field of the profile stands.
fn offset_of(raw: &[u8], field: u64, nth: usize) -> u64 {
    let mut reader = Reader::new(raw);
    let mut seen = 0;
    while reader.more().is_ok_and(|more| more) {
        let offset = reader.pos();
        let Ok(key) = reader.varint() else { break };
        if key >> 3 == field {
            if seen == nth {
                return offset as u64;
            }
            seen += 1;
        }
        if reader.skip(key).is_err() {
            break;
        }
    }
    0
}

fn assemble(columns: Columns, faults: &Faults) -> Profile {
    let header = columns.header;
    // Checked against the table, which has fewer than 2^32 strings.
    let string = |index: u64| StrId(index as u32);
    let samples = columns.sample_labels.len() as u32;
    Profile {
        strings: columns.strings,
        sample_types: columns
            .sample_types
            .into_iter()
            .map(|(ty, unit)| ValueType { ty, unit })
            .collect(),
        period_type: ValueType {
            ty: string(header.period_type.0),
            unit: string(header.period_type.1),
        },
        period: header.period,
        time_ns: header.time_ns,
        duration_ns: header.duration_ns,
        default_sample_type: string(header.default_sample_type),
        drop_frames: string(header.drop_frames),
        keep_frames: string(header.keep_frames),
        doc_url: string(header.doc_url),
        comments: columns.comments,
        mappings: columns.mappings,
        functions: columns.functions,
        locations: Locations {
            mapping: columns.location_mapping,
            address: columns.location_address,
            is_folded: columns.location_is_folded,
            line_offsets: columns.line_offsets,
        },
        lines: columns.lines,
        stacks: columns.stacks,
        label_sets: columns.label_sets,
        samples: Samples {
            stack: (0..samples).collect(),
            labels: columns.sample_labels,
            values: columns.values.all,
        },
        source_ids: SourceIds {
            mappings: columns.mapping_ids.into_source_ids(&faults.mappings),
            functions: columns.function_ids.into_source_ids(&faults.functions),
            locations: columns.location_ids.into_source_ids(&faults.locations),
        },
    }
}
