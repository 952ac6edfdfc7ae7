//! Apache Arrow's stream format (IPC), as far as Parca's clients use it; Arrow's own crate refuses what
//! parca-agent sends, and takes memory by what a message claims: [ADR 55](../../../docs/adr/0055-our-own-reader-of-arrow.md).
//!
//! Everything that a message claims is checked before it is believed, and what it unpacks to is bounded.

mod build;
mod column;
mod decode;
mod flat;
mod lz4;
mod schema;
mod write;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

pub use column::{Base, Column};
pub use schema::Schema;
pub use write::{Array, stream};

/// What is wrong with a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault(String);

impl Fault {
    /// A fault with a text for the sender.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arrow stream: {}", self.0)
    }
}

/// Rows of a stream: one column that has those of the schema as children.
pub struct Batch<'a> {
    /// A struct of all columns.
    pub root: Column<'a>,
}

/// A stream, message by message.
pub struct Stream<'a> {
    bytes: &'a [u8],
    at: usize,
    schema: Schema,
    dictionaries: HashMap<i64, Rc<Column<'a>>>,
    /// Bytes that may still be unpacked.
    left: usize,
}

/// Kinds of messages.
const SCHEMA: u8 = 1;
const DICTIONARY: u8 = 2;
const BATCH: u8 = 3;

struct Message<'a> {
    kind: u8,
    header: flat::Table<'a>,
    body: &'a [u8],
}

impl<'a> Stream<'a> {
    /// Reads the schema. What the columns unpack to is at most `most_bytes` in all.
    ///
    /// # Errors
    /// When the bytes are no stream.
    pub fn new(bytes: &'a [u8], most_bytes: usize) -> Result<Self, Fault> {
        let mut stream = Stream {
            bytes,
            at: 0,
            schema: Schema::default(),
            dictionaries: HashMap::new(),
            left: most_bytes,
        };
        let first = stream.message()?;
        let Some(first) = first.filter(|message| message.kind == SCHEMA) else {
            return Err(Fault::new("it does not begin with a schema"));
        };
        stream.schema = schema::read(&first.header)?;
        Ok(stream)
    }

    /// What columns there are.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The next rows; none at the end.
    ///
    /// # Errors
    /// When a message is broken, or unpacks to too much.
    pub fn next(&mut self) -> Result<Option<Batch<'a>>, Fault> {
        while let Some(message) = self.message()? {
            match message.kind {
                DICTIONARY => self.dictionary(&message)?,
                BATCH => return self.batch(&message).map(Some),
                SCHEMA => return Err(Fault::new("a second schema")),
                other => return Err(Fault::new(format!("a message of kind {other}"))),
            }
        }
        Ok(None)
    }

    fn message(&mut self) -> Result<Option<Message<'a>>, Fault> {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let word = |at: usize| -> Option<u32> {
            let word = rest.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(word))
        };
        let (len, head) = match word(0) {
            None if rest.is_empty() => return Ok(None),
            Some(u32::MAX) => (word(4), 8),
            word => (word, 4),
        };
        let Some(len) = len else {
            return Err(Fault::new("it ends within the head of a message"));
        };
        if len == 0 {
            return Ok(None);
        }
        let cut = || Fault::new("it ends within a message");
        let end = head + len as usize;
        let metadata = rest.get(head..end).ok_or_else(cut)?;
        let table = flat::Table::root(metadata)?;
        let body = usize::try_from(table.i64(3)?).map_err(|_| cut())?;
        let body_end = end.checked_add(body).ok_or_else(cut)?;
        let body = rest.get(end..body_end).ok_or_else(cut)?;
        let header = table.table(2)?;
        let header = header.ok_or_else(|| Fault::new("a message without a header"))?;
        self.at += body_end;
        Ok(Some(Message {
            kind: table.u8(1)?,
            header,
            body,
        }))
    }

    fn dictionary(&mut self, message: &Message<'a>) -> Result<(), Fault> {
        let id = message.header.i64(0)?;
        if message.header.u8(2)? != 0 {
            return Err(Fault::new("dictionaries in pieces are not read here"));
        }
        let field = find(&self.schema.fields, id);
        let field = field.ok_or_else(|| Fault::new(format!("dictionary {id} is of no column")))?;
        let data = message.header.table(1)?;
        let data = data.ok_or_else(|| Fault::new("a dictionary without values"))?;
        let plain = schema::Field {
            dictionary: None,
            ..field.clone()
        };
        let mut reader = decode::Reader::new(&data, message.body, &self.dictionaries, self.left)?;
        let column = reader.column(&plain)?;
        self.left = reader.left;
        self.dictionaries.insert(id, Rc::new(column));
        Ok(())
    }

    fn batch(&mut self, message: &Message<'a>) -> Result<Batch<'a>, Fault> {
        let rows = message.header.i64(0)?;
        let data = &message.header;
        let mut reader = decode::Reader::new(data, message.body, &self.dictionaries, self.left)?;
        let root = reader.root(&self.schema.fields, rows)?;
        self.left = reader.left;
        Ok(Batch { root })
    }
}

fn find(fields: &[schema::Field], id: i64) -> Option<&schema::Field> {
    fields.iter().find_map(|field| match field.dictionary {
        Some((of, _)) if of == id => Some(field),
        _ => find(&field.children, id),
    })
}
