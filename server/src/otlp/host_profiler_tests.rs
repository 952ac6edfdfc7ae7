//! What OpenTelemetry's eBPF profiler sends, as seen of b442421a (August 2026) and made anew: a resource for each process
//! without a service, timestamps in place of values, native frames without lines, names for the kernel's.

use pilotlight_profile::Limits;

use super::convert;
use super::proto::*;

const STRINGS: [&str; 17] = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "do_syscall_64",
    "libc.so.6",
    "process.executable.build_id.gnu",
    "c7e0d1",
    "process.executable.build_id.htlhash",
    "9f3a77",
    "profile.frame.type",
    "native",
    "thread.name",
    "worker",
    "thread.id",
    "cpu.logical_number",
];

fn text(value: &str) -> Option<AnyValue> {
    let value = Some(Value::String(value.to_owned()));
    Some(AnyValue { value })
}

fn number(value: i64) -> Option<AnyValue> {
    let value = Some(Value::Int(value));
    Some(AnyValue { value })
}

fn dictionary() -> Dictionary {
    let attribute = |key_strindex, value| Attribute {
        key_strindex,
        value,
        unit_strindex: 0,
    };
    Dictionary {
        mapping_table: vec![
            Mapping::default(),
            Mapping {
                memory_start: 0x2_6000,
                memory_limit: 0x17_c000,
                file_offset: 0x2_6000,
                filename_strindex: 6,
                attribute_indices: vec![1, 2],
            },
        ],
        location_table: vec![
            Location::default(),
            Location {
                mapping_index: 1,
                address: 0x8_dca4,
                ..Location::default()
            },
            Location {
                address: 0x1f,
                lines: vec![Line {
                    function_index: 1,
                    ..Line::default()
                }],
                ..Location::default()
            },
        ],
        function_table: vec![
            Function::default(),
            Function {
                name_strindex: 5,
                ..Function::default()
            },
        ],
        link_table: vec![Link::default()],
        string_table: STRINGS.map(|text| text.as_bytes().to_vec()).to_vec(),
        attribute_table: vec![
            Attribute::default(),
            attribute(7, text("c7e0d1")),
            attribute(9, text("9f3a77")),
            attribute(11, text("native")),
            attribute(13, text("worker")),
            attribute(15, number(4711)),
            attribute(16, number(1)),
        ],
        stack_table: vec![
            Stack::default(),
            Stack {
                location_indices: vec![2, 1],
            },
        ],
    }
}

/// One process, sampled three times at 19 Hz in one place.
fn request() -> ExportRequest {
    let attribute = |key: &str, value| KeyValue {
        key: key.to_owned(),
        value,
        key_strindex: 0,
    };
    let profile = Profile {
        sample_type: Some(ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        period_type: Some(ValueType {
            type_strindex: 3,
            unit_strindex: 4,
        }),
        period: 1_000_000_000 / 19,
        samples: vec![Sample {
            stack_index: 1,
            attribute_indices: vec![4, 5, 6],
            timestamps_unix_nano: vec![1, 2, 3],
            ..Sample::default()
        }],
        time_unix_nano: 1_767_225_600_000_000_000,
        duration_nano: 5_000_000_000,
        ..Profile::default()
    };
    ExportRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![
                    attribute("process.pid", number(4711)),
                    attribute("process.executable.path", text("/usr/sbin/nginx")),
                    attribute("process.executable.name", text("nginx")),
                ],
            }),
            scope_profiles: vec![ScopeProfiles {
                scope: None,
                profiles: vec![profile],
            }],
        }],
        dictionary: Some(dictionary()),
    }
}

fn value_of<'a>(labels: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    let found = labels.iter().find(|(name, _)| name == wanted);
    found.map(|(_, value)| value.as_str())
}

#[test]
fn a_process_without_a_service_is_called_after_its_program() {
    let mut all = convert(&request(), &Limits::default());
    let converted = all.remove(0).ok().unwrap();
    assert_eq!(value_of(&converted.labels, "service_name"), Some("nginx"));
    assert!(converted.labels.is_sorted());

    let mut named = request();
    let resource = named.resource_profiles[0].resource.as_mut().unwrap();
    resource.attributes.push(KeyValue {
        key: "service.name".to_owned(),
        value: text("edge"),
        key_strindex: 0,
    });
    let converted = convert(&named, &Limits::default()).remove(0).ok().unwrap();
    assert_eq!(value_of(&converted.labels, "service_name"), Some("edge"));
}

#[test]
fn its_timestamps_are_cpu_time_and_its_addresses_can_be_named() {
    let converted = convert(&request(), &Limits::default())
        .remove(0)
        .ok()
        .unwrap();
    let profile = &converted.profile;
    assert_eq!(converted.name, "process_cpu");
    assert_eq!((profile.total(0), profile.total(1)), (3, 3 * 52_631_578));
    let mapping = &profile.mappings[0];
    assert_eq!(profile.strings.get(mapping.build_id), b"c7e0d1");
    let native = (0..profile.locations.address.len())
        .map(|at| profile.location(at))
        .find(|location| location.address == 0x8_dca4)
        .unwrap();
    assert!(native.lines.is_empty());
    let labels = profile.iter_samples().next().unwrap().labels.len();
    assert_eq!(labels, 3, "thread.name, thread.id, cpu.logical_number");
}
