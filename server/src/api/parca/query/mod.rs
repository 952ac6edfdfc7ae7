//! `parca.query.v1alpha1.QueryService`, as gRPC and as Connect's protobuf.
//!
//! Reports: pprof, top, flame graph (as nested messages with tables), metadata. Others, and filters,
//! are refused: an answer without them would be of something else.

mod proto;
mod report;
pub mod select;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use prost::Message;

use super::super::pyroscope::connect;
use super::super::pyroscope::proto::LabelPair;
use super::super::run::run;
use super::super::tree::{MOST_NODES, merged};
use super::super::{ApiError, App};
use crate::query::diff::Diff;
use crate::query::engine::{Cancel, Selection};
use crate::query::selector::Selector;
use crate::query::series::default_step;
use proto::{
    Answer, Empty, HasData, LabelSet, LabelsRequest, Metadata, Options, Point, Range, RangeRequest,
    Report, Request as Asked, Series, Side, SideOptions, Time, Type, Types, TypesRequest,
    ValueType, ValuesRequest, Words,
};

/// Routes of the service.
pub fn router() -> Router<Arc<App>> {
    let at = |method: &str| format!("/parca.query.v1alpha1.QueryService/{method}");
    Router::new()
        .route(&at("ProfileTypes"), post(types))
        .route(&at("Labels"), post(labels))
        .route(&at("Values"), post(values))
        .route(&at("Series"), post(series))
        .route(&at("HasProfileData"), post(has_data))
        .route(&at("QueryRange"), post(range))
        .route(&at("Query"), post(query))
}

async fn answer<I: Message + Default + 'static, O: Message + Default + 'static>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(&App, &Cancel, I) -> Result<O, ApiError> + Send + 'static,
) -> Response {
    connect::binary(app, request, |app, input: I| async move {
        run(&app, move |app, cancel| work(app, cancel, input)).await
    })
    .await
}

/// Levels are as they are; all else is what happened since the profile before.
fn is_delta(sample_type: &str) -> bool {
    !(sample_type.starts_with("inuse") || sample_type.starts_with("goroutine"))
}

async fn types(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, input: TypesRequest| {
        let (from, until) = select::window(input.start, input.end);
        let found = app.engine.types(&Selector::default(), from, until);
        let types = found.into_iter().map(|info| Type {
            delta: is_delta(&info.sample_type),
            name: info.name,
            sample_type: info.sample_type,
            sample_unit: info.sample_unit,
            period_type: info.period_type,
            period_unit: info.period_unit,
        });
        Ok(Types {
            types: types.collect(),
        })
    })
    .await
}

async fn labels(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, input: LabelsRequest| {
        let (selector, kind) = select::matches(&input.r#match, input.profile_type.as_deref())?;
        let window = select::window(input.start, input.end);
        Ok(Words {
            words: app.engine.label_names(kind.as_deref(), &selector, window),
            warnings: Vec::new(),
        })
    })
    .await
}

async fn values(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, input: ValuesRequest| {
        let (selector, kind) = select::matches(&input.r#match, input.profile_type.as_deref())?;
        let window = select::window(input.start, input.end);
        let name = &input.label_name;
        Ok(Words {
            words: app
                .engine
                .label_values(name, kind.as_deref(), &selector, window),
            warnings: Vec::new(),
        })
    })
    .await
}

/// Parca answers nothing either.
async fn series(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |_, _, _: Empty| Ok(Empty {})).await
}

async fn has_data(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, _: Empty| {
        Ok(HasData {
            has_data: app.engine.times().is_some(),
        })
    })
    .await
}

async fn range(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, cancel, input: RangeRequest| {
        let mut window = select::window(input.start, input.end);
        if window.0 == i64::MIN || window.1 == i64::MAX {
            let (first, last) = app.engine.times().unwrap_or_default();
            window = (window.0.max(first), window.1.min(last.saturating_add(1)));
        }
        let selection = select::query(&input.query, window)?;
        let step_ns = match input.step.map_or(0, Time::ns) {
            0 => default_step(window.1.saturating_sub(window.0)),
            step => step,
        };
        if step_ns <= 0 {
            return Err(ApiError::bad("step must be more than 0 seconds"));
        }
        let by: Vec<String> = match input.sum_by.is_empty() {
            false => input.sum_by,
            // One line a series.
            true => {
                let kind = Some(selection.type_id.as_str());
                app.engine.label_names(kind, &selection.selector, window)
            }
        };
        let by: Vec<&str> = by.iter().map(String::as_str).collect();
        let (mut lines, _) = app.engine.series_by(&selection, step_ns, &by, cancel)?;
        if input.limit > 0 {
            lines.truncate(input.limit as usize);
        }
        let words: Vec<&str> = selection.type_id.split(':').collect();
        let kind = |at: usize| {
            Some(ValueType {
                r#type: words[at].to_owned(),
                unit: words[at + 1].to_owned(),
            })
        };
        let point = |(ms, value): (i64, i64)| Point {
            timestamp: Some(Time::of_ms(ms)),
            value,
            value_per_second: value as f64 / (step_ns as f64 / 1e9),
            duration: step_ns,
        };
        let series = lines.into_iter().map(|line| Series {
            labelset: Some(LabelSet {
                labels: (line.labels.into_iter())
                    .filter(|(_, value)| !value.is_empty())
                    .map(|(name, value)| LabelPair { name, value })
                    .collect(),
            }),
            samples: line.points.into_iter().map(point).collect(),
            period_type: kind(3),
            sample_type: kind(1),
        });
        Ok(Range {
            series: series.collect(),
        })
    })
    .await
}

