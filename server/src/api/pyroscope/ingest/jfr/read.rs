//! Chunks of a flight recording, its types, and values of them. A chunk describes its own types; what is
//! said often stands in pools, each value under a number.

use std::collections::HashMap;

/// Bytes from the front, with their place in the chunk.
#[derive(Clone)]
pub struct Bytes<'a> {
    chunk: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    /// From `at` on.
    pub fn new(chunk: &'a [u8], at: usize) -> Self {
        Bytes { chunk, at }
    }

    /// The next `n`.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(n);
        let bytes = end.and_then(|end| self.chunk.get(self.at..end));
        let bytes = bytes.ok_or_else(|| format!("byte {}: the chunk ends too early", self.at))?;
        self.at += n;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.take(N)?;
        bytes
            .try_into()
            .map_err(|_| "unreachable length".to_owned())
    }

    /// LEB128 of at most 9 bytes; the ninth has eight bits.
    pub fn number(&mut self) -> Result<i64, String> {
        let mut value = 0_u64;
        for at in 0..8 {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                return Ok(value as i64);
            }
        }
        let [byte] = self.array()?;
        Ok((value | u64::from(byte) << 56) as i64)
    }

    /// A number that counts things of at least `size` bytes each.
    fn count(&mut self, size: usize) -> Result<usize, String> {
        let at = self.at;
        let count = self.number()?;
        let left = self.chunk.len().saturating_sub(self.at);
        match usize::try_from(count) {
            Ok(count) if count.saturating_mul(size) <= left => Ok(count),
            _ => Err(format!("byte {at}: {count} things in {left} bytes")),
        }
    }

    /// A text, or the number under which it stands in the pool of texts.
    fn text(&mut self) -> Result<Value, String> {
        let at = self.at;
        let [form] = self.array()?;
        Ok(match form {
            0 | 1 => Value::Text(String::new()),
            2 => Value::Pooled(self.number()?),
            3 => {
                let length = self.count(1)?;
                Value::Text(String::from_utf8_lossy(self.take(length)?).into_owned())
            }
            4 => {
                let length = self.count(1)?;
                let units = (0..length).map(|_| Ok(self.number()? as u16));
                let units = units.collect::<Result<Vec<u16>, String>>()?;
                Value::Text(String::from_utf16_lossy(&units))
            }
            5 => {
                let length = self.count(1)?;
                Value::Text(self.take(length)?.iter().copied().map(char::from).collect())
            }
            other => return Err(format!("byte {at}: a text of form {other}")),
        })
    }
}

/// A value as it stands in the file.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of any whole type, and of `boolean`.
    Number(i64),
    /// Nobody here asks for one.
    Float,
    /// A text.
    Text(String),
    /// Stands in the pool of the field's type under this number.
    Pooled(i64),
    /// Fields of a type, in its order.
    Fields(Vec<Value>),
    /// Several of a type.
    List(Vec<Value>),
}

/// A type that the chunk describes.
#[derive(Debug, Default)]
pub struct Type {
    /// Such as `jdk.ExecutionSample`.
    pub name: String,
    /// In the order of their bytes.
    pub fields: Vec<Field>,
}

/// A field of a type.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Number of its type.
    pub ty: i64,
    pooled: bool,
    list: bool,
}

/// What a chunk says before its events.
pub struct Chunk<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Length.
    pub duration_ns: i64,
    /// Ticks of durations.
    pub ticks_per_second: i64,
    /// By number.
    pub types: HashMap<i64, Type>,
    /// Values by type and number.
    pub pools: HashMap<(i64, i64), Value>,
    /// Values that may still be read: a chunk cannot say more than it has bytes for.
    budget: usize,
}

const HEAD: usize = 68;
const MAGIC: &[u8] = b"FLR\0";
/// Types within types.
const DEPTH: usize = 16;

/// Cuts the first chunk off.
pub fn split(file: &[u8]) -> Result<(&[u8], &[u8]), String> {
    if file.get(..4) != Some(MAGIC) {
        return Err("it does not begin with FLR".to_owned());
    }
    let mut head = Bytes::new(file, 8);
    let size = u64::from_be_bytes(head.array()?);
    let fits = usize::try_from(size).ok().filter(|&size| size >= HEAD);
    let parts = fits.and_then(|size| file.split_at_checked(size));
    parts.ok_or_else(|| format!("a chunk of {size} bytes in {} bytes", file.len()))
}

