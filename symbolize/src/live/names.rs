//! Names by address, where later ones replace earlier ones.

/// One function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveName {
    /// First address.
    pub start: u64,
    /// Address after the last; `u64::MAX` when the source does not tell.
    pub end: u64,
    /// Its name.
    pub name: String,
}

/// Functions by address.
#[derive(Clone, Debug, Default)]
pub struct LiveNames(Vec<LiveName>);

impl LiveNames {
    /// Sorts; of several at one address the last one holds. One without an end reaches to the next.
    pub(crate) fn new(mut names: Vec<LiveName>) -> LiveNames {
        names.reverse();
        names.sort_by_key(|n| n.start);
        names.dedup_by_key(|n| n.start);
        for i in 1..names.len() {
            let next = names[i].start;
            names[i - 1].end = names[i - 1].end.min(next);
        }
        LiveNames(names)
    }

    /// The function that holds `address`.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<&LiveName> {
        let after = self.0.partition_point(|n| n.start <= address);
        let found = self.0.get(after.checked_sub(1)?)?;
        (address < found.end).then_some(found)
    }

    /// Number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
