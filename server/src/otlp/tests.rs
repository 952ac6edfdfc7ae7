use pilotlight_profile::{Limits, Profile};
use prost::Message;
use serde_json::json;

use super::proto::*;
use super::{Converted, Rejected, convert, from_json};

const STRINGS: [&str; 12] = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "main",
    "leaf",
    "a.rs",
    "/bin/app",
    "process.executable.build_id.gnu",
    "abc123",
    "thread.name",
];

fn value(text: &str) -> Option<AnyValue> {
    let value = Some(Value::String(text.to_owned()));
    Some(AnyValue { value })
}

/// Two samples of a 100 Hz timer: main>leaf 3 times, main twice by its timestamps.
fn request() -> ExportRequest {
    let function = |name| Function {
        name_strindex: name,
        system_name_strindex: name,
        filename_strindex: 7,
        start_line: 1,
    };
    let location = |function| Location {
        mapping_index: 1,
        address: 0x1000 + function as u64,
        lines: vec![Line {
            function_index: function,
            line: 10,
            column: 0,
        }],
    };
    let stack = |location_indices| Stack { location_indices };
    let dictionary = Dictionary {
        mapping_table: vec![
            Mapping::default(),
            Mapping {
                memory_start: 0x1000,
                memory_limit: 0x2000,
                filename_strindex: 8,
                attribute_indices: vec![1],
                ..Mapping::default()
            },
        ],
        location_table: vec![Location::default(), location(1), location(2)],
        function_table: vec![Function::default(), function(5), function(6)],
        link_table: vec![
            Link::default(),
            Link {
                trace_id: vec![0xab; 16],
                span_id: vec![0xcd; 8],
            },
        ],
        string_table: STRINGS.map(|text| text.as_bytes().to_vec()).to_vec(),
        attribute_table: vec![
            Attribute::default(),
            Attribute {
                key_strindex: 9,
                value: Some(AnyValue {
                    value: Some(Value::StringIndex(10)),
                }),
                unit_strindex: 0,
            },
            Attribute {
                key_strindex: 11,
                value: value("worker"),
                unit_strindex: 0,
            },
        ],
        stack_table: vec![stack(vec![]), stack(vec![2, 1]), stack(vec![1])],
    };
    let profile = super::proto::Profile {
        sample_type: Some(ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        samples: vec![
            Sample {
                stack_index: 1,
                attribute_indices: vec![2],
                link_index: 1,
                values: vec![3],
                timestamps_unix_nano: vec![],
            },
            Sample {
                stack_index: 2,
                timestamps_unix_nano: vec![1, 2],
                ..Sample::default()
            },
        ],
        time_unix_nano: 1_767_225_600_000_000_000,
        duration_nano: 1_000_000_000,
        period_type: Some(ValueType {
            type_strindex: 3,
            unit_strindex: 4,
        }),
        period: 10_000_000,
        profile_id: vec![7; 16],
        attribute_indices: vec![],
    };
    let attribute = |key: &str, text: &str| KeyValue {
        key: key.to_owned(),
        value: value(text),
        key_strindex: 0,
    };
    ExportRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![
                    attribute("service.name", "checkout"),
                    attribute("k8s.pod.name", "a-1"),
                    attribute("empty", ""),
                ],
            }),
            scope_profiles: vec![ScopeProfiles {
                scope: None,
                profiles: vec![profile],
            }],
        }],
        dictionary: Some(dictionary),
    }
}

fn only(request: &ExportRequest) -> Result<Converted, Rejected> {
    let mut all = convert(request, &Limits::default());
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn samples(profile: &Profile) -> Vec<(Vec<String>, Vec<i64>)> {
    let name = |location: &u32| {
        let line = profile.location(*location as usize).lines[0];
        let name = profile.functions[line.function.index()].name;
        String::from_utf8_lossy(profile.strings.get(name)).into_owned()
    };
    let mut out: Vec<_> = profile
        .iter_samples()
        .map(|sample| {
            (
                sample.stack.iter().map(name).collect(),
                sample.values.to_vec(),
            )
        })
        .collect();
    out.sort();
    out
}

#[test]
fn timer_samples_become_cpu_time_with_their_stacks() {
    let converted = only(&request()).unwrap();
    assert_eq!(converted.name, "process_cpu");
    let labels: Vec<(&str, &str)> = converted
        .labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        labels,
        [("k8s_pod_name", "a-1"), ("service_name", "checkout")]
    );
    let profile = &converted.profile;
    let stack = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        samples(profile),
        [
            (stack(&["leaf", "main"]), vec![3, 30_000_000]),
            (stack(&["main"]), vec![2, 20_000_000]),
        ]
    );
    let build_id = profile.mappings[0].build_id;
    assert_eq!(profile.strings.get(build_id), b"abc123");
    let labels = profile.iter_samples().map(|sample| sample.labels.len());
    assert_eq!(labels.max(), Some(3), "thread.name, trace_id, span_id");
}

#[test]
fn a_sender_of_proto_1_9_is_told_instead_of_losing_every_value() {
    // There, field 2 held the values and 3 the attributes.
    let mut request = request();
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    for sample in &mut profile.samples {
        *sample = Sample {
            stack_index: sample.stack_index,
            attribute_indices: vec![3],
            ..Sample::default()
        };
    }
    let Rejected(reason) = only(&request).err().unwrap();
    assert!(reason.contains("2 samples without values"), "{reason}");
    assert!(reason.contains("1.9"), "{reason}");
}

