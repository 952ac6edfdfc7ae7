//! One build id, looked for everywhere: folders of this machine first, then the servers.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tokio::runtime::Handle;

use super::super::facts::Quality;
use super::super::objects::Fetched;
use super::super::parse::Unread;
use super::super::record::Source;
use super::super::store::Debuginfo;
use super::super::upload::{Arrived, base_name, sha256_of};
use super::asking::Quest;
use super::debuginfod::NotGiven;
use super::{Outcome, folders};
use crate::log;

impl Debuginfo {
    /// Looks for what was wanted, until [`Debuginfo::stop`]. For a thread of its own.
    pub fn run_sources(&self, runtime: &Handle) {
        while let Some(quest) = self.asking.next() {
            let outcome = self.look(&quest, runtime);
            self.asking.done(&quest.build_id, outcome, self.now_ns());
        }
    }

    /// Looks for one build id; whatever tells functions ends it.
    fn look(&self, quest: &Quest, runtime: &Handle) -> Outcome {
        if self.tells_functions(&quest.build_id) {
            return Outcome::NotNeeded;
        }
        let mut outcome = Outcome::Missing;
        if !self.sources().folders.is_empty() {
            outcome = self.look_in_folders(quest);
            self.asking.counts().add(Source::Folder, outcome);
        }
        if self.tells_functions(&quest.build_id) || self.sources().debuginfod.is_empty() {
            return outcome;
        }
        let asked = runtime.block_on(async {
            tokio::select! {
                asked = self.ask_servers(quest) => asked,
                () = self.asking.stopped() => Outcome::Dropped,
            }
        });
        self.asking.counts().add(Source::Debuginfod, asked);
        match (outcome, asked) {
            (Outcome::Stored, _) => Outcome::Stored,
            _ => asked,
        }
    }

    fn tells_functions(&self, build_id: &str) -> bool {
        let best = self.of_build_id(build_id);
        best.is_some_and(|(best, _)| best.rank() >= Quality::Symtab)
    }

    fn look_in_folders(&self, quest: &Quest) -> Outcome {
        let mut outcome = Outcome::Missing;
        for folder in &self.sources().folders {
            let places = folders::places(folder, &quest.build_id);
            let shared = folders::shared(folder, &quest.path);
            for place in shared.into_iter().chain(places) {
                let took = self.take_from(&place, quest);
                if took != Outcome::Missing {
                    outcome = took;
                }
                if took == Outcome::Stored && self.tells_functions(&quest.build_id) {
                    return took;
                }
            }
        }
        outcome
    }

    /// Copies a file of this machine, and stores the copy.
    fn take_from(&self, place: &Path, quest: &Quest) -> Outcome {
        let copied = folders::open(place).and_then(|(file, metadata)| {
            if metadata.len() > self.max_file_bytes() {
                return Ok(None);
            }
            self.copy(file, quest).map(Some)
        });
        match copied {
            Ok(Some(copy)) => self.take(&copy, quest, Source::Folder),
            Ok(None) => Outcome::TooLarge,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Missing,
            Err(error) => {
                let what = "a file with debug information cannot be copied";
                log::warn(what, &[("file", &place.display()), ("reason", &error)]);
                Outcome::Failed
            }
        }
    }

    fn copy(&self, file: File, quest: &Quest) -> io::Result<Fetched> {
        let copy = self.scratch_file(quest);
        let mut bounded = io::Read::take(file, self.max_file_bytes());
        io::copy(&mut bounded, &mut File::create(copy.path())?)?;
        Ok(copy)
    }

    /// A place for a file on its way in; what stays of a crash is removed at the next start.
    fn scratch_file(&self, quest: &Quest) -> Fetched {
        let path: PathBuf = self.scratch().join(format!("{}.fetched", quest.build_id));
        Fetched { path, copy: true }
    }

    /// Asks one server after the other, until one gives a file that is stored.
    async fn ask_servers(&self, quest: &Quest) -> Outcome {
        let mut outcome = Outcome::Missing;
        for server in 0..self.client.servers() {
            let file = self.scratch_file(quest);
            let asked = self.client.ask(server, &quest.build_id, file.path()).await;
            let took = match asked {
                // Blocks: this thread has nothing else to do.
                Ok(()) => self.take(&file, quest, Source::Debuginfod),
                Err(not) => {
                    self.client.log(server, &quest.build_id, &not);
                    not.outcome
                }
            };
            if matches!(took, Outcome::Stored | Outcome::NotNeeded) {
                return took;
            }
            if took != Outcome::Missing {
                outcome = took;
            }
        }
        outcome
    }

    /// Checks a file that was fetched, and stores it if it is of use.
    fn take(&self, file: &Fetched, quest: &Quest, source: Source) -> Outcome {
        self.try_take(file, quest, source).unwrap_or_else(|not| {
            log::warn(
                "a fetched file with debug information is not stored",
                &[
                    ("build_id", &quest.build_id),
                    ("outcome", &not.outcome.word()),
                    ("reason", &not.reason),
                ],
            );
            not.outcome
        })
    }

    fn try_take(&self, file: &Fetched, quest: &Quest, source: Source) -> Result<Outcome, NotGiven> {
        let not = |outcome, reason| NotGiven { outcome, reason };
        let disk = |error: io::Error| not(Outcome::Failed, error.to_string());
        let facts = self.inspect(file.path()).map_err(|unread| match unread {
            Unread::File(reason) => not(Outcome::Unreadable, reason),
            Unread::Here(reason) => not(Outcome::Failed, reason),
        })?;
        if facts.gnu.as_deref() != Some(&quest.build_id) {
            let has = facts.gnu.unwrap_or_default();
            return Err(not(
                Outcome::WrongId,
                format!("it has the build id {has:?}"),
            ));
        }
        let size_bytes = fs::metadata(file.path()).map_err(disk)?.len();
        if !self
            .wanted(&quest.build_id, facts.quality, facts.has_code)
            .yes()
        {
            return Ok(Outcome::NotNeeded);
        }
        self.check_room(size_bytes)
            .map_err(|error| not(Outcome::Full, error.to_string()))?;
        let arrived = Arrived {
            sha256: sha256_of(file.path()).map_err(disk)?,
            path: file.path().to_owned(),
            facts,
            size_bytes,
            name: base_name(&quest.name).to_owned(),
            source,
        };
        let (_, counts) = self.store(arrived).map_err(disk)?;
        Ok(if counts {
            Outcome::Stored
        } else {
            Outcome::NotNeeded
        })
    }
}
