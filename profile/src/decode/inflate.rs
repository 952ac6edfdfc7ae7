//! Decompression that stops at its limits before memory grows.

use std::borrow::Cow;
use std::io::Read;

use crate::error::DecodeError;
use crate::limits::Limits;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// What is inside `bytes` when they are gzip or zstd, otherwise themselves. Neither magic number can begin
/// a pprof protobuf.
///
/// # Errors
/// Damaged data, or data that inflates beyond the limits.
pub fn inflate<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Cow<'a, [u8]>, DecodeError> {
    let wire_bytes = bytes.len() as u64;
    check("wire_bytes", wire_bytes, limits.wire_bytes)?;
    if bytes.starts_with(GZIP_MAGIC) {
        let reader = flate2::bufread::MultiGzDecoder::new(bytes);
        return read_all("gzip", reader, wire_bytes, limits).map(Cow::Owned);
    }
    if bytes.starts_with(ZSTD_MAGIC) {
        return inflate_zstd(bytes, limits).map(Cow::Owned);
    }
    check("inflated_bytes", wire_bytes, limits.inflated_bytes)?;
    Ok(Cow::Borrowed(bytes))
}

fn check(what: &'static str, value: u64, limit: u64) -> Result<(), DecodeError> {
    if value <= limit {
        return Ok(());
    }
    Err(DecodeError::Limit {
        what,
        limit,
        offset: limit,
    })
}

#[cfg(feature = "zstd")]
fn inflate_zstd(bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, DecodeError> {
    // The window is memory that the sender chooses: 8 MiB is what levels up to 19 use.
    const MAX_WINDOW_LOG: u32 = 23;
    let open = |bytes| {
        let mut reader = zstd::stream::read::Decoder::with_buffer(bytes)?;
        reader.window_log_max(MAX_WINDOW_LOG)?;
        Ok(reader)
    };
    let reader = open(bytes).map_err(|error: std::io::Error| damaged("zstd", 0, &error))?;
    read_all("zstd", reader, bytes.len() as u64, limits)
}

#[cfg(not(feature = "zstd"))]
fn inflate_zstd(_: &[u8], _: &Limits) -> Result<Vec<u8>, DecodeError> {
    Err(DecodeError::NotBuiltIn { feature: "zstd" })
}

fn read_all(
    format: &'static str,
    mut reader: impl Read,
    wire_bytes: u64,
    limits: &Limits,
) -> Result<Vec<u8>, DecodeError> {
    let by_ratio = wire_bytes
        .saturating_mul(limits.inflation_ratio)
        .max(limits.ratio_free_bytes);
    let most = by_ratio.min(limits.inflated_bytes) as usize;
    // Honest profiles inflate to three times their size.
    let mut out = vec![0; (bytes_usize(wire_bytes) * 4).clamp(4096, 1 << 20).min(most)];
    let mut len = 0;
    loop {
        if len == out.len() {
            if len == most {
                break;
            }
            out.resize(most.min(len * 2), 0);
        }
        match reader.read(&mut out[len..]) {
            Ok(0) => {
                out.truncate(len);
                return Ok(out);
            }
            Ok(count) => len += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(damaged(format, len, &error)),
        }
    }
    match reader.read(&mut [0]) {
        Ok(0) => Ok(out),
        Err(error) => Err(damaged(format, len, &error)),
        Ok(_) if by_ratio < limits.inflated_bytes => Err(DecodeError::InflationRatio {
            wire_bytes,
            ratio: limits.inflation_ratio,
            offset: len as u64,
        }),
        Ok(_) => Err(DecodeError::Limit {
            what: "inflated_bytes",
            limit: limits.inflated_bytes,
            offset: len as u64,
        }),
    }
}

fn bytes_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX / 8)
}

fn damaged(format: &'static str, len: usize, error: &std::io::Error) -> DecodeError {
    DecodeError::Decompress {
        format,
        offset: len as u64,
        reason: error.to_string(),
    }
}
