//! One job: its discovery, and the loops of the targets found.

use crate::config::{Group, ScrapeConfig};
use crate::discovery::FileSource;
use crate::looping::{self, Shared};
use crate::report::{Board, TargetState};
use crate::target::{Rejected, targets};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often discovery files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The running loops of a job; dropping it ends them.
pub(crate) struct Pool {
    job: Arc<ScrapeConfig>,
    shared: Arc<Shared>,
    board: Arc<Board>,
    loops: BTreeMap<u64, Running>,
    files: Vec<FileSource>,
}

struct Running {
    state: Arc<TargetState>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pool {
    pub fn new(job: ScrapeConfig, shared: Arc<Shared>, board: Arc<Board>) -> Self {
        Self {
            files: job
                .file_sd_configs
                .iter()
                .cloned()
                .map(FileSource::new)
                .collect(),
            job: Arc::new(job),
            shared,
            board,
            loops: BTreeMap::new(),
        }
    }

    /// Starts the loops, then follows the files for ever.
    pub async fn run(mut self) {
        self = self.look(true).await;
        self.sync();
        if self.files.is_empty() {
            // the loops end with this task
            std::future::pending::<()>().await;
        }
        let clock = Arc::clone(&self.shared.clock);
        let mut forced = clock.monotonic();
        let every = self
            .job
            .file_sd_configs
            .iter()
            .map(|files| files.refresh_interval)
            .min();
        loop {
            clock.sleep(LOOK).await;
            let now = clock.monotonic();
            let force = every.is_some_and(|every| now >= forced + every);
            if force {
                forced = now;
            }
            self = self.look(force).await;
        }
    }

    async fn look(mut self, force: bool) -> Self {
        let mut files = std::mem::take(&mut self.files);
        let looked = tokio::task::spawn_blocking(move || {
            let found: Vec<_> = files.iter_mut().map(|file| file.refresh(force)).collect();
            (files, found)
        });
        // a panic in there would lose the files: then the job stays as it is
        let Ok((files, found)) = looked.await else {
            return self;
        };
        self.files = files;
        for news in found.iter().flat_map(|refresh| &refresh.news) {
            (self.shared.log)(news);
        }
        if found
            .iter()
            .any(|refresh| refresh.changed || !refresh.news.is_empty())
        {
            self.sync();
        }
        self
    }

    /// Starts what is new, ends what is gone; loops of unchanged targets are not touched.
    fn sync(&mut self) {
        let (good, bad) = {
            let groups = self.job.static_configs.iter();
            let groups: Vec<&Group> = groups
                .chain(self.files.iter().flat_map(FileSource::groups))
                .collect();
            targets(&self.job, groups)
        };
        let mut before = std::mem::take(&mut self.loops);
        for target in good {
            let kept = before
                .remove(&target.identity)
                .filter(|running| running.state.target == target);
            let running = kept.unwrap_or_else(|| self.start(TargetState::new(target)));
            self.loops.insert(running.state.target.identity, running);
        }
        self.say_rejected(&bad);
        let active = self
            .loops
            .values()
            .map(|running| Arc::clone(&running.state))
            .collect();
        let failing = self.files.iter().map(FileSource::failing).sum();
        self.board.set(&self.job.job_name, active, bad, failing);
    }

    fn start(&self, state: TargetState) -> Running {
        let state = Arc::new(state);
        let task = looping::run(
            Arc::clone(&self.shared),
            Arc::clone(&self.job),
            Arc::clone(&state),
        );
        Running {
            state,
            task: tokio::spawn(task),
        }
    }

    fn say_rejected(&self, bad: &[Rejected]) {
        // What a rule drops is in the list of targets.
        for rejected in bad.iter().filter(|rejected| !rejected.by_rule) {
            let address = rejected.discovered.get("__address__").unwrap_or_default();
            (self.shared.log)(&format!(
                "job {:?}, target {address:?} is left out: {}",
                rejected.job, rejected.reason
            ));
        }
    }
}
