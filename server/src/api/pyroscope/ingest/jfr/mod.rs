//! Flight recordings of the JDK and of async-profiler: samples on and off the core, allocations, waits.
//!
//! Facts: <https://github.com/openjdk/jdk/tree/master/src/jdk.jfr>, async-profiler's `flightRecorder.cpp`
//! and Pyroscope's names for what comes of it.

mod labels;
mod read;
mod take;

use pilotlight_profile::{Limits, Profile};

pub use labels::Labels;
use read::Chunk;
use take::Taken;

use super::kind::Kind;

/// What a recording holds, a profile for each kind and each chunk.
///
/// # Errors
/// When it is no recording, or of a limit; with the place.
pub fn profiles(
    mut file: &[u8],
    sample_rate: Option<i64>,
    labels: &Labels,
    limits: &Limits,
) -> Result<Vec<(Kind, Profile)>, String> {
    let mut all = Vec::new();
    while !file.is_empty() {
        let (chunk, rest) = read::split(file)?;
        let chunk = Chunk::read(chunk)?;
        let mut taken = Taken::new(sample_rate, labels, limits);
        taken.all(chunk)?;
        all.extend(taken.finish());
        file = rest;
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
