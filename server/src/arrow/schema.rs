//! What columns a stream has.

use super::Fault;
use super::flat::Table;

/// Fields of a schema, and how deep they may stand in each other.
const MOST_FIELDS: usize = 4096;
const DEEPEST: usize = 12;

/// How the values of a field are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No values.
    Null,
    /// Numbers of so many bytes, with a sign or without.
    Int(usize, bool),
    /// Bits.
    Bool,
    /// Bytes or text; offsets have so many bytes.
    Bytes(usize),
    /// Bytes or text by views.
    View,
    /// So many bytes each.
    Fixed(usize),
    /// Lists; offsets have so many bytes.
    List(usize),
    /// Lists with sizes of their own; offsets have so many bytes.
    ListView(usize),
    /// Columns side by side.
    Struct,
    /// Ends of runs, and a value each.
    Runs,
}

/// A column, as announced.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Layout of its values; for a dictionary those of the dictionary.
    pub kind: Kind,
    /// Fields inside of it.
    pub children: Vec<Field>,
    /// Number of its dictionary, and layout of the indices.
    pub dictionary: Option<(i64, Kind)>,
}

/// The fields of a schema and its notes.
#[derive(Debug, Default, Clone)]
pub struct Schema {
    /// Columns.
    pub fields: Vec<Field>,
    /// `key`, `value`.
    pub notes: Vec<(String, String)>,
}

/// Reads the table `Schema`.
pub fn read(table: &Table) -> Result<Schema, Fault> {
    if table.i16(0)? != 0 {
        return Err(Fault::new("numbers are big-endian: send little-endian"));
    }
    let mut left = MOST_FIELDS;
    let fields = fields(table, 1, &mut left, 0)?;
    let list = table.vector(2, 4)?;
    let mut notes = Vec::new();
    for at in 0..list.len.min(MOST_FIELDS) {
        let note = list.table(at)?;
        notes.push((note.text(0)?, note.text(1)?));
    }
    Ok(Schema { fields, notes })
}

fn fields(of: &Table, slot: usize, left: &mut usize, depth: usize) -> Result<Vec<Field>, Fault> {
    let list = of.vector(slot, 4)?;
    if depth > DEEPEST || list.len > *left {
        return Err(Fault::new(format!(
            "the schema has more than {MOST_FIELDS} fields, or they stand in each other more than \
             {DEEPEST} deep"
        )));
    }
    *left -= list.len;
    let mut out = Vec::with_capacity(list.len);
    for at in 0..list.len {
        let field = list.table(at)?;
        let name = field.text(0)?;
        let kind = kind(&field, &name)?;
        let dictionary = match field.table(4)? {
            None => None,
            Some(how) => Some((how.i64(0)?, index_kind(&how)?)),
        };
        out.push(Field {
            kind,
            children: fields(&field, 5, left, depth + 1)?,
            dictionary,
            name,
        });
    }
    Ok(out)
}

fn int(of: Option<Table>) -> Result<Kind, Fault> {
    // Without a type of their own, indices are of 32 bits with a sign.
    let Some(of) = of else {
        return Ok(Kind::Int(4, true));
    };
    let bits = of.i32(0)?;
    match bits {
        8 | 16 | 32 | 64 => Ok(Kind::Int(bits as usize / 8, of.u8(1)? != 0)),
        _ => Err(Fault::new(format!("integers of {bits} bits"))),
    }
}

fn index_kind(dictionary: &Table) -> Result<Kind, Fault> {
    int(dictionary.table(1)?)
}

/// The union `Type`: numbers are the format's.
fn kind(field: &Table, name: &str) -> Result<Kind, Fault> {
    let of = field.table(3)?;
    Ok(match field.u8(2)? {
        1 => Kind::Null,
        2 => int(of)?,
        4 | 5 => Kind::Bytes(4),
        6 => Kind::Bool,
        // Times, timestamps and durations of 64 bits.
        10 | 18 => Kind::Int(8, true),
        12 => Kind::List(4),
        13 => Kind::Struct,
        15 => {
            let width = of.map_or(Ok(0), |of| of.i32(0))?;
            let width = usize::try_from(width).ok().filter(|&width| width > 0);
            Kind::Fixed(width.ok_or_else(|| Fault::new("bytes of a fixed width of 0 or less"))?)
        }
        19 | 20 => Kind::Bytes(8),
        21 => Kind::List(8),
        22 => Kind::Runs,
        23 | 24 => Kind::View,
        25 => Kind::ListView(4),
        26 => Kind::ListView(8),
        other => {
            return Err(Fault::new(format!(
                "column {name:?} is of type {other}, which no profile needs"
            )));
        }
    })
}
