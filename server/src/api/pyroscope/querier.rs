//! `querier.v1.QuerierService`.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use super::super::run::run;
use super::super::tree::{MOST_NODES, merged};
use super::super::{ApiError, App};
use super::connect::{self, Wire};
use super::proto::{
    DiffRequest, DiffResponse, Empty, LabelNamesRequest, LabelPair, LabelValuesRequest, Labels,
    MergeRequest, MergeResponse, Names, Point, ProfileStats, ProfileType, ProfileTypes,
    SelectSeriesRequest, SelectSeriesResponse, Series, SeriesRequest, SeriesResponse, Window,
};
use super::{flame, select};
use crate::query::diff::Diff;
use crate::query::engine::{Cancel, Selection};

/// Nodes where the request does not say.
const DEFAULT_NODES: i64 = 8192;

pub(super) async fn answer<I: Wire, O: Wire>(
    app: Arc<App>,
    request: Request,
    work: impl FnOnce(&App, &Cancel, I) -> Result<O, ApiError> + Send + 'static,
) -> Response {
    connect::call(app, request, |app, input: I| async move {
        run(&app, move |app, cancel| work(app, cancel, input)).await
    })
    .await
}

/// Which profile types there are.
pub async fn profile_types(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, input: Window| {
        let (from, until) = select::window(input.start, input.end);
        let found = app
            .engine
            .types(&select::selector("{}")?.selector, from, until);
        let profile_types = found
            .into_iter()
            .map(|info| ProfileType {
                id: info.id,
                name: info.name,
                sample_type: info.sample_type,
                sample_unit: info.sample_unit,
                period_type: info.period_type,
                period_unit: info.period_unit,
            })
            .collect();
        Ok(ProfileTypes { profile_types })
    })
    .await
}

/// Labels that Pyroscope makes of a profile's type.
const TYPE_LABELS: [&str; 6] = [
    "__name__",
    "__period_type__",
    "__period_unit__",
    "__profile_type__",
    "__type__",
    "__unit__",
];

/// Label names, those of the type included.
pub async fn label_names(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, input: LabelNamesRequest| {
        let matched = select::matchers(&input.matchers)?;
        let window = select::window(input.start, input.end);
        let type_id = matched.type_id.as_deref();
        let found = app.engine.label_names(type_id, &matched.selector, window);
        if found.is_empty() {
            return Ok(Names::default());
        }
        let mut names: BTreeSet<String> = found.into_iter().collect();
        names.extend(TYPE_LABELS.map(str::to_owned));
        Ok(Names {
            names: names.into_iter().collect(),
        })
    })
    .await
}

/// Label values, those of the type included.
pub async fn label_values(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, input: LabelValuesRequest| {
        let window = select::window(input.start, input.end);
        let names = values(app, &input.name, &input.matchers, window)?;
        Ok(Names { names })
    })
    .await
}

/// Values of a label or of a part of the type.
pub fn values(
    app: &App,
    name: &str,
    matchers: &[String],
    window: (i64, i64),
) -> Result<Vec<String>, ApiError> {
    let matched = select::matchers(matchers)?;
    if !TYPE_LABELS.contains(&name) {
        let type_id = matched.type_id.as_deref();
        return Ok(app
            .engine
            .label_values(name, type_id, &matched.selector, window));
    }
    let types = app.engine.types(&matched.selector, window.0, window.1);
    let found: BTreeSet<String> = types
        .into_iter()
        .filter(|info| matched.type_id.as_ref().is_none_or(|id| *id == info.id))
        .map(|info| match name {
            "__name__" => info.name,
            "__type__" => info.sample_type,
            "__unit__" => info.sample_unit,
            "__period_type__" => info.period_type,
            "__period_unit__" => info.period_unit,
            _ => info.id,
        })
        .collect();
    Ok(found.into_iter().collect())
}

/// Distinct label sets, cut to the names asked for.
pub async fn series(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, input: SeriesRequest| {
        let matched = select::matchers(&input.matchers)?;
        let window = select::window(input.start, input.end);
        let types = app.engine.types(&matched.selector, window.0, window.1);
        let mut found = BTreeSet::new();
        for info in types {
            if matched.type_id.as_ref().is_some_and(|id| *id != info.id) {
                continue;
            }
            let own = [
                ("__name__", &info.name),
                ("__period_type__", &info.period_type),
                ("__period_unit__", &info.period_unit),
                ("__profile_type__", &info.id),
                ("__type__", &info.sample_type),
                ("__unit__", &info.sample_unit),
            ];
            let id = Some(info.id.as_str());
            for labels in app.engine.label_sets(id, &matched.selector, window) {
                let own = own
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).clone()));
                let mut set: Vec<(String, String)> = own.chain(labels).collect();
                set.retain(|(name, _)| {
                    input.label_names.is_empty() || input.label_names.contains(name)
                });
                set.sort();
                found.insert(set);
            }
        }
        let labels_set = found.into_iter().map(|set| Labels { labels: pairs(set) });
        Ok(SeriesResponse {
            labels_set: labels_set.collect(),
        })
    })
    .await
}

