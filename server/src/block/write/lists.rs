//! The columns of the symbols file.

use std::sync::Arc;

use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::errors::Result;

use super::super::read::Profiles;
use super::{GroupWriter, flat, next};
use crate::segment::Symbols;

/// Writes the columns of one row of the symbols file.
pub(super) struct Lists<'a, 'b> {
    group: &'a mut GroupWriter<'b>,
}

impl<'a, 'b> Lists<'a, 'b> {
    pub(super) fn of(group: &'a mut GroupWriter<'b>) -> Self {
        Self { group }
    }

    pub(super) fn service(&mut self, service: ByteArray) -> Result<()> {
        flat::<ByteArrayType>(self.group, &[service])
    }

    fn list<T: DataType>(&mut self, values: &[T::T]) -> Result<()> {
        // One record: the first value begins it, the others repeat. An empty list is one undefined.
        let mut repeated = vec![1_i16; values.len().max(1)];
        repeated[0] = 0;
        let defined = vec![i16::from(!values.is_empty()); repeated.len()];
        next::<T>(self.group, |column| {
            let written = column.write_batch(values, Some(&defined), Some(&repeated));
            written.map(drop)
        })
    }

    fn u32s(&mut self, values: impl Iterator<Item = u32>) -> Result<()> {
        self.list::<Int32Type>(&values.map(|value| value as i32).collect::<Vec<_>>())
    }

    fn i64s(&mut self, values: impl Iterator<Item = i64>) -> Result<()> {
        self.list::<Int64Type>(&values.collect::<Vec<_>>())
    }

    pub(super) fn profiles(&mut self, profiles: &Profiles) -> Result<()> {
        let rows = || profiles.rows.iter();
        self.u32s(rows().map(|row| row.series))?;
        self.u32s(rows().map(|row| row.type_set))?;
        self.i64s(rows().map(|row| row.time_ns))?;
        self.i64s(rows().map(|row| row.duration_ns))?;
        self.i64s(rows().map(|row| row.period))?;
        let ids = rows().map(|row| {
            let bytes = row.id.to_le_bytes().to_vec();
            FixedLenByteArray::from(ByteArray::from(bytes))
        });
        self.list::<FixedLenByteArrayType>(&ids.collect::<Vec<_>>())?;
        self.u32s(rows().map(|row| row.profiles))?;
        self.i64s(rows().map(|row| row.samples as i64))?;
        self.u32s(rows().map(|row| row.rows))?;
        self.i64s(profiles.totals.iter().copied())
    }

    pub(super) fn symbols(&mut self, symbols: &Symbols, stack_nodes: &[u32]) -> Result<()> {
        self.u32s(stack_nodes.iter().copied())?;
        self.u32s(symbols.parents.iter().copied())?;
        self.u32s(symbols.node_locations.iter().copied())?;
        let locations = &symbols.locations;
        self.u32s(locations.mapping.iter().copied())?;
        self.u32s(locations.folded.iter().map(|&folded| folded.into()))?;
        self.i64s(locations.address.iter().map(|&address| address as i64))?;
        self.u32s(locations.line_ends.iter().copied())?;
        self.u32s(locations.lines.iter().map(|line| line.function))?;
        self.i64s(locations.lines.iter().map(|line| line.line))?;
        self.i64s(locations.lines.iter().map(|line| line.column))?;
        let functions = || symbols.functions.iter();
        self.u32s(functions().map(|function| function.name))?;
        self.u32s(functions().map(|function| function.system_name))?;
        self.u32s(functions().map(|function| function.filename))?;
        self.i64s(functions().map(|function| function.start_line))?;
        let mappings = || symbols.mappings.iter();
        self.i64s(mappings().map(|mapping| mapping.start as i64))?;
        self.i64s(mappings().map(|mapping| mapping.limit as i64))?;
        self.i64s(mappings().map(|mapping| mapping.offset as i64))?;
        self.u32s(mappings().map(|mapping| mapping.filename))?;
        self.u32s(mappings().map(|mapping| mapping.build_id))?;
        self.u32s(mappings().map(|mapping| mapping.flags))?;
        self.u32s(symbols.label_set_ends.iter().copied())?;
        self.u32s(symbols.labels.iter().map(|label| label.key))?;
        self.u32s(symbols.labels.iter().map(|label| label.text))?;
        self.i64s(symbols.labels.iter().map(|label| label.number))?;
        self.u32s(symbols.labels.iter().map(|label| label.unit))?;
        let bytes: Arc<[u8]> = symbols.strings.bytes.as_slice().into();
        let all = bytes::Bytes::from_owner(bytes);
        let ends = &symbols.strings.ends;
        let strings = ends.iter().enumerate().map(|(id, &end)| {
            let start = if id == 0 { 0 } else { ends[id - 1] };
            ByteArray::from(all.slice(start as usize..end as usize))
        });
        self.list::<ByteArrayType>(&strings.collect::<Vec<_>>())
    }
}
