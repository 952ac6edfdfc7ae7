//! Columns as they are asked for: a row of a run or of a dictionary leads to the value it stands for.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use super::Fault;

/// Values and which of them are there.
pub struct Column<'a> {
    /// Number of rows.
    pub len: usize,
    /// A bit a row; all are there without it.
    pub valid: Option<Cow<'a, [u8]>>,
    /// The values.
    pub data: Data<'a>,
}

/// A piece of a buffer: which one, from where, how long.
pub type Span = (u32, u32, u32);

/// Values of a column.
pub enum Data<'a> {
    /// None is there.
    Null,
    /// Numbers and bits; those of 64 bits without a sign as they are.
    Ints(Vec<i64>),
    /// Bytes and text.
    Bytes {
        /// Of each row.
        spans: Vec<Span>,
        /// Where they are.
        buffers: Vec<Cow<'a, [u8]>>,
    },
    /// Lists: first item and number of items.
    Lists(Vec<(u32, u32)>, Box<Column<'a>>),
    /// Columns by name.
    Struct(Vec<(String, Column<'a>)>),
    /// Rows of another column.
    Dictionary(Vec<u32>, Rc<Column<'a>>),
    /// The row after each run, and its value.
    Runs(Vec<i64>, Box<Column<'a>>),
}

/// A row of the column that holds the values themselves.
#[derive(Clone, Copy)]
pub struct Base<'c, 'a> {
    /// That column.
    pub column: &'c Column<'a>,
    /// The row there.
    pub row: usize,
}

impl<'a> Column<'a> {
    fn is_there(&self, row: usize) -> bool {
        let bit = |bits: &[u8]| {
            bits.get(row / 8)
                .is_some_and(|byte| byte >> (row % 8) & 1 == 1)
        };
        row < self.len && self.valid.as_deref().is_none_or(bit)
    }

    /// Where the value of a row is; none when it has none.
    ///
    /// # Errors
    /// When the row names a value that is not in its dictionary.
    pub fn base(&self, row: usize) -> Result<Option<Base<'_, 'a>>, Fault> {
        if !self.is_there(row) {
            return Ok(None);
        }
        match &self.data {
            Data::Null => Ok(None),
            Data::Runs(ends, values) => {
                let run = ends.partition_point(|&end| end <= row as i64);
                values.base(run)
            }
            Data::Dictionary(indices, values) => {
                let index = indices[row] as usize;
                if index >= values.len {
                    return Err(Fault::new(format!(
                        "row {row} names value {index} of a dictionary of {}",
                        values.len
                    )));
                }
                values.base(index)
            }
            _ => Ok(Some(Base { column: self, row })),
        }
    }

    /// The number of a row.
    ///
    /// # Errors
    /// As [`Column::base`].
    pub fn int(&self, row: usize) -> Result<Option<i64>, Fault> {
        Ok(self.base(row)?.and_then(|base| base.int()))
    }

    /// The bytes of a row.
    ///
    /// # Errors
    /// As [`Column::base`].
    pub fn bytes(&self, row: usize) -> Result<Option<&[u8]>, Fault> {
        Ok(self.base(row)?.and_then(|base| base.bytes()))
    }

    /// The column `name` of a struct.
    pub fn child(&self, name: &str) -> Option<&Column<'a>> {
        let found = self.children().iter().find(|(of, _)| of == name);
        found.map(|(_, column)| column)
    }

    /// All columns of a struct; none of another kind.
    pub fn children(&self) -> &[(String, Column<'a>)] {
        match &self.data {
            Data::Struct(children) => children,
            _ => &[],
        }
    }
}

impl<'c, 'a> Base<'c, 'a> {
    /// The number.
    pub fn int(&self) -> Option<i64> {
        match &self.column.data {
            Data::Ints(values) => values.get(self.row).copied(),
            _ => None,
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> Option<&'c [u8]> {
        let Data::Bytes { spans, buffers } = &self.column.data else {
            return None;
        };
        let &(buffer, start, len) = spans.get(self.row)?;
        let (start, len) = (start as usize, len as usize);
        buffers.get(buffer as usize)?.get(start..start + len)
    }

    /// The rows of a list, and the column they are of.
    pub fn list(&self) -> Option<(Range<usize>, &'c Column<'a>)> {
        let Data::Lists(lists, items) = &self.column.data else {
            return None;
        };
        let &(start, len) = lists.get(self.row)?;
        let start = start as usize;
        Some((start..start + len as usize, items))
    }
}
