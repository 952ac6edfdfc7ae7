//! Streams of one batch, as answers are.

use super::build::{Fields, Value, buffer};

/// A column.
pub enum Array {
    /// Truths; none has no value.
    Bools(Vec<Option<bool>>),
    /// Numbers of so many bits, with a sign or without.
    Ints {
        /// 8, 32 or 64.
        bits: i32,
        /// Whether they have a sign.
        signed: bool,
        /// The numbers.
        values: Vec<Option<i64>>,
    },
    /// Bytes.
    Binary(Vec<Vec<u8>>),
    /// Bytes that repeat: indices of 32 bits with a sign.
    Dictionary {
        /// Whether it is text.
        utf8: bool,
        /// Which one.
        indices: Vec<Option<u32>>,
        /// Each once.
        values: Vec<Vec<u8>>,
    },
    /// Lists of numbers; no list where there are none.
    Lists {
        /// 32 or 64 a number.
        bits: i32,
        /// Whether they have a sign.
        signed: bool,
        /// The numbers.
        lists: Vec<Vec<u32>>,
    },
}

/// Version 5 of the format.
const VERSION: i16 = 4;
/// Numbers of the union `Type`.
const INT: u8 = 2;
const BINARY: u8 = 4;
const UTF8: u8 = 5;
const BOOL: u8 = 6;
const LIST: u8 = 12;
/// Numbers of the union `MessageHeader`.
const SCHEMA: u8 = 1;
const DICTIONARY: u8 = 2;
const BATCH: u8 = 3;

/// Nodes, buffers and bytes of a message.
#[derive(Default)]
struct Body {
    nodes: Vec<[i64; 2]>,
    buffers: Vec<[i64; 2]>,
    bytes: Vec<u8>,
}

impl Body {
    fn buffer(&mut self, bytes: &[u8]) {
        self.buffers
            .push([self.bytes.len() as i64, bytes.len() as i64]);
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// The node of a column, and which of its rows are there.
    fn node<T>(&mut self, rows: &[Option<T>]) {
        let missing = rows.iter().filter(|row| row.is_none()).count();
        self.nodes.push([rows.len() as i64, missing as i64]);
        match missing {
            0 => self.buffer(&[]),
            _ => self.buffer(&bits(rows.iter().map(Option::is_some))),
        }
    }

    fn binary(&mut self, values: &[Vec<u8>]) {
        self.nodes.push([values.len() as i64, 0]);
        self.buffer(&[]);
        self.offsets(values.iter().map(Vec::len));
        self.buffer(&values.concat());
    }

    fn offsets(&mut self, lens: impl Iterator<Item = usize>) {
        let mut end = 0_i32;
        let mut offsets = end.to_le_bytes().to_vec();
        for len in lens {
            end = end.saturating_add(i32::try_from(len).unwrap_or(i32::MAX));
            offsets.extend_from_slice(&end.to_le_bytes());
        }
        self.buffer(&offsets);
    }

    fn column(&mut self, array: &Array) {
        match array {
            Array::Bools(rows) => {
                self.node(rows);
                self.buffer(&bits(rows.iter().map(|row| *row == Some(true))));
            }
            Array::Ints { bits, values, .. } => {
                self.node(values);
                let words = values.iter().map(|row| row.unwrap_or(0).to_le_bytes());
                self.buffer(&packed(words, *bits));
            }
            Array::Binary(values) => self.binary(values),
            Array::Dictionary { indices, .. } => {
                self.node(indices);
                let words = indices.iter().map(|row| row.unwrap_or(0).to_le_bytes());
                let bytes: Vec<u8> = words.flatten().collect();
                self.buffer(&bytes);
            }
            Array::Lists { bits, lists, .. } => {
                let there = lists.iter().map(|list| (!list.is_empty()).then_some(()));
                self.node(&there.collect::<Vec<_>>());
                self.offsets(lists.iter().map(Vec::len));
                let items = lists.concat();
                self.nodes.push([items.len() as i64, 0]);
                self.buffer(&[]);
                let words = items.iter().map(|item| u64::from(*item).to_le_bytes());
                self.buffer(&packed(words, *bits));
            }
        }
    }

    fn header(&self, rows: usize) -> Fields<'static> {
        vec![
            (0, Value::I64(rows as i64)),
            (1, Value::Pairs(self.nodes.clone())),
            (2, Value::Pairs(self.buffers.clone())),
        ]
    }
}

