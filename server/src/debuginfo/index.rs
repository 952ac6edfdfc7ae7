//! Which stored file is the best for a build id.

use std::collections::HashMap;
use std::sync::Arc;

use super::facts::{Quality, normal_id};
use super::record::Record;

/// Whether a file would be of use, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing is known of this build id.
    First,
    /// What is stored tells less.
    Better,
    /// What is stored has no machine code, and this has.
    Code,
    /// What is stored cannot be read, and this may be another file.
    Instead,
    /// What is stored tells as much or more.
    No,
}

impl Wanted {
    /// Whether to send it.
    pub fn yes(self) -> bool {
        self != Self::No
    }

    /// One word for the API.
    pub fn text(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Better => "better",
            Self::Code => "has_code",
            Self::Instead => "stored_one_is_unreadable",
            Self::No => "have_as_good",
        }
    }
}

/// Files of one key: the one that tells most, and, if that has no code, one that has.
#[derive(Default)]
struct Best {
    names: Option<Arc<Record>>,
    code: Option<Arc<Record>>,
}

impl Best {
    fn holds(&self, sha256: &str) -> bool {
        let both = self.names.iter().chain(&self.code);
        both.into_iter().any(|record| record.sha256 == sha256)
    }

    fn records(&self) -> Vec<Arc<Record>> {
        let mut all: Vec<_> = self.names.iter().chain(&self.code).cloned().collect();
        all.dedup_by(|a, b| a.sha256 == b.sha256);
        all
    }
}

/// All stored files. Filled from their descriptions at a start.
#[derive(Default)]
pub struct Index {
    best: HashMap<String, Best>,
    /// Id → key.
    ids: HashMap<String, String>,
    /// Name of a binary → files called so.
    names: HashMap<String, usize>,
    bytes: u64,
}

impl Index {
    /// Files that tell of a build id: the one that tells most, and one with code.
    pub fn find(&self, build_id: &str) -> Option<(Arc<Record>, Option<Arc<Record>>)> {
        let best = self.best.get(self.ids.get(&normal_id(build_id))?)?;
        Some((best.names.clone()?, best.code.clone()))
    }

    /// Whether some file of this name is stored.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All files.
    pub fn all(&self) -> Vec<Arc<Record>> {
        let mut all: Vec<_> = self.best.values().flat_map(Best::records).collect();
        all.sort_by(|a, b| (&a.name, &a.sha256).cmp(&(&b.name, &b.sha256)));
        all
    }

    /// Whether a file of this quality would be of use.
    pub fn wanted(&self, build_id: &str, quality: Quality, has_code: bool) -> Wanted {
        match self.find(build_id) {
            None => Wanted::First,
            Some((stored, _)) if stored.failed.is_some() => Wanted::Instead,
            Some((stored, _)) if quality > stored.rank() => Wanted::Better,
            Some((_, None)) if has_code => Wanted::Code,
            Some(_) => Wanted::No,
        }
    }

    /// Takes a file in, unless what is there is as good. Answers whether it counts now, and the
    /// files that do not count any more.
    pub fn insert(&mut self, record: Record) -> (bool, Vec<Arc<Record>>) {
        let key = record.key();
        let record = Arc::new(record);
        let best = self.best.entry(key.clone()).or_default();
        let before = best.records();
        let known = best.holds(&record.sha256);
        // Sent again, perhaps to a server that reads more: it is tried anew.
        for slot in [&mut best.names, &mut best.code].into_iter().flatten() {
            if slot.sha256 == record.sha256 && slot.failed.is_some() {
                *slot = record.clone();
            }
        }
        let rank = |of: &Option<Arc<Record>>| of.as_ref().map(|record| record.rank());
        let unreadable = best.names.as_ref().is_some_and(|of| of.failed.is_some());
        if !known && (rank(&best.names) < Some(record.rank()) || unreadable) {
            best.names = Some(record.clone());
            if record.has_code {
                best.code = Some(record.clone());
            }
        }
        if !known && record.has_code && best.code.is_none() {
            best.code = Some(record.clone());
        }
        let counts = best.holds(&record.sha256);
        let replaced = before.iter().filter(|of| !best.holds(&of.sha256));
        let replaced: Vec<_> = replaced.cloned().collect();
        if counts && !known {
            for id in record.ids() {
                self.ids.insert(id, key.clone());
            }
            *self.names.entry(record.name.clone()).or_default() += 1;
            self.bytes += record.size_bytes;
        }
        for gone in &replaced {
            self.bytes -= gone.size_bytes;
        }
        (counts, replaced)
    }

