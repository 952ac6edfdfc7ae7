//! `pilotlight query`: top, tree and diff of a server, in text.

use crate::api::Api;
use crate::args::{self, View};
use crate::fail::Failure;
use crate::text;
use serde_json::Value;

pub async fn run(arguments: args::Query) -> Result<(), Failure> {
    let api = Api::new(&arguments.remote)?;
    let limit = arguments.limit.to_string();
    let mut pairs = vec![
        ("type", arguments.kind.as_str()),
        ("q", arguments.q.as_str()),
        ("from", arguments.from.as_str()),
        ("until", arguments.until.as_str()),
    ];
    let path = match arguments.view {
        View::Top => {
            pairs.push(("limit", limit.as_str()));
            "/api/v1/top"
        }
        View::Tree => "/api/v1/tree.json",
        View::Diff => {
            pairs.push(("limit", limit.as_str()));
            pairs.extend([
                ("base_q", arguments.base_q.as_str()),
                ("base_from", arguments.base_from.as_str()),
                ("base_until", arguments.base_until.as_str()),
            ]);
            "/api/v1/diff/top"
        }
    };
    let answer = api.get(path, &pairs).await?;
    if arguments.json {
        text::data(&answer.to_string());
        return Ok(());
    }
    let lines = match arguments.view {
        View::Top => top(&answer),
        View::Tree => tree(&answer, arguments.min_percent),
        View::Diff => diff(&answer),
    };
    for line in lines {
        text::data(&line);
    }
    Ok(())
}

/// The rows of `/api/v1/diff/top`: share before, share now, change, and whether it is more than chance.
fn diff(answer: &Value) -> Vec<String> {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let (base, now) = (number(&answer["base_total"]), number(&answer["total"]));
    let unit = answer["unit"].as_str().unwrap_or_default();
    let events = |key: &str| answer[key].as_u64().unwrap_or(0);
    let mut lines = vec![
        format!(
            "base {} ({} events)  now {} ({} events)",
            text::value(base, unit),
            events("base_events"),
            text::value(now, unit),
            events("events")
        ),
        format!("{:>7}  {:>7}  {:>8}     function", "base", "now", "change"),
    ];
    for row in answer["rows"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{}  {}  {:>+7.1}%  {}  {}",
            percent(number(&row["base_total"]), base),
            percent(number(&row["total"]), now),
            number(&row["share_change"]) * 100.0,
            if row["real"] == true { "*" } else { " " },
            row["name"].as_str().unwrap_or_default()
        ));
    }
    lines.push("* more than chance (p < 0.001)".to_owned());
    lines
}

/// The rows of `/api/v1/top`, in percent.
pub fn top(answer: &Value) -> Vec<String> {
    let total = answer["total"].as_f64().unwrap_or(0.0);
    let unit = answer["unit"].as_str().unwrap_or_default();
    let mut lines = vec![format!("total {}", text::value(total, unit))];
    lines.push(format!(
        "{:>7}  {:>7}  {:>10}  {}",
        "self", "total", "self", "function"
    ));
    for row in answer["rows"].as_array().into_iter().flatten() {
        let (own, all) = (
            row["self"].as_f64().unwrap_or(0.0),
            row["total"].as_f64().unwrap_or(0.0),
        );
        lines.push(format!(
            "{}  {}  {:>10}  {}",
            percent(own, total),
            percent(all, total),
            text::value(own, unit),
            row["name"].as_str().unwrap_or_default()
        ));
    }
    lines
}

/// `12.3 %`, seven wide.
pub fn percent(part: f64, total: f64) -> String {
    let share = if total > 0.0 {
        part / total * 100.0
    } else {
        0.0
    };
    format!("{share:>5.1} %")
}

/// The tree with totals; what is below `min` percent is counted, not silently left out.
fn tree(answer: &Value, min: f64) -> Vec<String> {
    let numbers = |key: &str| -> Vec<f64> {
        let list = answer[key].as_array().into_iter().flatten();
        list.map(|value| value.as_f64().unwrap_or(0.0)).collect()
    };
    let (depths, names, mut totals) = (numbers("depth"), numbers("name"), numbers("self"));
    // preorder: from the end, each node adds itself to its parent, the nearest earlier node that is less deep
    let mut open: Vec<usize> = Vec::new();
    let mut parents = vec![None; depths.len()];
    for node in 0..depths.len() {
        while open
            .last()
            .is_some_and(|last| depths[*last] >= depths[node])
        {
            open.pop();
        }
        parents[node] = open.last().copied();
        open.push(node);
    }
    for node in (0..depths.len().min(totals.len())).rev() {
        if let Some(parent) = parents[node] {
            totals[parent] += totals[node];
        }
    }
    let total = totals.first().copied().unwrap_or(0.0);
    let unit = answer["meta"]["unit"].as_str().unwrap_or_default();
    let mut lines = vec![format!("total {}", text::value(total, unit))];
    let mut left_out = 0_usize;
    for node in 0..depths.len().min(totals.len()).min(names.len()) {
        if total == 0.0 || totals[node] / total * 100.0 < min {
            left_out += 1;
            continue;
        }
        let name = answer["names"][names[node] as usize]
            .as_str()
            .unwrap_or("?");
        let indent = "  ".repeat(depths[node] as usize);
        lines.push(format!("{}  {indent}{name}", percent(totals[node], total)));
    }
    if left_out > 0 {
        lines.push(format!(
            "{left_out} nodes below {min} % are not shown (--min-percent 0 shows all)"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn top_shows_self_and_total_in_percent() {
        let answer = json!({"total": 2_000_000_000, "unit": "nanoseconds", "rows": [
            {"name": "a::hot", "file": "", "self": 1_500_000_000, "total": 2_000_000_000},
        ]});
        assert_eq!(
            top(&answer),
            [
                "total 2.00 s",
                "   self    total        self  function",
                " 75.0 %  100.0 %      1.50 s  a::hot",
            ]
        );
    }

    #[test]
    fn the_tree_adds_up_children_and_counts_what_it_leaves_out() {
        let answer = json!({
            "meta": {"unit": "count"},
            "names": ["all", "main", "hot", "rare"],
            "depth": [0, 1, 2, 2, 1], "name": [0, 1, 2, 3, 2], "self": [0, 10, 79, 1, 10],
        });
        assert_eq!(
            tree(&answer, 2.0),
            [
                "total 100 count",
                "100.0 %  all",
                " 90.0 %    main",
                " 79.0 %      hot",
                " 10.0 %    hot",
                "1 nodes below 2 % are not shown (--min-percent 0 shows all)",
            ]
        );
        assert_eq!(tree(&json!({}), 1.0), ["total 0 "]);
    }
}
