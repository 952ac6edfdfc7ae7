//! `relabel.jsonl`: rules, labels, and what Prometheus 3.16's `model/relabel` made of them with legacy names: labels,
//! null where it dropped them, or an error of its configuration.

use pilotlight_labels::{Labels, Outcome, Rule, relabel};
use serde_json::Value;

fn apply(rules: &[Rule], mut labels: Labels) -> Value {
    match relabel(rules, &mut labels) {
        Outcome::Kept => labels.json(),
        Outcome::Dropped(_) => Value::Null,
    }
}

#[test]
fn rules_do_what_those_of_prometheus_do() {
    let vectors = include_str!("relabel.jsonl");
    let mut errors = 0;
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let rules: Result<Vec<Rule>, _> = vector["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Rule::read)
            .collect();
        if vector["error"] == true {
            errors += 1;
            let problems = rules.expect_err(line);
            assert!(problems.iter().all(|problem| !problem.text.is_empty()));
            continue;
        }
        let labels = vector["labels"].as_object().unwrap().iter();
        let labels = labels.map(|(name, value)| (name.as_str(), value.as_str().unwrap()));
        let rules = rules.unwrap_or_else(|problems| panic!("{problems:?}: {line}"));
        assert_eq!(apply(&rules, labels.collect()), vector["want"], "{line}");
    }
    assert_eq!((vectors.lines().count(), errors), (72, 19));
}

#[test]
fn the_rule_that_drops_is_named_and_those_after_it_do_nothing() {
    let rules = [
        serde_json::json!({"target_label": "seen", "replacement": "yes"}),
        serde_json::json!({"source_labels": ["a"], "regex": "1", "action": "drop"}),
        serde_json::json!({"target_label": "late", "replacement": "yes"}),
    ];
    let rules = rules.each_ref().map(|rule| Rule::read(rule).unwrap());
    let mut labels = Labels::from_iter([("a", "1")]);
    assert_eq!(relabel(&rules, &mut labels), Outcome::Dropped(1));
    assert_eq!(labels.selector(), r#"{a="1",seen="yes"}"#);
}

#[test]
fn each_wrong_key_is_told() {
    let rule = serde_json::json!({"action": "labeldrop", "target_label": "x", "modulus": "3", "Regex": "a"});
    let keys: Vec<String> = Rule::read(&rule)
        .unwrap_err()
        .into_iter()
        .map(|problem| problem.key)
        .collect();
    assert_eq!(keys, ["Regex", "modulus", "target_label", "modulus"]);
    let huge = serde_json::json!({"target_label": "x", "regex": "(((a{1000}){1000}){1000})"});
    let problems = Rule::read(&huge).unwrap_err();
    assert!(problems[0].text.contains("size"), "{problems:?}");
}
