//! What Grafana's data source asks of `querier.v1` besides whole merges, which `tests/protocols.rs` does
//! with Pyroscope's own client.

use std::net::SocketAddr;

use pilotlight_profile::{Label, LabelValue, ProfileBuilder};
use serde_json::{Value, json};

use super::CPU;
use crate::common::{Local, SECOND, T0, config, get, push, try_request};

const FIRST: &str = "00f067aa0ba902b7";
const SECOND_SPAN: &str = "5a4fe264a9c987fe";

/// main → work: 3 without a span, 5 in the first, 2 in the second.
fn spans() -> Vec<u8> {
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 1);
    out.time(T0, 10 * SECOND);
    let mut at = |name: &str| {
        let name = out.string(name.as_bytes());
        let function = out.function(name, name, name, 1);
        out.location(None, 0, &[(function, 7)])
    };
    let path = [at("work"), at("main")];
    let stack = out.stack(&path);
    let key = out.string(b"span_id");
    for (span, value) in [("", 3), (FIRST, 5), (SECOND_SPAN, 2)] {
        let value_of = LabelValue::Str(out.string(span.as_bytes()));
        let labels = [Label {
            key,
            value: value_of,
        }];
        let set = out.label_set(if span.is_empty() { &[] } else { &labels });
        out.sample(stack, set, &[value]);
    }
    out.finish().to_pprof_gz()
}

fn call(address: SocketAddr, method: &str, body: &Value) -> (u16, Value) {
    let path = format!("/querier.v1.QuerierService/{method}");
    let head = "Content-Type: application/json\r\n";
    let body = body.to_string();
    let answer = try_request(address, "POST", &path, head, body.as_bytes()).unwrap();
    (answer.status, answer.json())
}

fn asked(more: Value) -> Value {
    let mut body = json!({
        "profileTypeID": CPU,
        "labelSelector": "{service_name=\"a\"}",
        "start": (T0 / 1_000_000 - 1000).to_string(),
        "end": (T0 / 1_000_000 + 20_000).to_string(),
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[test]
fn spans_heatmaps_and_trees_are_answered_and_unknown_filters_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let at = server.address;
    assert_eq!(push(at, "{service_name=\"a\"}", &spans()).status, 200);
    let total = |method: &str, more: Value| {
        let (status, answer) = call(at, method, &asked(more));
        assert_eq!(status, 200, "{answer}");
        answer["flamegraph"]["total"].clone()
    };
    let of_spans = |spans: Value| total("SelectMergeSpanProfile", json!({"spanSelector": spans}));
    assert_eq!(of_spans(json!([FIRST])), "5");
    assert_eq!(of_spans(json!([FIRST.to_uppercase(), SECOND_SPAN])), "7");
    assert_eq!(of_spans(json!(["ffffffffffffffff"])), "0");
    assert_eq!(of_spans(json!([])), "10");
    assert_eq!(total("SelectMergeStacktraces", json!({})), "10");

    let tree = |method: &str, more: Value| call(at, method, &asked(more)).1;
    let bytes = tree(
        "SelectMergeSpanProfile",
        json!({"format": "PROFILE_FORMAT_TREE", "spanSelector": [FIRST]}),
    );
    // ("", 0, 1) ("main", 0, 1) ("work", 5, 0)
    assert_eq!(bytes, json!({"tree": "AAABBG1haW4AAQR3b3JrBQA="}));

    let heat = tree("SelectHeatmap", json!({"step": 15}));
    let slot = &heat["series"][0]["slots"][0];
    assert_eq!(
        [&slot["yMin"], &slot["counts"]],
        [&json!([8.0]), &json!([1])]
    );
    // Pyroscope's slots are called after their ends.
    let until = (T0 / 15 / SECOND + 1) * 15_000;
    assert_eq!(slot["timestamp"], until.to_string());

    assert_eq!(slot["exemplars"], json!([]));
    // Profiles have no ids; the largest of each field is told by time and labels.
    let heat = tree(
        "SelectHeatmap",
        json!({"step": 15, "exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL", "limit": 1}),
    );
    let exemplars = &heat["series"][0]["slots"][0]["exemplars"];
    assert_eq!(
        exemplars,
        &json!([{
            "timestamp": (T0 / 1_000_000).to_string(),
            "value": "10",
            "labels": [{"name": "service_name", "value": "a"}],
        }])
    );

    let refused = [
        (
            "SelectHeatmap",
            json!({"step": 15, "exemplarType": "EXEMPLAR_TYPE_SPAN"}),
            "EXEMPLAR_TYPE_INDIVIDUAL",
        ),
        (
            "SelectMergeSpanProfile",
            json!({"spanSelector": ["x\"}"]}),
            "16 hex digits",
        ),
        (
            "SelectMergeStacktraces",
            json!({"stackTraceSelector": {"callSite": [{"name": "main"}]}}),
            "stack_trace_selector",
        ),
        (
            "SelectMergeStacktraces",
            json!({"profileIdSelector": ["7c9e6679"]}),
            "profile_id_selector",
        ),
        (
            "SelectHeatmap",
            json!({"step": 15, "groupBy": ["pod"]}),
            "group_by",
        ),
        ("SelectHeatmap", json!({}), "step must be"),
        (
            "SelectHeatmap",
            json!({"step": 15, "queryType": "HEATMAP_QUERY_TYPE_SPAN"}),
            "HEATMAP_QUERY_TYPE_INDIVIDUAL",
        ),
    ];
    for (method, more, text) in refused {
        let (status, answer) = call(at, method, &asked(more));
        assert_eq!(
            (status, &answer["code"]),
            (400, &json!("invalid_argument")),
            "{answer}"
        );
        assert!(
            answer["message"].as_str().unwrap().contains(text),
            "{answer}"
        );
    }

    let window = format!("from={}&until={}", T0 / SECOND - 1, T0 / SECOND + 20);
    let query = "process_cpu%3Acpu%3Ananoseconds%3Acpu%3Ananoseconds%7B%7D";
    let path =
        format!("/pyroscope/render?query={query}&{window}&spanSelector={FIRST},{SECOND_SPAN}");
    assert_eq!(get(at, &path).json()["flamebearer"]["numTicks"], 7);
    server.stop();
}
