//! `ProfileStoreService`'s Arrow calls: `WriteArrow` (schema v2, one call) and `Write` (v1: samples, the
//! ids of stacks that are asked for, and the stacks).

mod group;
mod rows;
mod stacks;

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use pilotlight_profile::{Limits, Profile, Report};
use tonic::Streaming;

use super::super::intake::{self, Notes};
use super::super::pyroscope::{connect, proto as pyroscope, push};
use super::super::{ApiError, App};
use super::proto::{Empty, Record, WriteArrow};
use crate::arrow::{self, Array, Batch, Fault};
use crate::hash::Identity;
use crate::ingest::writer::Ticket;
use rows::{All, Converted, Samples};
use stacks::Stacks;

/// What a stream unpacks to, in multiples of its bytes: less is more than any profile needs.
const MOST_RATIO: usize = 100;
const ALWAYS_BYTES: usize = 8 << 20;

/// The note of a schema that says which one it is.
const VERSION: &str = "parca_write_schema_version";

/// `WriteArrow`.
pub async fn write_arrow(State(app): State<Arc<App>>, request: Request) -> Response {
    connect::ingest(app, request, |app, request: WriteArrow| async move {
        let result = store(&app, request.ipc_buffer.into(), None).await;
        result.inspect_err(|error| intake::count_refusal(&app, error))
    })
    .await
}

/// `Write`.
pub async fn write(State(app): State<Arc<App>>, request: Request) -> Response {
    let limit = usize::try_from(app.limits.wire_bytes).unwrap_or(usize::MAX);
    let codec = tonic_prost::ProstCodec::<Record, Record>::default();
    let mut server = tonic::server::Grpc::new(codec)
        .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
        .apply_max_message_size_config(Some(limit), None);
    let answer = server.streaming(Exchange(app), request).await;
    answer.map(Body::new)
}

struct Exchange(Arc<App>);

type Answers = Pin<Box<dyn Stream<Item = Result<Record, tonic::Status>> + Send>>;
type Answer = Result<tonic::Response<Answers>, tonic::Status>;

impl tonic::server::StreamingService<Record> for Exchange {
    type Response = Record;
    type ResponseStream = Answers;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<Record>>) -> Self::Future {
        let turns = Turns {
            app: self.0.clone(),
            incoming: request.into_inner(),
            samples: None,
            held: Vec::new(),
        };
        let answers = futures_util::stream::unfold(Some(turns), |turns| async move {
            let mut turns = turns?;
            match turns.next().await {
                Ok((answer, true)) => Some((Ok(answer), None)),
                Ok((answer, false)) => Some((Ok(answer), Some(turns))),
                Err(error) => {
                    intake::count_refusal(&turns.app, &error);
                    Some((Err(intake::status(&error)), None))
                }
            }
        });
        Box::pin(async { Ok(tonic::Response::new(Box::pin(answers) as Answers)) })
    }
}

/// One exchange: samples, then their stacks.
struct Turns {
    app: Arc<App>,
    incoming: Streaming<Record>,
    samples: Option<Bytes>,
    held: Vec<tokio::sync::OwnedSemaphorePermit>,
}

impl Turns {
    /// What is answered to the next message, and whether that ends it.
    async fn next(&mut self) -> Result<(Record, bool), ApiError> {
        let message = match self.incoming.next().await {
            Some(Ok(message)) => message.record,
            Some(Err(status)) => return Err(ApiError::bad(status.message())),
            None => return Err(ApiError::bad("the stream ended before its stacks came")),
        };
        let budget = intake::reserve(&self.app, message.len() as u64).await?;
        self.held.push(budget);
        match self.samples.take() {
            Some(samples) => {
                store(&self.app, samples, Some(message)).await?;
                Ok((Record::default(), true))
            }
            None => {
                let record = asked(&message, &self.app.limits)?;
                let Some(record) = record else {
                    store(&self.app, message, None).await?;
                    return Ok((Record::default(), true));
                };
                self.samples = Some(message);
                let record = record.into();
                Ok((Record { record }, false))
            }
        }
    }
}

fn refused(fault: &Fault) -> ApiError {
    ApiError::bad(fault.to_string())
}

fn most(bytes: &[u8], limits: &Limits) -> usize {
    let most = usize::try_from(limits.inflated_bytes).unwrap_or(usize::MAX);
    let ratio = bytes.len().saturating_mul(MOST_RATIO);
    most.min(ratio.max(ALWAYS_BYTES))
}

/// All batches of a stream, and which schema it has.
fn batches<'a>(bytes: &'a [u8], limits: &Limits) -> Result<(String, Vec<Batch<'a>>), Fault> {
    let mut stream = arrow::Stream::new(bytes, most(bytes, limits))?;
    let notes = &stream.schema().notes;
    let version = notes.iter().find(|(key, _)| key == VERSION);
    let version = version.map(|(_, value)| value.clone()).unwrap_or_default();
    let mut batches = Vec::new();
    while let Some(batch) = stream.next()? {
        batches.push(batch);
    }
    Ok((version, batches))
}

