//! A profile reduced to its totals.

use pilotlight_profile::{LabelSetId, Profile, ProfileBuilder};

/// The only frame of what is kept.
const FRAME: &[u8] = b"[stacks left out by a sampling rule]";

/// The same profile with one sample: the sums of what would have been stored, so that totals and
/// timelines stay true. Negative values are not stored, so they are not summed.
pub fn totals(profile: &Profile) -> Profile {
    let text = |id| String::from_utf8_lossy(profile.strings.get(id)).into_owned();
    let mut out = ProfileBuilder::new();
    for of in &profile.sample_types {
        out.sample_type(&text(of.ty), &text(of.unit));
    }
    let of = profile.period_type;
    out.period(&text(of.ty), &text(of.unit), profile.period);
    out.time(profile.time_ns, profile.duration_ns);
    let name = out.string(FRAME);
    let none = out.string(b"");
    let function = out.function(name, name, none, 0);
    let location = out.location(None, 0, &[(function, 0)]);
    let stack = out.stack(&[location]);
    let sums: Vec<i64> = (0..profile.sample_types.len())
        .map(|at| {
            profile
                .column(at)
                .filter(|&value| value > 0)
                .fold(0, i64::saturating_add)
        })
        .collect();
    out.sample(stack, LabelSetId(0), &sums);
    out.finish()
}