    /// Notes that a file's names cannot be read; answers its description, if it is still there.
    pub fn fail(&mut self, key: &str, sha256: &str, reason: &str) -> Option<Record> {
        let best = self.best.get_mut(key)?;
        let mut changed = None;
        for slot in [&mut best.names, &mut best.code] {
            if let Some(record) = slot.as_mut().filter(|of| of.sha256 == sha256) {
                let mut failed = Record::clone(record);
                failed.failed = Some(reason.to_owned());
                *record = Arc::new(failed.clone());
                changed = Some(failed);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Facts;
    use super::super::record::Source;
    use super::*;

    fn record(quality: Quality, has_code: bool, sha: &str) -> Record {
        let facts = Facts {
            gnu: Some("ab12".to_owned()),
            htlhash: format!("0{}", sha.len()),
            quality,
            has_code,
            ..Facts::default()
        };
        Record::new(&facts, 100, sha, "app", Source::Upload)
    }

    fn names(index: &Index) -> String {
        index.find("AB12").unwrap().0.sha256.clone()
    }

    #[test]
    fn a_better_file_replaces_a_worse_and_never_the_reverse() {
        let mut index = Index::default();
        assert_eq!(index.wanted("ab12", Quality::Dynsym, false), Wanted::First);
        assert!(index.insert(record(Quality::Symtab, false, "s")).0);
        assert_eq!(index.wanted("AB12", Quality::Dwarf, false), Wanted::Better);
        assert_eq!(index.wanted("ab12", Quality::Symtab, false), Wanted::No);
        let (counts, gone) = index.insert(record(Quality::Dwarf, false, "d"));
        assert!(counts && gone.len() == 1 && gone[0].sha256 == "s");
        for worse in [Quality::Split, Quality::Symtab, Quality::Dynsym] {
            let (counts, gone) = index.insert(record(worse, false, "w"));
            assert!(!counts && gone.is_empty(), "{worse:?}");
        }
        assert!(!index.insert(record(Quality::Dwarf, false, "as good")).0);
        assert_eq!((names(&index).as_str(), index.bytes()), ("d", 100));
    }

    #[test]
    fn a_file_with_code_is_kept_beside_one_that_names_more() {
        let mut index = Index::default();
        index.insert(record(Quality::Dwarf, false, "debug"));
        assert_eq!(index.wanted("ab12", Quality::Dynsym, true), Wanted::Code);
        assert!(index.insert(record(Quality::Dynsym, true, "stripped")).0);
        assert_eq!(index.wanted("ab12", Quality::Dynsym, true), Wanted::No);
        let (best, code) = index.find("ab12").unwrap();
        assert_eq!(best.sha256, "debug");
        assert_eq!(code.unwrap().sha256, "stripped");
        assert_eq!(index.bytes(), 200);
        assert!(!index.insert(record(Quality::Dynsym, true, "again")).0);
    }

    #[test]
    fn an_unreadable_file_gives_way_to_any_other() {
        let mut index = Index::default();
        index.insert(record(Quality::Dwarf, false, "bad"));
        assert!(index.fail("gnu-ab12", "bad", "cut").is_some());
        assert!(index.fail("gnu-ab12", "other", "cut").is_none());
        assert_eq!(
            index.wanted("ab12", Quality::Symtab, false),
            Wanted::Instead
        );
        let (counts, gone) = index.insert(record(Quality::Dwarf, false, "bad"));
        assert!(counts && gone.is_empty() && index.bytes() == 100);
        assert_eq!(index.wanted("ab12", Quality::Symtab, false), Wanted::No);
        index.fail("gnu-ab12", "bad", "cut again");
        let (counts, gone) = index.insert(record(Quality::Symtab, false, "good"));
        assert!(counts && gone[0].sha256 == "bad");
        assert_eq!(index.wanted("ab12", Quality::Dwarf, false), Wanted::Better);
    }
}