async fn query(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, cancel, input: Asked| {
        refuse(&input)?;
        match &input.options {
            Some(Options::Merge(of)) => one(app, cancel, &select::merge(of)?, &input),
            Some(Options::Single(of)) => one(app, cancel, &select::single(of)?, &input),
            Some(Options::Diff(of)) => {
                let (base, current) = (side(of.a.as_ref())?, side(of.b.as_ref())?);
                two(app, cancel, &base, &current, &input)
            }
            None => Err(ApiError::bad("options are missing: merge, single or diff")),
        }
    })
    .await
}

fn side(side: Option<&Side>) -> Result<Selection, ApiError> {
    match side.and_then(|side| side.options.as_ref()) {
        Some(SideOptions::Merge(of)) => select::merge(of),
        Some(SideOptions::Single(of)) => select::single(of),
        None => Err(ApiError::bad("a diff needs a and b, each merge or single")),
    }
}

/// What would change the answer and is not understood.
fn refuse(asked: &Asked) -> Result<(), ApiError> {
    let some = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let groups = asked.group_by.iter().flat_map(|by| &by.fields);
    let what = if !asked.filter.is_empty() || some(&asked.filter_query) {
        "filter"
    } else if some(&asked.sandwich_by_function) {
        "sandwich_by_function"
    } else if asked.invert_call_stack == Some(true) {
        "invert_call_stack"
    } else if groups.clone().any(|field| field != "function_name") {
        "group_by other than function_name"
    } else {
        return Ok(());
    };
    Err(ApiError::bad(format!(
        "{what} is not supported here; ask for the whole selection, as pprof for example"
    )))
}

const PPROF: i32 = 1;
const TOP: i32 = 2;
const METADATA: i32 = 8;
/// Both flame graphs that are no Arrow.
const FLAMEGRAPHS: [i32; 2] = [0, 4];

fn unknown(report: i32) -> ApiError {
    let message = format!(
        "report type {report} is not made here; ask for pprof (1), top (2), a flame graph (4) or \
         metadata (8)"
    );
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
}

/// The least value of a node that stays.
fn least(asked: &Asked, total: i64) -> i64 {
    let percent = f64::from(asked.node_trim_threshold.unwrap_or(0.0)).clamp(0.0, 100.0);
    (total as f64 * percent / 100.0) as i64
}

fn unit(selection: &Selection) -> &str {
    selection.type_id.split(':').nth(2).unwrap_or_default()
}

fn one(app: &App, cancel: &Cancel, of: &Selection, asked: &Asked) -> Result<Answer, ApiError> {
    let made = |report, total| {
        Ok(Answer {
            report: Some(report),
            total,
            filtered: 0,
        })
    };
    match asked.report_type {
        PPROF | METADATA => {
            let (profile, _) = app.engine.pprof(of, cancel)?;
            let values = profile.samples.values.iter();
            let total = values.fold(0_i64, |sum, value| sum.saturating_add(*value));
            if asked.report_type == PPROF {
                return made(Report::Pprof(profile.to_pprof_gz()), total);
            }
            let file = |mapping: &pilotlight_profile::Mapping| {
                profile.strings.text(mapping.file).into_owned()
            };
            let files: BTreeSet<String> = profile.mappings.iter().map(file).collect();
            let window = (of.from_ns, of.until_ns);
            let metadata = Metadata {
                mapping_files: files.into_iter().filter(|file| !file.is_empty()).collect(),
                labels: app
                    .engine
                    .label_names(Some(&of.type_id), &of.selector, window),
            };
            made(Report::Metadata(metadata), total)
        }
        TOP => {
            let (names, _) = merged(app, of, cancel)?;
            made(
                Report::Top(report::top(names.top(), unit(of))),
                names.total(),
            )
        }
        kind if FLAMEGRAPHS.contains(&kind) => {
            let (names, _) = merged(app, of, cancel)?;
            let tree = names.finish(MOST_NODES);
            let graph = report::flamegraph(&tree, unit(of), least(asked, tree.total));
            made(Report::Flamegraph(graph), tree.total)
        }
        kind => Err(unknown(kind)),
    }
}

fn two(
    app: &App,
    cancel: &Cancel,
    base: &Selection,
    current: &Selection,
    asked: &Asked,
) -> Result<Answer, ApiError> {
    if base.type_id != current.type_id {
        return Err(ApiError::bad("a and b must be of one profile type"));
    }
    let kind = asked.report_type;
    if kind != TOP && !FLAMEGRAPHS.contains(&kind) {
        return Err(unknown(kind));
    }
    let (base_names, _) = merged(app, base, cancel)?;
    let (names, _) = merged(app, current, cancel)?;
    let diff = Diff::new(names, &base_names);
    let total = diff.totals().0;
    let report = match kind {
        TOP => Report::Top(report::top_diff(&diff, unit(current))),
        _ => {
            let tree = diff.finish(MOST_NODES);
            Report::Flamegraph(report::flamegraph(
                &tree,
                unit(current),
                least(asked, total),
            ))
        }
    };
    Ok(Answer {
        report: Some(report),
        total,
        filtered: 0,
    })
}