pub(super) fn pairs(labels: impl IntoIterator<Item = (String, String)>) -> Vec<LabelPair> {
    labels
        .into_iter()
        .map(|(name, value)| LabelPair { name, value })
        .collect()
}

fn max_nodes(request: &MergeRequest) -> usize {
    let asked = request.max_nodes.filter(|&nodes| nodes > 0);
    usize::try_from(asked.unwrap_or(DEFAULT_NODES))
        .unwrap_or(MOST_NODES)
        .min(MOST_NODES)
}

/// The flame graph of a selection.
pub async fn merge(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, cancel, input: MergeRequest| {
        merge_response(app, cancel, &select::selection(&input)?, &input)
    })
    .await
}

/// `PROFILE_FORMAT_TREE`.
const TREE: i32 = 2;

/// A selection in the form that the request wants.
pub fn merge_response(
    app: &App,
    cancel: &Cancel,
    selection: &Selection,
    input: &MergeRequest,
) -> Result<MergeResponse, ApiError> {
    let (names, _) = merged(app, selection, cancel)?;
    let tree = names.finish(max_nodes(input));
    Ok(match input.format {
        TREE => MergeResponse {
            flamegraph: None,
            tree: flame::tree_bytes(&tree),
        },
        _ => MergeResponse {
            flamegraph: Some(flame::single(&tree)),
            tree: Vec::new(),
        },
    })
}

/// The selection as pprof: the bytes of a `google.v1.Profile`.
pub async fn profile(State(app): State<Arc<App>>, request: Request) -> Response {
    connect::bytes(app, request, |app, cancel, input: MergeRequest| {
        let (profile, _) = app.engine.pprof(&select::selection(&input)?, cancel)?;
        Ok(profile.to_pprof())
    })
    .await
}

/// Two selections of one type.
pub async fn diff(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, cancel, input: DiffRequest| {
        let (Some(left), Some(right)) = (input.left, input.right) else {
            return Err(ApiError::bad("both left and right are needed"));
        };
        let base = select::selection(&left)?;
        let current = select::selection(&right)?;
        if base.type_id != current.type_id {
            return Err(ApiError::bad("left and right must be of one profile type"));
        }
        let tree = difference(app, cancel, &base, &current, max_nodes(&left))?;
        Ok(DiffResponse {
            flamegraph: Some(flame::double(&tree)),
        })
    })
    .await
}

/// The tree of two selections.
pub fn difference(
    app: &App,
    cancel: &Cancel,
    base: &Selection,
    current: &Selection,
    max_nodes: usize,
) -> Result<crate::query::tree::Tree, ApiError> {
    let (base_names, _) = merged(app, base, cancel)?;
    let (names, _) = merged(app, current, cancel)?;
    Ok(Diff::new(names, &base_names).finish(max_nodes))
}

/// Totals over time, one line a value of the first `group_by` label.
pub async fn select_series(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, cancel, input: SelectSeriesRequest| {
        let selection = select::selection(&MergeRequest {
            profile_type_id: input.profile_type_id,
            label_selector: input.label_selector,
            start: input.start,
            end: input.end,
            stack_trace_selector: input.stack_trace_selector,
            ..MergeRequest::default()
        })?;
        let step_ns = (input.step * 1e9) as i64;
        if step_ns <= 0 {
            return Err(ApiError::bad("step must be more than 0 seconds"));
        }
        let by: Vec<&str> = input.group_by.iter().map(String::as_str).collect();
        let (mut lines, _) = app.engine.series_by(&selection, step_ns, &by, cancel)?;
        let size = |points: &[(i64, i64)]| points.iter().map(|(_, value)| *value).sum::<i64>();
        if let Some(limit) = input.limit.and_then(|limit| usize::try_from(limit).ok())
            && limit > 0
        {
            lines.sort_by_key(|line| std::cmp::Reverse(size(&line.points)));
            lines.truncate(limit);
        }
        let series = lines
            .into_iter()
            .map(|line| Series {
                labels: pairs(line.labels),
                points: line
                    .points
                    .into_iter()
                    .map(|(timestamp, value)| Point {
                        value: value as f64,
                        timestamp,
                    })
                    .collect(),
            })
            .collect();
        Ok(SelectSeriesResponse { series })
    })
    .await
}

/// Whether there is data, and from when to when.
pub async fn stats(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(app, request, |app, _, _: Empty| {
        let times = app.engine.times();
        Ok(ProfileStats {
            data_ingested: times.is_some(),
            oldest_profile_time: times.map_or(0, |(oldest, _)| oldest / 1_000_000),
            newest_profile_time: times.map_or(0, |(_, newest)| newest / 1_000_000),
        })
    })
    .await
}
