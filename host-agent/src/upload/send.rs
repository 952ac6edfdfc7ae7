//! Questions and bytes.

use super::UploadCounters;
use super::bucket::Bucket;
use super::candidate::Candidate;
use pilotlight_wire::{Bytes, Call, Client, Rng, Url};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Bytes of one request.
const PIECE: usize = 4 << 20;
/// Files of one question.
const QUESTIONS: usize = 64;
/// After a failure the rest of the files waits this long.
const PAUSE: Duration = Duration::from_secs(5);
const TRIES: u32 = 5;

/// The way to the server.
pub(super) struct Road {
    pub client: Client,
    pub server: Url,
    pub bucket: Bucket,
    pub jitter: Duration,
    pub rng: Arc<dyn Rng>,
    pub counters: Arc<UploadCounters>,
}

impl Road {
    /// Asks and sends until the queue ends.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Candidate>) {
        let mut some = Vec::new();
        while queue.recv_many(&mut some, 1).await > 0 {
            tokio::time::sleep(self.jitter.mul_f64(self.rng.fraction())).await;
            while some.len() < QUESTIONS
                && let Ok(more) = queue.try_recv()
            {
                some.push(more);
            }
            self.all(std::mem::take(&mut some)).await;
        }
    }

    async fn all(&mut self, files: Vec<Candidate>) {
        let wanted = self.wanted(&files).await;
        for (index, file) in files.into_iter().enumerate() {
            let counters = &self.counters;
            let count = match wanted.as_ref().and_then(|wanted| wanted.get(index)) {
                Some(true) => match self.send(Arc::new(file)).await {
                    Some(true) => &self.counters.sent,
                    Some(false) => &self.counters.not_wanted,
                    None => &self.counters.failed,
                },
                Some(false) => &counters.not_wanted,
                None => &counters.failed,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Which of them the server wants; `None` when it does not answer, or takes no files.
    async fn wanted(&self, files: &[Candidate]) -> Option<Vec<bool>> {
        let ask = |of: &Candidate| json!({ "build_id": of.build_id, "quality": of.quality });
        let body = json!({ "files": files.iter().map(ask).collect::<Vec<_>>() });
        let answer = self
            .tries("/api/v1/debuginfo/wanted", &[], || body.to_string().into())
            .await?;
        let answers = answer["files"].as_array()?;
        Some(answers.iter().map(|file| file["wanted"] == true).collect())
    }

    /// Sends what the server lacks of a file. `Some(false)`: somebody else has sent it meanwhile.
    async fn send(&mut self, file: Arc<Candidate>) -> Option<bool> {
        let hashed = Arc::clone(&file);
        let sha256 = tokio::task::spawn_blocking(move || hashed.sha256())
            .await
            .ok()?
            .ok()?;
        let announced = json!({
            "build_id": file.build_id,
            "quality": file.quality,
            "size_bytes": file.size_bytes,
            "sha256": sha256,
            "name": file.name,
        });
        let body = || announced.to_string().into();
        let started = self.tries("/api/v1/debuginfo/uploads", &[], body).await?;
        let Some(id) = started["upload"].as_str() else {
            return Some(false);
        };
        let target = format!("/api/v1/debuginfo/uploads/{id}");
        let mut offset = started["offset"].as_u64()?;
        while offset < file.size_bytes {
            let piece = Bytes::from(file.piece(offset, PIECE).ok()?);
            let wait = self.bucket.take(piece.len() as u64, Instant::now());
            tokio::time::sleep(wait).await;
            let at = offset.to_string();
            let sent = self
                .tries(&target, &[("offset", &at)], || piece.clone())
                .await?;
            let received = sent["offset"].as_u64()?;
            // It says what is next, also where it was sent something else.
            (offset, _) = (received, (received != offset).then_some(())?);
        }
        let done = self
            .tries(&format!("{target}/finish"), &[], Bytes::new)
            .await?;
        Some(done["state"] == "stored")
    }

    /// A request that may be tried again; its JSON.
    async fn tries(
        &self,
        path: &str,
        pairs: &[(&str, &str)],
        body: impl Fn() -> Bytes,
    ) -> Option<Value> {
        for tried in 0..TRIES {
            let url = self.server.with_path_and_query(path, pairs.iter().copied());
            let call = Call::post(url, body()).timeout(Duration::from_secs(60));
            let again = match self.client.send(call).await {
                Ok(answer) if matches!(answer.status.as_u16(), 200 | 201 | 409) => {
                    return serde_json::from_slice(&answer.body).ok();
                }
                Ok(answer) => answer.status.as_u16() == 429 || answer.status.is_server_error(),
                Err(_) => true,
            };
            if !again {
                return None;
            }
            if tried + 1 < TRIES {
                tokio::time::sleep(PAUSE.mul_f64(0.5 + self.rng.fraction())).await;
            }
        }
        None
    }
}
