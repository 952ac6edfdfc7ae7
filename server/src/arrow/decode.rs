//! From the buffers of a message to columns.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use super::Fault;
use super::column::{Column, Data, Span};
use super::flat::{Table, Vector};
use super::lz4;
use super::schema::{Field, Kind};

/// Rows of one column.
const MOST_ROWS: usize = 1 << 27;

#[derive(Clone, Copy)]
enum Packing {
    None,
    Lz4,
    Zstd,
}

/// Takes the nodes and buffers of a message in the order of its fields.
pub struct Reader<'a, 'd> {
    nodes: Vector<'a>,
    buffers: Vector<'a>,
    variadic: Vector<'a>,
    node: usize,
    buffer: usize,
    view: usize,
    body: &'a [u8],
    packing: Packing,
    dictionaries: &'d HashMap<i64, Rc<Column<'a>>>,
    /// Bytes that may still be unpacked.
    pub left: usize,
}

impl<'a, 'd> Reader<'a, 'd> {
    /// Reads the table `RecordBatch`.
    pub fn new(
        data: &Table<'a>,
        body: &'a [u8],
        dictionaries: &'d HashMap<i64, Rc<Column<'a>>>,
        left: usize,
    ) -> Result<Self, Fault> {
        let packing = match data.table(3)? {
            None => Packing::None,
            Some(how) => match how.u8(0)? {
                0 => Packing::Lz4,
                1 => Packing::Zstd,
                other => return Err(Fault::new(format!("packed by codec {other}"))),
            },
        };
        Ok(Self {
            nodes: data.vector(1, 16)?,
            buffers: data.vector(2, 16)?,
            variadic: data.vector(4, 8)?,
            node: 0,
            buffer: 0,
            view: 0,
            body,
            packing,
            dictionaries,
            left,
        })
    }