/// The lower bits of numbers.
fn packed(words: impl Iterator<Item = [u8; 8]>, bits: i32) -> Vec<u8> {
    let width = bits as usize / 8;
    words
        .flat_map(|word| word.into_iter().take(width))
        .collect()
}

fn bits(rows: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut out = Vec::new();
    for (row, there) in rows.enumerate() {
        if row % 8 == 0 {
            out.push(0);
        }
        if let Some(byte) = out.last_mut() {
            *byte |= u8::from(there) << (row % 8);
        }
    }
    out
}

fn message(out: &mut Vec<u8>, kind: u8, header: Fields, body: &[u8]) {
    let metadata = buffer(vec![
        (0, Value::I16(VERSION)),
        (1, Value::U8(kind)),
        (2, Value::Table(header)),
        (3, Value::I64(body.len() as i64)),
    ]);
    out.extend_from_slice(&u32::MAX.to_le_bytes());
    out.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
    out.extend_from_slice(&metadata);
    out.extend_from_slice(body);
}

fn int(bits: i32, signed: bool) -> Fields<'static> {
    vec![(0, Value::I32(bits)), (1, Value::U8(signed.into()))]
}

fn field<'v>(name: &'v str, array: &Array, number: usize) -> Fields<'v> {
    let (kind, of, items) = match array {
        Array::Bools(_) => (BOOL, Vec::new(), Vec::new()),
        Array::Ints { bits, signed, .. } => (INT, int(*bits, *signed), Vec::new()),
        Array::Dictionary { utf8: true, .. } => (UTF8, Vec::new(), Vec::new()),
        Array::Binary(_) | Array::Dictionary { .. } => (BINARY, Vec::new(), Vec::new()),
        Array::Lists { bits, signed, .. } => {
            let item = vec![
                (0, Value::Text("item")),
                (1, Value::U8(1)),
                (2, Value::U8(INT)),
                (3, Value::Table(int(*bits, *signed))),
                (5, Value::Tables(Vec::new())),
            ];
            (LIST, Vec::new(), vec![item])
        }
    };
    let mut fields = vec![
        (0, Value::Text(name)),
        (1, Value::U8(1)),
        (2, Value::U8(kind)),
        (3, Value::Table(of)),
        (5, Value::Tables(items)),
    ];
    if let Array::Dictionary { .. } = array {
        let index = vec![
            (0, Value::I64(number as i64)),
            (1, Value::Table(int(32, true))),
        ];
        fields.push((4, Value::Table(index)));
    }
    fields
}

/// A whole stream: columns of `rows` rows, and notes of the schema.
pub fn stream(columns: &[(&str, Array)], notes: &[(&str, &str)], rows: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let numbered = || columns.iter().enumerate();
    let fields = numbered().map(|(number, (name, array))| field(name, array, number));
    let notes = notes.iter();
    let notes = notes.map(|(key, value)| vec![(0, Value::Text(key)), (1, Value::Text(value))]);
    let schema = vec![
        (1, Value::Tables(fields.collect())),
        (2, Value::Tables(notes.collect())),
    ];
    message(&mut out, SCHEMA, schema, &[]);
    for (number, (_, array)) in numbered() {
        if let Array::Dictionary { values, .. } = array {
            let mut body = Body::default();
            body.binary(values);
            let header = vec![
                (0, Value::I64(number as i64)),
                (1, Value::Table(body.header(values.len()))),
            ];
            message(&mut out, DICTIONARY, header, &body.bytes);
        }
    }
    let mut body = Body::default();
    for (_, array) in columns {
        body.column(array);
    }
    message(&mut out, BATCH, body.header(rows), &body.bytes);
    // The end.
    out.extend_from_slice(&u32::MAX.to_le_bytes());
    out.extend_from_slice(&0_u32.to_le_bytes());
    out
}
