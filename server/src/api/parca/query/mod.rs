//! `parca.query.v1alpha1.QueryService`, as gRPC and as Connect's protobuf.
//!
//! Reports: pprof, top, table, flame graph (as Arrow, or nested messages with tables), metadata. Others,
//! and filters, are refused: an answer without them would be of something else.

mod answers;
mod ask;
mod columns;
mod proto;
mod report;
pub mod select;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;

use super::super::pyroscope::connect::{self, Binary};
use super::super::pyroscope::proto::LabelPair;
use super::super::run::run;
use super::super::{ApiError, App};
use crate::query::engine::Cancel;
use crate::query::selector::Selector;
use crate::query::series::default_step;
use proto::{
    Empty, HasData, LabelSet, LabelsRequest, Point, Range, RangeRequest, Request as Asked, Series,
    Time, Type, Types, TypesRequest, ValueType, ValuesRequest, Words,
};

/// Routes of the service; Parca's page asks below `/api`.
pub fn router() -> Router<Arc<App>> {
    let below = |front: &str| {
        let at = |method: &str| format!("{front}/parca.query.v1alpha1.QueryService/{method}");
        Router::new()
            .route(&at("ProfileTypes"), post(types))
            .route(&at("Labels"), post(labels))
            .route(&at("Values"), post(values))
            .route(&at("Series"), post(series))
            .route(&at("HasProfileData"), post(has_data))
            .route(&at("QueryRange"), post(range))
            .route(&at("Query"), post(query))
    };
    below("").merge(below("/api"))
}

async fn answer<I: Binary, O: Binary>(
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
        ask::report(app, cancel, &input)
    })
    .await
}
