//! A profile from stacks of names, within limits.

use std::collections::HashMap;

use pilotlight_profile::{
    Label, LabelSetId, LabelValue, Limits, LocationId, Profile, ProfileBuilder,
};

use super::kind::Kind;

/// What the request says of the numbers.
pub struct Numbers<'a> {
    /// What they count.
    pub kind: Kind,
    /// Between two samples, where they are samples.
    pub period_ns: i64,
    /// How much is taken.
    pub limits: &'a Limits,
}

/// Between two samples of a sender that says nothing of it.
pub const PERIOD_NS: i64 = 10_000_000;

/// Adds stacks up.
pub struct Stacks<'a> {
    out: ProfileBuilder,
    known: HashMap<Box<[u8]>, LocationId>,
    limits: &'a Limits,
    frames: u64,
    period_ns: Option<i64>,
    path: Vec<LocationId>,
}

impl<'a> Stacks<'a> {
    /// Without stacks yet.
    pub fn new(numbers: &Numbers<'a>) -> Self {
        let mut out = ProfileBuilder::new();
        let Kind { value, period, .. } = numbers.kind;
        let period_ns = numbers.kind.timed.then_some(numbers.period_ns.max(1));
        if period_ns.is_some() {
            out.sample_type("samples", "count");
        }
        out.sample_type(value.0, value.1);
        out.period(period.0, period.1, period_ns.unwrap_or(0));
        Stacks {
            out,
            known: HashMap::new(),
            limits: numbers.limits,
            frames: 0,
            period_ns,
            path: Vec::new(),
        }
    }

    /// A frame.
    pub fn frame(&mut self, name: &[u8], file: &[u8], line: i64) -> LocationId {
        let out = &mut self.out;
        let (name, file) = (out.string(name), out.string(file));
        let function = out.function(name, name, file, 0);
        out.location(None, 0, &[(function, line)])
    }

    /// A frame that has a name only.
    pub fn named(&mut self, name: &[u8]) -> LocationId {
        if let Some(&known) = self.known.get(name) {
            return known;
        }
        let new = self.frame(name, b"", 0);
        self.known.insert(name.into(), new);
        new
    }

    /// Adds `value` to the stack, which begins with the root.
    ///
    /// # Errors
    /// Of a limit, with its value.
    pub fn add(&mut self, from_root: &[LocationId], value: i64) -> Result<(), String> {
        self.add_labelled(from_root, LabelSetId(0), value)
    }

    /// The same with labels.
    ///
    /// # Errors
    /// Of a limit, with its value.
    pub fn add_labelled(
        &mut self,
        from_root: &[LocationId],
        labels: LabelSetId,
        value: i64,
    ) -> Result<(), String> {
        match self.period_ns {
            Some(period) => self.put(from_root, labels, &[value, value.saturating_mul(period)]),
            None => self.put(from_root, labels, &[value]),
        }
    }

    /// A set of labels, sorted by name.
    pub fn labels(&mut self, pairs: &[(&str, &str)]) -> LabelSetId {
        let out = &mut self.out;
        let labels = pairs.iter().map(|(name, value)| Label {
            key: out.string(name.as_bytes()),
            value: LabelValue::Str(out.string(value.as_bytes())),
        });
        let labels: Vec<Label> = labels.collect();
        out.label_set(&labels)
    }

    /// Adds nanoseconds to a stack of a kind that is timed.
    ///
    /// # Errors
    /// Of a limit, with its value.
    pub fn add_ns(&mut self, from_root: &[LocationId], ns: i64) -> Result<(), String> {
        match self.period_ns {
            Some(period) => self.put(from_root, LabelSetId(0), &[ns / period.max(1), ns]),
            None => self.put(from_root, LabelSetId(0), &[ns]),
        }
    }

    fn put(
        &mut self,
        from_root: &[LocationId],
        labels: LabelSetId,
        values: &[i64],
    ) -> Result<(), String> {
        let depth = from_root.len() as u64;
        if depth > self.limits.stack_depth {
            let limit = self.limits.stack_depth;
            return Err(format!("a stack of {depth} frames; the limit is {limit}"));
        }
        self.frames += depth;
        if self.frames > self.limits.stack_frames {
            let limit = self.limits.stack_frames;
            return Err(format!("all stacks together have more than {limit} frames"));
        }
        self.path.clear();
        self.path.extend(from_root.iter().rev());
        let stack = self.out.stack(&self.path);
        self.out.sample(stack, labels, values);
        Ok(())
    }

    /// The profile.
    pub fn finish(self) -> Profile {
        self.out.finish()
    }
}
