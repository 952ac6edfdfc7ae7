//! What a cumulative profile gained over a time.

use std::collections::HashMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pilotlight_profile::{LabelValue, Profile, Sample, merge};

use super::{Ask, Kind, Running, Source, checked};

/// A difference in the making: the profile as it was at the beginning.
pub(crate) struct Delta {
    source: &'static dyn Source,
    query: String,
    before: Profile,
    began: Instant,
}

impl Delta {
    /// Takes the first profile now.
    pub(crate) fn new(source: &'static dyn Source, ask: &Ask<'_>) -> Result<Delta, String> {
        checked(source)?;
        Ok(Delta {
            source,
            query: ask.query.to_string(),
            before: source.take(ask)?,
            began: Instant::now(),
        })
    }

    /// As [`Delta::new`], for one difference.
    pub(crate) fn begin(
        source: &'static dyn Source,
        ask: &Ask<'_>,
    ) -> Result<Box<dyn Running>, String> {
        Ok(Box::new(Delta::new(source, ask)?))
    }

    /// What was added since the last call, or since the beginning.
    pub(crate) fn advance(&mut self) -> Result<Profile, String> {
        checked(self.source)?;
        let after = self.source.take(&Ask::query(&self.query))?;
        let now = Instant::now();
        let growing = match self.source.kind() {
            Kind::Cumulative { growing } => growing,
            _ => &[],
        };
        let mut gained = subtract(after.clone(), &self.before, growing)?;
        // As Go has it: the time of the second profile, and the time between the two.
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        gained.time_ns = time.unwrap_or_default().as_nanos() as i64;
        gained.duration_ns = (now - self.began).as_nanos() as i64;
        self.before = after;
        self.began = now;
        Ok(gained)
    }
}

impl Running for Delta {
    fn finish(mut self: Box<Self>) -> Result<Profile, String> {
        self.advance()
    }
}

/// `after` with what `before` had of the growing columns taken off. Samples without any value left
/// are left out.
///
/// Samples are the same when their addresses and labels are: names may have become known, or have
/// been forgotten, between the two.
fn subtract(mut after: Profile, before: &Profile, growing: &[&str]) -> Result<Profile, String> {
    let is_growing: Vec<bool> = after
        .sample_types
        .iter()
        .map(|ty| growing.contains(&&*after.strings.text(ty.ty)))
        .collect();
    let mut old: HashMap<Vec<u8>, &[i64]> = before
        .iter_samples()
        .map(|sample| (key(before, &sample), sample.values))
        .collect();
    let width = after.sample_types.len();
    for index in 0..after.samples.len() {
        let Some(was) = old.remove(&key(&after, &after.sample(index))) else {
            continue;
        };
        let row = &mut after.samples.values[index * width..][..width];
        for ((value, was), _) in row
            .iter_mut()
            .zip(was)
            .zip(&is_growing)
            .filter(|(_, g)| **g)
        {
            *value = value.wrapping_sub(*was);
        }
    }
    // Leaves out samples of zeros, and what only they use.
    merge(&[&after]).map_err(|error| format!("failed to compute delta: {error}"))
}

/// What makes a sample the same in two profiles of one process.
fn key(profile: &Profile, sample: &Sample<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + sample.stack.len() * 8);
    key.extend((sample.stack.len() as u64).to_le_bytes());
    for &index in sample.stack {
        let location = profile.location(index as usize);
        key.extend(location.address.to_le_bytes());
        if location.address != 0 {
            continue;
        }
        // Such as `[overflow]` and logical spans, which have no address of their own.
        for line in location.lines {
            key.extend(line.line.to_le_bytes());
            let function = profile.functions.get(line.function.index());
            let function = function.copied().unwrap_or_default();
            for text in [function.name, function.system_name, function.filename] {
                put(&mut key, profile.strings.get(text));
            }
        }
    }
    let mut labels: Vec<Vec<u8>> = sample
        .labels
        .iter()
        .map(|label| {
            let mut text = Vec::new();
            put(&mut text, profile.strings.get(label.key));
            match label.value {
                LabelValue::Str(value) => put(&mut text, profile.strings.get(value)),
                LabelValue::Num { value, unit } => {
                    put(&mut text, profile.strings.get(unit));
                    text.extend(value.to_le_bytes());
                }
            }
            text
        })
        .collect();
    labels.sort_unstable();
    for label in labels {
        put(&mut key, &label);
    }
    key
}

fn put(key: &mut Vec<u8>, bytes: &[u8]) {
    key.extend((bytes.len() as u64).to_le_bytes());
    key.extend(bytes);
}
