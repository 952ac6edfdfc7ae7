//! Tables of FlatBuffers, written forwards: a table, then what it leads to.

/// A field of a table.
pub enum Value<'v> {
    /// A byte or a truth.
    U8(u8),
    /// 16 bits.
    I16(i16),
    /// 32 bits.
    I32(i32),
    /// 64 bits.
    I64(i64),
    /// A table.
    Table(Fields<'v>),
    /// A vector of tables.
    Tables(Vec<Fields<'v>>),
    /// A text.
    Text(&'v str),
    /// A vector of two numbers each.
    Pairs(Vec<[i64; 2]>),
}

/// Fields of a table: each with its number.
pub type Fields<'v> = Vec<(usize, Value<'v>)>;

/// The bytes of a table and all below it, padded to 8.
pub fn buffer(root: Fields) -> Vec<u8> {
    let mut out = vec![0; 4];
    let at = table(&mut out, root);
    point(&mut out, 0, at);
    pad(&mut out, 0);
    out
}

/// Fills up until the length is `rest` more than a multiple of 8.
fn pad(out: &mut Vec<u8>, rest: usize) {
    while out.len() % 8 != rest {
        out.push(0);
    }
}

/// Writes the offset at `from` that leads to `to`.
fn point(out: &mut [u8], from: usize, to: usize) {
    out[from..from + 4].copy_from_slice(&((to - from) as u32).to_le_bytes());
}

/// Each field takes 8 bytes, so that all are aligned.
fn table(out: &mut Vec<u8>, fields: Fields) -> usize {
    let slots = fields.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
    let places = 4 + 2 * slots;
    pad(out, 0);
    let start = out.len();
    out.resize(start + places, 0);
    pad(out, 0);
    let at = out.len();
    let size = 8 + 8 * fields.len();
    out.resize(at + size, 0);
    let mut word = |place: usize, value: u16| {
        out[place..place + 2].copy_from_slice(&value.to_le_bytes());
    };
    word(start, places as u16);
    word(start + 2, size as u16);
    for (index, (slot, _)) in fields.iter().enumerate() {
        word(start + 4 + 2 * slot, (8 + 8 * index) as u16);
    }
    out[at..at + 4].copy_from_slice(&((at - start) as i32).to_le_bytes());
    for (index, (_, value)) in fields.into_iter().enumerate() {
        field(out, at + 8 + 8 * index, value);
    }
    at
}

fn field(out: &mut Vec<u8>, at: usize, value: Value) {
    let mut put = |bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    match value {
        Value::U8(value) => put(&[value]),
        Value::I16(value) => put(&value.to_le_bytes()),
        Value::I32(value) => put(&value.to_le_bytes()),
        Value::I64(value) => put(&value.to_le_bytes()),
        Value::Table(fields) => {
            let to = table(out, fields);
            point(out, at, to);
        }
        Value::Text(text) => {
            let to = vector(out, at, text.len(), 0);
            out.extend_from_slice(text.as_bytes());
            debug_assert_eq!(to, out.len() - text.len());
            out.push(0);
        }
        Value::Pairs(pairs) => {
            vector(out, at, pairs.len(), 4);
            for word in pairs.as_flattened() {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        Value::Tables(tables) => {
            let list = vector(out, at, tables.len(), 0);
            out.resize(list + 4 * tables.len(), 0);
            for (index, fields) in tables.into_iter().enumerate() {
                let to = table(out, fields);
                point(out, list + 4 * index, to);
            }
        }
    }
}

/// Begins a vector; its length stands `rest` after a multiple of 8. Where its elements begin.
fn vector(out: &mut Vec<u8>, at: usize, len: usize, rest: usize) -> usize {
    pad(out, rest);
    let to = out.len();
    point(out, at, to);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.len()
}
