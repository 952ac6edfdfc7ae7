//! `Query`: one selection or two, as the report that is asked for.

use std::collections::BTreeSet;

use axum::http::StatusCode;

use super::super::super::tree::{MOST_NODES, merged};
use super::super::super::{ApiError, App};
use super::answers::{Answer, Metadata, Report};
use super::proto::{Options, Request, Side, SideOptions};
use super::{columns, report, select};
use crate::query::diff::{Diff, Events};
use crate::query::engine::{Cancel, Selection};

/// The answer.
///
/// # Errors
/// When something is asked for that is not made here, or the selection cannot be read.
pub fn report(app: &App, cancel: &Cancel, asked: &Request) -> Result<Answer, ApiError> {
    refuse(asked)?;
    match &asked.options {
        Some(Options::Merge(of)) => one(app, cancel, &select::merge(of)?, asked),
        Some(Options::Single(of)) => one(app, cancel, &select::single(of)?, asked),
        Some(Options::Diff(of)) => {
            let (base, current) = (side(of.a.as_ref())?, side(of.b.as_ref())?);
            two(app, cancel, &base, &current, asked)
        }
        None => Err(ApiError::bad("options are missing: merge, single or diff")),
    }
}

fn side(side: Option<&Side>) -> Result<Selection, ApiError> {
    match side.and_then(|side| side.options.as_ref()) {
        Some(SideOptions::Merge(of)) => select::merge(of),
        Some(SideOptions::Single(of)) => select::single(of),
        None => Err(ApiError::bad("a diff needs a and b, each merge or single")),
    }
}

/// What would change the answer and is not understood.
fn refuse(asked: &Request) -> Result<(), ApiError> {
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
const FLAMEGRAPH_ARROW: i32 = 5;
const TABLE_ARROW: i32 = 7;

fn unknown(report: i32) -> ApiError {
    let message = format!(
        "report type {report} is not made here; ask for pprof (1), top (2), a flame graph (4, or 5 as \
         Arrow), a table (7) or metadata (8)"
    );
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message)
}

/// The least value of a node that stays.
fn least(asked: &Request, total: i64) -> i64 {
    let percent = f64::from(asked.node_trim_threshold.unwrap_or(0.0)).clamp(0.0, 100.0);
    (total as f64 * percent / 100.0) as i64
}

fn unit(selection: &Selection) -> &str {
    selection.type_id.split(':').nth(2).unwrap_or_default()
}

fn one(app: &App, cancel: &Cancel, of: &Selection, asked: &Request) -> Result<Answer, ApiError> {
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
        FLAMEGRAPH_ARROW => {
            let (names, _) = merged(app, of, cancel)?;
            let tree = names.finish(MOST_NODES);
            let least = least(asked, tree.total);
            let graph = columns::flamegraph(&tree, &names.sources(), unit(of), least);
            made(Report::FlamegraphArrow(graph), tree.total)
        }
        TABLE_ARROW => {
            let (names, _) = merged(app, of, cancel)?;
            let tree = names.finish(MOST_NODES);
            let rows = names.top().into_iter().map(Into::into).collect();
            let table = columns::table(rows, &tree, unit(of));
            made(Report::TableArrow(table), tree.total)
        }
        kind => Err(unknown(kind)),
    }
}

fn two(
    app: &App,
    cancel: &Cancel,
    base: &Selection,
    current: &Selection,
    asked: &Request,
) -> Result<Answer, ApiError> {
    if base.type_id != current.type_id {
        return Err(ApiError::bad("a and b must be of one profile type"));
    }
    let known = [TOP, FLAMEGRAPH_ARROW, TABLE_ARROW];
    if !known.contains(&asked.report_type) && !FLAMEGRAPHS.contains(&asked.report_type) {
        return Err(unknown(asked.report_type));
    }
    let (base_names, _) = merged(app, base, cancel)?;
    let (names, _) = merged(app, current, cancel)?;
    let diff = Diff::new(names, &base_names);
    let total = diff.totals().0;
    let (unit, least) = (unit(current), least(asked, total));
    let tree = || diff.finish(MOST_NODES);
    let report = match asked.report_type {
        TOP => Report::Top(report::top_diff(&diff, unit)),
        FLAMEGRAPH_ARROW => {
            let graph = columns::flamegraph(&tree(), &diff.sources(), unit, least);
            Report::FlamegraphArrow(graph)
        }
        TABLE_ARROW => {
            let rows = diff.top(Events::default());
            let rows = rows.into_iter().map(Into::into).collect();
            Report::TableArrow(columns::table(rows, &tree(), unit))
        }
        _ => Report::Flamegraph(report::flamegraph(&tree(), unit, least)),
    };
    Ok(Answer {
        report: Some(report),
        total,
        filtered: 0,
    })
}
