//! The process context that OpenTelemetry SDKs publish (OTEP 4719): which service a process is, and whether it takes
//! samples of itself.

use super::proc;
use crate::limits;
use std::fs::File;
use std::os::unix::fs::FileExt;

const MARK: &[u8] = b"OTEL_CTX";
const VERSION: u32 = 2;
/// Attributes that are looked at.
const ATTRIBUTES: usize = 64;

/// What a process says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Attributes of its resource that are texts, such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// It runs our SDK, which samples its CPU time: it must not be counted twice.
    pub samples_itself: bool,
}

/// Reads it from outside; `None` where there is none, or it changes while it is read.
pub fn read_context(pid: u32) -> Option<Context> {
    let maps = proc::read(pid, "maps", limits::MAPS_BYTES)?;
    let place = super::parse_maps(&maps, MARK).1?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let header = || -> Option<[u8; 32]> {
        let mut header = [0; 32];
        memory.read_exact_at(&mut header, place).ok()?;
        Some(header)
    };
    let before = header()?;
    let (size, payload) = check(&before)?;
    let mut bytes = vec![0; size];
    memory.read_exact_at(&mut bytes, payload).ok()?;
    (header()? == before).then(|| decode(&bytes))
}

/// Signature, version, size, time, place of the payload.
fn check(header: &[u8; 32]) -> Option<(usize, u64)> {
    let half = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
    let size = half(12) as usize;
    let good = &header[..8] == MARK && half(8) == VERSION && word(16) != 0;
    (good && size <= limits::CONTEXT_BYTES).then_some((size, word(24)))
}

/// `ProcessContext`: a resource in field 1, more attributes in field 2.
fn decode(bytes: &[u8]) -> Context {
    let mut context = Context::default();
    for (number, value) in fields(bytes) {
        match number {
            1 => {
                let attributes = fields(value).filter(|(number, _)| *number == 1);
                let texts = attributes.filter_map(|(_, bytes)| attribute(bytes));
                context.resource.extend(texts.take(ATTRIBUTES));
            }
            2 if attribute(value).is_some_and(|(key, _)| key == "pilotlight.sdk.version") => {
                context.samples_itself = true;
            }
            _ => {}
        }
    }
    context
}

/// `KeyValue` whose value is a text.
fn attribute(bytes: &[u8]) -> Option<(String, String)> {
    let key = fields(bytes).find(|(number, _)| *number == 1)?.1;
    let any = fields(bytes).find(|(number, _)| *number == 2)?.1;
    let text = fields(any).find(|(number, _)| *number == 1)?.1;
    Some((crate::labels::text(key), crate::labels::text(text)))
}

/// Length-delimited fields of a message; others are passed over, and what is broken ends it.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let key = varint(&mut bytes)?;
            match key & 7 {
                0 => drop(varint(&mut bytes)?),
                1 => bytes = bytes.get(8..)?,
                5 => bytes = bytes.get(4..)?,
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (value, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    return Some((key >> 3, value));
                }
                _ => return None,
            }
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Any bytes as header and as payload.
pub(super) fn hostile(input: &[u8]) {
    if let Some(header) = input.first_chunk() {
        let place = check(header);
        assert!(place.is_none_or(|(size, _)| size <= limits::CONTEXT_BYTES));
    }
    assert!(decode(input).resource.len() <= ATTRIBUTES * input.len().max(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, bytes.len() as u8];
        out.extend(bytes);
        out
    }

    fn pair(key: &str, value: &str) -> Vec<u8> {
        let text = field(1, value.as_bytes());
        [field(1, key.as_bytes()), field(2, &text)].concat()
    }

    #[test]
    fn service_and_sdk_are_read_and_no_prefix_panics() {
        let resource = [
            field(1, &pair("service.name", "shop")),
            field(1, &pair("env", "dev")),
        ]
        .concat();
        let whole = [
            field(1, &resource),
            field(2, &pair("threadlocal.schema_version", "x")),
            field(2, &pair("pilotlight.sdk.version", "0.1.0")),
        ]
        .concat();
        let context = decode(&whole);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            context.resource,
            [pair("service.name", "shop"), pair("env", "dev")]
        );
        assert!(context.samples_itself);
        for end in 0..whole.len() {
            decode(&whole[..end]);
        }
        assert_eq!(
            decode(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
            Context::default()
        );
    }

    #[test]
    fn headers_that_are_not_finished_or_too_long_are_no_context() {
        let mut header = [0; 32];
        header[..8].copy_from_slice(MARK);
        header[8] = 2;
        header[12] = 9;
        assert_eq!(check(&header), None, "time 0: being replaced");
        header[16] = 1;
        header[25] = 0x10;
        assert_eq!(check(&header), Some((9, 0x1000)));
        header[15] = 0x7f;
        assert_eq!(check(&header), None);
    }
}
