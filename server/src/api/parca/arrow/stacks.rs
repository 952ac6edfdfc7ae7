//! Where the stack of a sample is: beside it (v2), or in a second record, by its id (v1).

use std::collections::HashMap;
use std::ops::Range;

use crate::arrow::{Column, Fault};

/// Stacks of a write.
pub enum Stacks<'c, 'a> {
    /// A column of the samples.
    Inline(&'c Column<'a>),
    /// Ids of the samples; where each id is in the second record; its column of locations.
    ById(&'c Column<'a>, HashMap<&'c [u8], usize>, &'c Column<'a>),
}

impl<'c, 'a> Stacks<'c, 'a> {
    /// Those of samples that bring them along.
    pub fn inline(samples: &'c Column<'a>) -> Option<Self> {
        samples.child("stacktrace").map(Stacks::Inline)
    }

    /// Those of a second record.
    ///
    /// # Errors
    /// When columns are missing.
    pub fn by_id(samples: &'c Column<'a>, record: &'c Column<'a>) -> Result<Self, Fault> {
        let column = |of: &'c Column<'a>, name: &str| {
            let found = of.child(name);
            found.ok_or_else(|| Fault::new(format!("column {name:?} is missing")))
        };
        let ids = column(record, "stacktrace_id")?;
        let mut rows = HashMap::new();
        for row in 0..ids.len {
            if let Some(id) = ids.bytes(row)? {
                rows.entry(id).or_insert(row);
            }
        }
        let of_samples = column(samples, "stacktrace_id")?;
        Ok(Stacks::ById(of_samples, rows, column(record, "locations")?))
    }

    /// The frames of a sample: rows of a column of locations.
    ///
    /// # Errors
    /// When they are not there.
    pub fn of(&self, row: usize) -> Result<(Range<usize>, Option<&'c Column<'a>>), Fault> {
        let (column, row) = match self {
            Stacks::Inline(column) => (*column, row),
            Stacks::ById(ids, rows, locations) => {
                let id = ids.bytes(row)?.unwrap_or_default();
                let row = rows.get(id);
                let row =
                    row.ok_or_else(|| Fault::new("its stack was asked for and did not come"))?;
                (*locations, *row)
            }
        };
        // A sample without frames is one all the same.
        let Some(base) = column.base(row)? else {
            return Ok((0..0, None));
        };
        match base.list() {
            Some((rows, items)) => Ok((rows, Some(items))),
            None => Err(Fault::new("stacks are no lists")),
        }
    }
}