/// The ids of all stacks of these samples, as a record; none when they bring their stacks along.
fn asked(samples: &[u8], limits: &Limits) -> Result<Option<Vec<u8>>, ApiError> {
    let (_, batches) = batches(samples, limits).map_err(|fault| refused(&fault))?;
    let mut ids = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for batch in &batches {
        if Stacks::inline(&batch.root).is_some() {
            return Ok(None);
        }
        let column = batch.root.child("stacktrace_id");
        let column = column.ok_or_else(|| ApiError::bad("column \"stacktrace_id\" is missing"))?;
        for row in 0..column.len {
            // A row that names no id is counted when the stacks have come.
            if let Ok(Some(id)) = column.bytes(row)
                && seen.insert(id)
            {
                ids.push(id.to_vec());
            }
        }
    }
    let rows = ids.len();
    let columns = [("stacktrace_id", Array::Binary(ids))];
    Ok(Some(arrow::stream(&columns, &[(VERSION, "v1")], rows)))
}

/// Profiles of a write; `stacks` is the second record of v1.
fn convert(samples: &[u8], stacks: Option<&[u8]>, limits: &Limits) -> Result<All, Fault> {
    let (version, samples) = batches(samples, limits)?;
    if !matches!(version.as_str(), "v1" | "v2") {
        return Err(Fault::new(format!(
            "the schema says {VERSION} {version:?}; v1 and v2 are known here"
        )));
    }
    let stacks = match stacks {
        Some(bytes) => batches(bytes, limits)?.1,
        None => Vec::new(),
    };
    let mut all = All::default();
    for batch in &samples {
        let root = &batch.root;
        let of = match (Stacks::inline(root), stacks.first()) {
            (Some(of), _) => of,
            (None, Some(record)) => Stacks::by_id(root, &record.root)?,
            (None, None) => {
                return Err(Fault::new(
                    "the samples have no stacks: schema v1 is sent by Write, not by WriteArrow",
                ));
            }
        };
        Samples::of(root)?.convert(&of, limits, &mut all);
    }
    Ok(all)
}

/// The profiles alone; none of a write that cannot be read.
pub fn profiles(samples: &[u8], stacks: Option<&[u8]>, limits: &Limits) -> Vec<Profile> {
    let all = convert(samples, stacks, limits).unwrap_or_default();
    all.profiles.into_iter().map(|of| of.profile).collect()
}

/// Stores what is good, and says what is not.
async fn store(app: &Arc<App>, samples: Bytes, stacks: Option<Bytes>) -> Result<Empty, ApiError> {
    let work = move |app: &App| match convert(&samples, stacks.as_deref(), &app.limits) {
        Err(fault) => vec![Err(refused(&fault))],
        Ok(all) => taken(app, all, &samples),
    };
    let (stored, fault) = intake::several(app, work).await?;
    match fault {
        None => Ok(Empty {}),
        Some(error) => {
            let message = format!("{} ({stored} profiles of it are stored)", error.message);
            Err(ApiError { message, ..error })
        }
    }
}

fn taken(app: &App, all: All, content: &[u8]) -> Vec<Result<(Ticket, Notes), ApiError>> {
    let content = Identity::of(&[content]).to_le_bytes();
    let profiles = all.profiles.into_iter().enumerate();
    let mut results: Vec<_> = profiles
        .map(|(number, profile)| take(app, profile, number, &content))
        .collect();
    if all.bad_rows > 0 {
        let rows = all.bad_rows;
        app.engine.metrics.reason("dropped", "malformed_row", rows);
        let fault = all.fault.unwrap_or_default();
        results.push(Err(ApiError::bad(format!(
            "{rows} rows are malformed: {fault}"
        ))));
    }
    results
}

fn take(
    app: &App,
    of: Converted,
    number: usize,
    content: &[u8],
) -> Result<(Ticket, Notes), ApiError> {
    let mut labels = of.labels;
    labels.push(("__name__".to_owned(), of.name));
    service(&mut labels);
    let pair = |(name, value)| pyroscope::LabelPair { name, value };
    let series = pyroscope::RawSeries {
        labels: labels.into_iter().map(pair).collect(),
        samples: Vec::new(),
    };
    let offer = push::offer(app, &series, "")?;
    intake::admit_series(app, &offer)?;
    // The same write again is the same profiles in the same order.
    let content = [content, &number.to_le_bytes()].concat();
    intake::store(app, &offer, of.profile, Report::default(), &content)
}

/// parca-agent knows no services: what it calls them instead, the nearest first.
fn service(labels: &mut Vec<(String, String)>) {
    let value = |name: &str| {
        let found = labels
            .iter()
            .find(|(of, value)| of == name && !value.is_empty());
        found.map(|(_, value)| value.clone())
    };
    if value("service_name").is_none()
        && let Some(name) = ["container", "systemd_unit", "job", "comm"]
            .into_iter()
            .find_map(value)
    {
        labels.push(("service_name".to_owned(), name));
    }
}
