//! What tolerant decoding changed.

/// Counts of what [`decode`](crate::decode()) repaired, kept although odd, or dropped. All zero
/// after a strict decode, except for empty labels, which every reader drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    counts: [u64; Reason::ALL.len()],
}

/// Why something was changed or noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Repaired: an entry with id 0 (real .NET profiles) got another id.
    ZeroId,
    /// Repaired: of entries with one id, the last is the one referred to.
    DuplicateId,
    /// Repaired: a string index outside the table became the empty string.
    BadStringIndex,
    /// Repaired: a location in a mapping that does not exist has no mapping.
    UnknownMapping,
    /// Kept: a string that is not UTF-8.
    NonUtf8String,
    /// Kept: a sample without a stack.
    EmptyStack,
    /// Dropped: a line of a location, naming a function that does not exist.
    UnknownFunction,
    /// Dropped: a frame of a sample, naming a location that does not exist.
    UnknownLocation,
    /// Dropped: a sample whose values do not fit the sample types.
    ValueCount,
    /// Dropped: a label with neither text nor number.
    EmptyLabel,
}

/// What became of the thing counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was changed.
    Repaired,
    /// It was left as it is.
    Kept,
    /// It is gone.
    Dropped,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 10] = [
        Reason::ZeroId,
        Reason::DuplicateId,
        Reason::BadStringIndex,
        Reason::UnknownMapping,
        Reason::NonUtf8String,
        Reason::EmptyStack,
        Reason::UnknownFunction,
        Reason::UnknownLocation,
        Reason::ValueCount,
        Reason::EmptyLabel,
    ];

    /// Name for metrics and answers, in snake case.
    pub fn name(self) -> &'static str {
        match self {
            Reason::ZeroId => "zero_id",
            Reason::DuplicateId => "duplicate_id",
            Reason::BadStringIndex => "bad_string_index",
            Reason::UnknownMapping => "unknown_mapping",
            Reason::NonUtf8String => "non_utf8_string",
            Reason::EmptyStack => "empty_stack",
            Reason::UnknownFunction => "unknown_function",
            Reason::UnknownLocation => "unknown_location",
            Reason::ValueCount => "value_count",
            Reason::EmptyLabel => "empty_label",
        }
    }

    /// What becomes of it.
    pub fn outcome(self) -> Outcome {
        match self {
            Reason::ZeroId
            | Reason::DuplicateId
            | Reason::BadStringIndex
            | Reason::UnknownMapping => Outcome::Repaired,
            Reason::NonUtf8String | Reason::EmptyStack => Outcome::Kept,
            Reason::UnknownFunction
            | Reason::UnknownLocation
            | Reason::ValueCount
            | Reason::EmptyLabel => Outcome::Dropped,
        }
    }
}

impl Report {
    /// How often.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize]
    }

    /// Whether nothing was changed or noted.
    pub fn is_clean(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// Reasons with this outcome that occurred, by name.
    pub fn iter(&self, outcome: Outcome) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let with_outcome = Reason::ALL.iter().filter(move |r| r.outcome() == outcome);
        let counted = with_outcome.map(|&reason| (reason.name(), self.count(reason)));
        counted.filter(|&(_, count)| count > 0)
    }

    /// What was repaired, by reason.
    pub fn repaired(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.iter(Outcome::Repaired)
    }

    /// What was dropped, by reason.
    pub fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.iter(Outcome::Dropped)
    }

    pub(crate) fn add(&mut self, reason: Reason, count: u64) {
        self.counts[reason as usize] += count;
    }
}