impl<'a> Chunk<'a> {
    /// Reads head, types and pools.
    ///
    /// # Errors
    /// With the place.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let mut head = Bytes::new(bytes, 4);
        let major = u16::from_be_bytes(head.array()?);
        if !matches!(major, 1 | 2) {
            return Err(format!("version {major} of the format is not known here"));
        }
        let mut head = Bytes::new(bytes, 16);
        let mut long = || Ok::<i64, String>(i64::from_be_bytes(head.array()?));
        let (pools, types) = (long()?, long()?);
        let (start_ns, duration_ns) = (long()?, long()?);
        let (_, ticks_per_second) = (long()?, long()?);
        let features = u32::from_be_bytes(head.array()?);
        if features & 1 == 0 {
            return Err("numbers are not compressed; nobody writes such a file".to_owned());
        }
        let mut chunk = Chunk {
            bytes,
            start_ns,
            duration_ns,
            ticks_per_second: ticks_per_second.max(1),
            types: HashMap::new(),
            pools: HashMap::new(),
            budget: 2 * bytes.len() + 1024,
        };
        chunk.read_types(types)?;
        chunk.read_pools(pools)?;
        Ok(chunk)
    }

    fn at(&self, offset: i64) -> Result<Bytes<'a>, String> {
        let offset = usize::try_from(offset).ok().filter(|&at| at >= HEAD);
        let offset = offset.ok_or("the chunk was not finished by its writer")?;
        Ok(Bytes::new(self.bytes, offset))
    }

    fn read_types(&mut self, offset: i64) -> Result<(), String> {
        let mut bytes = self.at(offset)?;
        let _size = bytes.number()?;
        if bytes.number()? != 0 {
            return Err(format!("byte {offset}: no description of types"));
        }
        for _ in ["start", "duration", "number"] {
            bytes.number()?;
        }
        let count = bytes.count(1)?;
        let mut texts = Vec::with_capacity(count);
        for _ in 0..count {
            match bytes.text()? {
                Value::Text(text) => texts.push(text),
                _ => return Err("a text of the types is no text".to_owned()),
            }
        }
        self.element(&mut bytes, &texts, 0, None)
    }

    /// An element of the tree that describes types; `of` is the type it stands in.
    fn element(
        &mut self,
        bytes: &mut Bytes<'a>,
        texts: &[String],
        depth: usize,
        of: Option<i64>,
    ) -> Result<(), String> {
        if depth > DEPTH {
            return Err("the types are described too deeply".to_owned());
        }
        let text = |bytes: &mut Bytes| {
            let number = bytes.number()?;
            let text = usize::try_from(number).ok().and_then(|at| texts.get(at));
            text.map(String::as_str)
                .ok_or_else(|| format!("text {number} of {}", texts.len()))
        };
        let name = text(bytes)?;
        let mut said = HashMap::new();
        for _ in 0..bytes.count(2)? {
            said.insert(text(bytes)?, text(bytes)?);
        }
        let get = |key: &str| said.get(key).copied().unwrap_or("");
        let number = |key: &str| get(key).parse::<i64>();
        let mut inner = of;
        match (name, of) {
            ("class", _) => {
                let id = number("id").map_err(|_| "a type without a number".to_owned())?;
                let name = get("name").to_owned();
                let fields = Vec::new();
                self.types.insert(id, Type { name, fields });
                inner = Some(id);
            }
            ("field", Some(of)) => {
                let field = Field {
                    name: get("name").to_owned(),
                    ty: number("class").map_err(|_| "a field without a type".to_owned())?,
                    pooled: get("constantPool") == "true",
                    list: number("dimension").unwrap_or(0) > 0,
                };
                self.types.entry(of).or_default().fields.push(field);
                inner = None;
            }
            _ => {}
        }
        for _ in 0..bytes.count(2)? {
            self.element(bytes, texts, depth + 1, inner)?;
        }
        Ok(())
    }

    /// Checkpoints hold pools, and say how far back the one before stands.
    fn read_pools(&mut self, mut offset: i64) -> Result<(), String> {
        loop {
            let mut bytes = self.at(offset)?;
            let _size = bytes.number()?;
            if bytes.number()? != 1 {
                return Err(format!("byte {offset}: no pool"));
            }
            let _start = bytes.number()?;
            let _duration = bytes.number()?;
            let before = bytes.number()?;
            let _kind = bytes.take(1)?;
            for _ in 0..bytes.count(2)? {
                let ty = bytes.number()?;
                for _ in 0..bytes.count(1)? {
                    let number = bytes.number()?;
                    let value = self.value(&mut bytes, ty, 0)?;
                    self.pools.insert((ty, number), value);
                }
            }
            if before == 0 {
                return Ok(());
            }
            if before > 0 {
                return Err(format!("byte {offset}: the pool before stands behind"));
            }
            offset = offset.saturating_add(before);
        }
    }

    /// The value of a type at `bytes`.
    ///
    /// # Errors
    /// With the place.
    pub fn value(&mut self, bytes: &mut Bytes<'a>, ty: i64, depth: usize) -> Result<Value, String> {
        self.budget = self.budget.checked_sub(1).ok_or("more values than bytes")?;
        if depth > DEPTH {
            return Err("types within types without an end".to_owned());
        }
        // The borrow of the type ends where values are read: fields are looked at one by one.
        let Some(known) = self.types.get(&ty) else {
            return Err(format!("type {ty} is not described"));
        };
        match known.name.as_str() {
            "boolean" | "byte" => return Ok(Value::Number(i64::from(bytes.take(1)?[0] as i8))),
            "char" | "short" | "int" | "long" => return Ok(Value::Number(bytes.number()?)),
            "float" => return bytes.take(4).map(|_| Value::Float),
            "double" => return bytes.take(8).map(|_| Value::Float),
            "java.lang.String" => return bytes.text(),
            _ => {}
        }
        let count = known.fields.len();
        let mut fields = Vec::with_capacity(count.min(64));
        for at in 0..count {
            fields.push(self.field(bytes, (ty, at), depth)?);
        }
        Ok(Value::Fields(fields))
    }

    fn field(
        &mut self,
        bytes: &mut Bytes<'a>,
        (of, at): (i64, usize),
        depth: usize,
    ) -> Result<Value, String> {
        let field = self.types.get(&of).and_then(|ty| ty.fields.get(at));
        let field = field.ok_or("the field went away")?;
        let (ty, pooled, list) = (field.ty, field.pooled, field.list);
        if !list {
            return self.one(bytes, ty, pooled, depth);
        }
        let count = bytes.count(1)?;
        let mut all = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            all.push(self.one(bytes, ty, pooled, depth)?);
        }
        Ok(Value::List(all))
    }

    fn one(
        &mut self,
        bytes: &mut Bytes<'a>,
        ty: i64,
        pooled: bool,
        depth: usize,
    ) -> Result<Value, String> {
        self.budget = self.budget.checked_sub(1).ok_or("more values than bytes")?;
        match pooled {
            true => Ok(Value::Pooled(bytes.number()?)),
            false => self.value(bytes, ty, depth + 1),
        }
    }

    /// Calls `visit` with the type and the bytes of each event.
    ///
    /// # Errors
    /// With the place, and those of `visit`.
    pub fn events(
        &mut self,
        mut visit: impl FnMut(&mut Self, i64, Bytes<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut at = HEAD;
        while at < self.bytes.len() {
            let mut bytes = Bytes::new(self.bytes, at);
            let size = usize::try_from(bytes.number()?).unwrap_or(0);
            let next = at.checked_add(size).filter(|&next| next > bytes.at);
            let next = next.filter(|&next| next <= self.bytes.len());
            let Some(next) = next else {
                return Err(format!("byte {at}: an event of {size} bytes"));
            };
            let ty = bytes.number()?;
            // Types 0 and 1 are the types and the pools.
            if ty > 1 {
                visit(self, ty, bytes)?;
            }
            at = next;
        }
        Ok(())
    }

    /// The pooled value that a field of type `ty` names.
    pub fn pooled(&self, ty: i64, number: i64) -> Option<&Value> {
        self.pools.get(&(ty, number))
    }

    /// A field by name.
    pub fn get<'v>(&'v self, ty: i64, value: &'v Value, name: &str) -> Option<(i64, &'v Value)> {
        let Value::Fields(values) = value else {
            return None;
        };
        let known = self.types.get(&ty)?;
        let at = known.fields.iter().position(|field| field.name == name)?;
        let (field, value) = (known.fields.get(at)?, values.get(at)?);
        match value {
            Value::Pooled(number) => Some((field.ty, self.pooled(field.ty, *number)?)),
            value => Some((field.ty, value)),
        }
    }

    /// A whole number by name.
    pub fn number(&self, ty: i64, value: &Value, name: &str) -> Option<i64> {
        match self.get(ty, value, name)?.1 {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// A text by name; one that stands in a type of its own, as symbols do, too.
    pub fn text<'v>(&'v self, ty: i64, value: &'v Value, name: &str) -> Option<&'v str> {
        let (mut ty, mut value) = self.get(ty, value, name)?;
        for _ in 0..3 {
            match value {
                Value::Text(text) => return Some(text),
                Value::Pooled(number) => value = self.pooled(ty, *number)?,
                Value::Fields(_) => {
                    let name = &self.types.get(&ty)?.fields.first()?.name;
                    (ty, value) = self.get(ty, value, name)?;
                }
                _ => return None,
            }
        }
        None
    }
}