#[test]
fn some_samples_without_a_value_are_counted_and_the_rest_is_kept() {
    let mut request = request();
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.samples[1].timestamps_unix_nano.clear();
    let converted = only(&request).unwrap();
    assert_eq!(converted.dropped, [("no_value", 1)]);
    assert_eq!(converted.profile.total(0), 3);
}

#[test]
fn an_index_outside_its_table_rejects_that_profile_and_no_other() {
    type Break = fn(&mut ExportRequest);
    let breaks: [(&str, Break); 6] = [
        ("stack 9", |request| {
            first(request).samples[0].stack_index = 9
        }),
        ("link -1", |request| {
            first(request).samples[0].link_index = -1
        }),
        ("attribute 77", |request| {
            first(request).samples[0].attribute_indices = vec![77];
        }),
        ("string 500", |request| {
            request.dictionary.as_mut().unwrap().function_table[1].name_strindex = 500;
        }),
        ("location 8", |request| {
            request.dictionary.as_mut().unwrap().stack_table[1].location_indices[0] = 8;
        }),
        ("mapping 3", |request| {
            request.dictionary.as_mut().unwrap().location_table[1].mapping_index = 3;
        }),
    ];
    for (words, break_it) in breaks {
        let mut request = request();
        let scope = &mut request.resource_profiles[0].scope_profiles[0];
        let good = super::proto::Profile {
            samples: vec![Sample {
                values: vec![1],
                ..Sample::default()
            }],
            ..super::proto::Profile::default()
        };
        scope.profiles.push(good);
        break_it(&mut request);
        let results = convert(&request, &Limits::default());
        let Rejected(reason) = results[0].as_ref().err().unwrap();
        assert!(reason.contains(words), "{words}: {reason}");
        assert!(results[1].is_ok(), "{words}");
    }
}

fn first(request: &mut ExportRequest) -> &mut super::proto::Profile {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0]
}

#[test]
fn json_and_protobuf_say_the_same() {
    let body = json!({
        "resourceProfiles": [{
            "resource": { "attributes": [
                { "key": "service.name", "value": { "stringValue": "checkout" } },
                { "key": "k8s.pod.name", "value": { "stringValue": "a-1" } },
                { "key": "empty", "value": { "stringValue": "" } },
            ]},
            "scopeProfiles": [{ "profiles": [{
                "sampleType": { "typeStrindex": 1, "unitStrindex": 2 },
                "samples": [
                    { "stackIndex": 1, "attributeIndices": [2], "linkIndex": 1, "values": ["3"] },
                    { "stackIndex": 2, "timestampsUnixNano": ["1", 2] },
                ],
                "timeUnixNano": "1767225600000000000",
                "durationNano": "1000000000",
                "periodType": { "typeStrindex": 3, "unitStrindex": 4 },
                "period": "10000000",
                "profileId": "07".repeat(16),
            }]}],
        }],
        "dictionary": {
            "mappingTable": [{}, {
                "memoryStart": "4096", "memoryLimit": "8192", "filenameStrindex": 8,
                "attributeIndices": [1],
            }],
            "locationTable": [{},
                { "mappingIndex": 1, "address": "4097",
                  "lines": [{ "functionIndex": 1, "line": "10" }] },
                { "mappingIndex": 1, "address": "4098",
                  "lines": [{ "functionIndex": 2, "line": "10" }] },
            ],
            "functionTable": [{},
                { "nameStrindex": 5, "systemNameStrindex": 5, "filenameStrindex": 7, "startLine": "1" },
                { "nameStrindex": 6, "systemNameStrindex": 6, "filenameStrindex": 7, "startLine": "1" },
            ],
            "linkTable": [{}, { "traceId": "ab".repeat(16), "spanId": "cd".repeat(8) }],
            "stringTable": STRINGS,
            "attributeTable": [{},
                { "keyStrindex": 9, "value": { "stringValueStrindex": 10 } },
                { "keyStrindex": 11, "value": { "stringValue": "worker" } },
            ],
            "stackTable": [{}, { "locationIndices": [2, 1] }, { "locationIndices": [1] }],
        },
    });
    assert_eq!(from_json(body.to_string().as_bytes()), Ok(request()));
    let bytes = request().encode_to_vec();
    assert_eq!(ExportRequest::decode(&bytes[..]), Ok(request()));
}

#[test]
fn json_that_is_something_else_is_answered_with_its_place() {
    for (body, words) in [
        (r#"{"resourceProfiles": 3}"#, ".resourceProfiles: a list"),
        (
            r#"{"dictionary": {"stringTable": [1]}}"#,
            "dictionary.stringTable",
        ),
        (
            r#"{"dictionary": {"linkTable": [{"traceId": "xyz"}]}}"#,
            ".dictionary.linkTable[0].traceId: hexadecimal",
        ),
        ("[]", "an object"),
        ("{", "EOF"),
    ] {
        let error = from_json(body.as_bytes()).unwrap_err();
        assert!(error.contains(words), "{body}: {error}");
    }
}