    /// The columns of a schema side by side.
    pub fn root(&mut self, fields: &[Field], rows: i64) -> Result<Column<'a>, Fault> {
        let len = length(rows)?;
        let children = self.children(fields)?;
        if let Some((name, column)) = children.iter().find(|(_, column)| column.len != len) {
            return Err(Fault::new(format!(
                "column {name:?} has {} rows of {len}",
                column.len
            )));
        }
        Ok(Column {
            len,
            valid: None,
            data: Data::Struct(children),
        })
    }

    fn children(&mut self, fields: &[Field]) -> Result<Vec<(String, Column<'a>)>, Fault> {
        let one = |field: &Field| Ok((field.name.clone(), self.column(field)?));
        fields.iter().map(one).collect()
    }

    /// The next column.
    pub fn column(&mut self, field: &Field) -> Result<Column<'a>, Fault> {
        let len = self.length()?;
        let short = |what: &str| Fault::new(format!("column {:?}: {what}", field.name));
        let kind = match field.dictionary {
            Some((_, index)) => index,
            None => field.kind,
        };
        let valid = match kind {
            Kind::Null | Kind::Runs => None,
            _ => Some(self.buffer()?).filter(|bits| !bits.is_empty()),
        };
        if valid
            .as_ref()
            .is_some_and(|bits| bits.len() < len.div_ceil(8))
        {
            return Err(short("fewer validity bits than rows"));
        }
        if let Some((id, index)) = field.dictionary {
            let values = self.dictionaries.get(&id);
            let values = values.ok_or_else(|| short("its dictionary did not come before it"))?;
            let indices = self.ints(index, len).map_err(|fault| short(&fault.0))?;
            // What is no index of 32 bits is past every dictionary.
            let indices = indices
                .iter()
                .map(|&at| u32::try_from(at).unwrap_or(u32::MAX));
            return Ok(Column {
                len,
                valid,
                data: Data::Dictionary(indices.collect(), values.clone()),
            });
        }
        let data = self.data(field, len).map_err(|fault| short(&fault.0))?;
        Ok(Column { len, valid, data })
    }

    fn data(&mut self, field: &Field, len: usize) -> Result<Data<'a>, Fault> {
        let only = || match &field.children[..] {
            [child] => Ok(child),
            _ => Err(Fault::new("a list needs one field in it")),
        };
        Ok(match field.kind {
            Kind::Null => Data::Null,
            Kind::Int(..) | Kind::Bool => Data::Ints(self.ints(field.kind, len)?),
            Kind::Bytes(width) => self.offsets(width, len)?,
            Kind::View => self.views(len)?,
            Kind::Fixed(width) => self.fixed(width, len)?,
            Kind::List(width) => {
                let ends = self.bounds(width, len)?;
                let lists = ends.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
                let lists = lists.collect();
                within(lists, self.column(only()?)?)?
            }
            Kind::ListView(width) => {
                let starts = self.ints(Kind::Int(width, true), len)?;
                let sizes = self.ints(Kind::Int(width, true), len)?;
                let word =
                    |at: i64| u32::try_from(at).map_err(|_| Fault::new("lists out of range"));
                let lists = starts.iter().zip(&sizes);
                let lists = lists.map(|(&start, &size)| Ok((word(start)?, word(size)?)));
                let lists = lists.collect::<Result<_, Fault>>()?;
                within(lists, self.column(only()?)?)?
            }
            Kind::Struct => {
                let children = self.children(&field.children)?;
                if children.iter().any(|(_, column)| column.len < len) {
                    return Err(Fault::new("columns of a struct are of different lengths"));
                }
                Data::Struct(children)
            }
            Kind::Runs => self.runs(field, len)?,
        })
    }

    fn runs(&mut self, field: &Field, len: usize) -> Result<Data<'a>, Fault> {
        let [ends, values] = &field.children[..] else {
            return Err(Fault::new("runs need ends and values"));
        };
        let Data::Ints(ends) = self.column(ends)?.data else {
            return Err(Fault::new("ends of runs are numbers"));
        };
        let rising = ends.windows(2).all(|pair| pair[0] < pair[1]);
        if !rising || ends.first().is_some_and(|&end| end <= 0) {
            return Err(Fault::new("ends of runs do not rise"));
        }
        if ends.last().map_or(0, |&end| end) < len as i64 {
            return Err(Fault::new("the runs are shorter than the column"));
        }
        let values = self.column(values)?;
        if values.len < ends.len() {
            return Err(Fault::new("fewer values than runs"));
        }
        Ok(Data::Runs(ends, Box::new(values)))
    }

    fn ints(&mut self, kind: Kind, len: usize) -> Result<Vec<i64>, Fault> {
        let bytes = self.buffer()?;
        self.spend(len.saturating_mul(8))?;
        let short = || Fault::new("fewer values than rows");
        let Kind::Int(width, signed) = kind else {
            let bits = bytes.get(..len.div_ceil(8)).ok_or_else(short)?;
            let bit = |row: usize| i64::from(bits[row / 8] >> (row % 8) & 1);
            return Ok((0..len).map(bit).collect());
        };
        let bytes = bytes.get(..len.saturating_mul(width)).ok_or_else(short)?;
        let one = |word: &[u8]| {
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(word);
            let value = i64::from_le_bytes(wide);
            let unused = 64 - 8 * width as u32;
            match signed {
                true => value << unused >> unused,
                false => value,
            }
        };
        Ok(bytes.chunks_exact(width).map(one).collect())
    }

    /// The `len + 1` bounds of rows, which never fall.
    fn bounds(&mut self, width: usize, len: usize) -> Result<Vec<u32>, Fault> {
        if len == 0 {
            self.buffer()?;
            return Ok(vec![0]);
        }
        let bounds = self.ints(Kind::Int(width, true), len + 1)?;
        let rising = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
        let word = |at: &i64| u32::try_from(*at).ok().filter(|_| rising);
        let bounds = bounds.iter().map(word).collect::<Option<_>>();
        bounds.ok_or_else(|| Fault::new("offsets fall, or are below 0"))
    }

    fn offsets(&mut self, width: usize, len: usize) -> Result<Data<'a>, Fault> {
        let bounds = self.bounds(width, len)?;
        let bytes = self.buffer()?;
        if bounds.last().is_some_and(|&end| end as usize > bytes.len()) {
            return Err(Fault::new("offsets lead out of the bytes"));
        }
        self.spend(len.saturating_mul(12))?;
        let spans = bounds
            .windows(2)
            .map(|pair| (0, pair[0], pair[1] - pair[0]));
        Ok(Data::Bytes {
            spans: spans.collect(),
            buffers: vec![bytes],
        })
    }

    fn fixed(&mut self, width: usize, len: usize) -> Result<Data<'a>, Fault> {
        let bytes = self.buffer()?;
        let end = len.checked_mul(width).filter(|&end| end <= bytes.len());
        if end.is_none_or(|end| u32::try_from(end).is_err()) {
            return Err(Fault::new("fewer values than rows"));
        }
        self.spend(len.saturating_mul(12))?;
        let spans = (0..len).map(|row| (0, (row * width) as u32, width as u32));
        Ok(Data::Bytes {
            spans: spans.collect(),
            buffers: vec![bytes],
        })
    }

    fn views(&mut self, len: usize) -> Result<Data<'a>, Fault> {
        let views = self.buffer()?;
        let count = match self.view < self.variadic.len {
            true => self.variadic.i64(8 * self.view)?,
            false => 0,
        };
        self.view += 1;
        let count = usize::try_from(count)
            .ok()
            .filter(|&n| n <= self.buffers.len);
        let count = count.ok_or_else(|| Fault::new("more buffers of a view than there are"))?;
        let mut buffers = vec![views.clone()];
        for _ in 0..count {
            buffers.push(self.buffer()?);
        }
        let end = len.saturating_mul(16);
        let views = views.get(..end);
        let views = views.ok_or_else(|| Fault::new("fewer values than rows"))?;
        let mut spans = Vec::with_capacity(len);
        for (row, view) in views.chunks_exact(16).enumerate() {
            let word = |at: usize| {
                u32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]])
            };
            let span: Span = match word(0) {
                short @ 0..=12 => (0, (row * 16 + 4) as u32, short),
                long => (word(8).saturating_add(1), word(12), long),
            };
            let buffer = buffers.get(span.0 as usize);
            let end = u64::from(span.1) + u64::from(span.2);
            // Views may overlap: together they may not show more than may be unpacked.
            self.spend(12 + span.2 as usize)?;
            if buffer.is_none_or(|buffer| end > buffer.len() as u64) {
                return Err(Fault::new("a view leads out of its buffer"));
            }
            spans.push(span);
        }
        Ok(Data::Bytes { spans, buffers })
    }

    fn length(&mut self) -> Result<usize, Fault> {
        if self.node >= self.nodes.len {
            return Err(Fault::new("fewer columns than the schema has"));
        }
        let len = self.nodes.i64(16 * self.node)?;
        self.node += 1;
        length(len)
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| Fault::new("it unpacks to more than this server takes"))?;
        Ok(())
    }

    fn buffer(&mut self) -> Result<Cow<'a, [u8]>, Fault> {
        if self.buffer >= self.buffers.len {
            return Err(Fault::new("fewer buffers than the schema needs"));
        }
        let start = self.buffers.i64(16 * self.buffer)?;
        let len = self.buffers.i64(16 * self.buffer + 8)?;
        self.buffer += 1;
        let range = usize::try_from(start).ok().zip(usize::try_from(len).ok());
        let range = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
        let bytes = range.and_then(|range| self.body.get(range));
        let bytes = bytes.ok_or_else(|| Fault::new("a buffer leads out of its message"))?;
        self.unpacked(bytes)
    }

    fn unpacked(&mut self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, Fault> {
        if matches!(self.packing, Packing::None) || bytes.is_empty() {
            return Ok(Cow::Borrowed(bytes));
        }
        let Some((size, packed)) = bytes.split_first_chunk::<8>() else {
            return Err(Fault::new("a packed buffer without its size"));
        };
        let size = match i64::from_le_bytes(*size) {
            -1 => return Ok(Cow::Borrowed(packed)),
            size => usize::try_from(size).unwrap_or(usize::MAX),
        };
        self.spend(size)?;
        let out = match self.packing {
            Packing::Zstd => zstd::bulk::decompress(packed, size)
                .map_err(|error| Fault::new(format!("a packed buffer does not unpack: {error}")))?,
            _ => lz4::unpack(packed, size)?,
        };
        match out.len() == size {
            true => Ok(Cow::Owned(out)),
            false => Err(Fault::new("a packed buffer is not of the size it says")),
        }
    }
}

fn length(len: i64) -> Result<usize, Fault> {
    let len = usize::try_from(len).ok().filter(|&len| len <= MOST_ROWS);
    len.ok_or_else(|| {
        Fault::new(format!(
            "a column of more than {MOST_ROWS} rows, or below 0"
        ))
    })
}

/// Lists whose items are there.
fn within(lists: Vec<(u32, u32)>, items: Column<'_>) -> Result<Data<'_>, Fault> {
    let end = |&(start, len): &(u32, u32)| u64::from(start) + u64::from(len);
    if lists.iter().map(end).max().unwrap_or(0) > items.len as u64 {
        return Err(Fault::new("a list has more items than there are"));
    }
    Ok(Data::Lists(lists, Box::new(items)))
}
