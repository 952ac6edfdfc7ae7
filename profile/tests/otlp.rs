//! What OpenTelemetry's own code reads in what we write.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use pilotlight_profile::{Label, LabelValue, Mapping, Profile, ProfileBuilder};
use prost::Message;

fn profile() -> Profile {
    let mut b = ProfileBuilder::new();
    b.sample_type("samples", "count");
    b.sample_type("cpu", "nanoseconds");
    b.period("cpu", "nanoseconds", 10);
    b.time(1_700_000_000_000_000_000, 5_000_000_000);
    let (file, build_id) = (b.string(b"/bin/checkout"), b.string(b"c0ffee"));
    let mapping = b.mapping(Mapping {
        start: 0x1000,
        limit: 0x9000,
        offset: 0x400,
        file,
        build_id,
        ..Mapping::default()
    });
    let (inner, outer) = (b.string(b"inner"), b.string(b"outer\xff"));
    let source = b.string(b"src/main.rs");
    let inner = b.function(inner, inner, source, 3);
    let outer = b.function(outer, outer, source, 9);
    let leaf = b.location(Some(mapping), 0x1234, &[(inner, 12), (outer, 34)]);
    let root = b.location(None, 0, &[(outer, 0)]);
    let (key, value, unit) = (b.string(b"route"), b.string(b"/pay"), b.string(b"bytes"));
    let size = b.string(b"size");
    let labels = b.label_set(&[
        Label {
            key,
            value: LabelValue::Str(value),
        },
        Label {
            key: size,
            value: LabelValue::Num { value: 0, unit },
        },
        Label {
            key,
            value: LabelValue::Str(unit),
        },
    ]);
    let (long, short) = (b.stack(&[leaf, root]), b.stack(&[root]));
    b.sample(long, labels, &[3, 30]);
    b.sample(short, Default::default(), &[0, -7]);
    b.finish()
}

fn decoded(profile: &Profile) -> ExportProfilesServiceRequest {
    let bytes = profile.to_otlp(&[("service.name", "checkout"), ("env", "")]);
    ExportProfilesServiceRequest::decode(bytes.as_slice()).unwrap()
}

#[test]
fn every_part_of_a_profile_arrives() {
    let request = decoded(&profile());
    let tables = request.dictionary.unwrap();
    let text = |at: i32| tables.string_table[at as usize].as_str();
    let resource = &request.resource_profiles[0];
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    let named: Vec<(&str, Option<Value>)> = attributes
        .iter()
        .map(|kv| (kv.key.as_str(), kv.value.clone().unwrap().value))
        .collect();
    let string = |text: &str| Some(Value::StringValue(text.into()));
    assert_eq!(
        named,
        [("service.name", string("checkout")), ("env", string(""))]
    );
    let scope = &resource.scope_profiles[0];
    assert_eq!(scope.scope.as_ref().unwrap().name, "pilotlight");

    // Viewers take the first: CPU time.
    let [cpu, samples] = scope.profiles.as_slice() else {
        panic!("{:?}", scope.profiles);
    };
    let ty = |profile: &otlp::Profile| {
        let ty = profile.sample_type.unwrap();
        (
            text(ty.type_strindex).to_string(),
            text(ty.unit_strindex).to_string(),
        )
    };
    assert_eq!(ty(cpu), ("cpu".into(), "nanoseconds".into()));
    assert_eq!(ty(samples), ("samples".into(), "count".into()));
    assert_eq!(cpu.time_unix_nano, 1_700_000_000_000_000_000);
    assert_eq!((cpu.duration_nano, cpu.period), (5_000_000_000, 10));
    assert_eq!(text(cpu.period_type.unwrap().type_strindex), "cpu");
    let values = |p: &otlp::Profile| {
        p.samples
            .iter()
            .map(|s| s.values.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(values(cpu), [vec![30], vec![-7]]);
    assert_eq!(values(samples), [vec![3]]);

    let stack = &tables.stack_table[cpu.samples[0].stack_index as usize].location_indices;
    let leaf = &tables.location_table[stack[0] as usize];
    let frames: Vec<(&str, &str, i64)> = leaf
        .lines
        .iter()
        .map(|line| {
            let function = &tables.function_table[line.function_index as usize];
            (
                text(function.name_strindex),
                text(function.filename_strindex),
                line.line,
            )
        })
        .collect();
    let file = "src/main.rs";
    assert_eq!(frames, [("inner", file, 12), ("outer\u{fffd}", file, 34)]);
    assert_eq!(leaf.address, 0x1234);
    let mapping = &tables.mapping_table[leaf.mapping_index as usize];
    assert_eq!(
        (
            mapping.memory_start,
            mapping.memory_limit,
            mapping.file_offset
        ),
        (0x1000, 0x9000, 0x400)
    );
    assert_eq!(text(mapping.filename_strindex), "/bin/checkout");
    assert_eq!(tables.location_table[stack[1] as usize].mapping_index, 0);

    let attributes = |indices: &[i32]| -> Vec<(String, Option<Value>, String)> {
        let of = |at: &i32| &tables.attribute_table[*at as usize];
        let row = |a: &otlp::KeyValueAndUnit| {
            let value = a.value.clone().unwrap().value;
            (
                text(a.key_strindex).into(),
                value,
                text(a.unit_strindex).into(),
            )
        };
        indices.iter().map(of).map(row).collect()
    };
    let build_id = (
        "process.executable.build_id.gnu".into(),
        string("c0ffee"),
        String::new(),
    );
    assert_eq!(attributes(&mapping.attribute_indices), [build_id]);
    // A key that comes twice counts once; a zero stays a number.
    let expected = [
        ("route".to_string(), string("/pay"), String::new()),
        (
            "size".to_string(),
            Some(Value::IntValue(0)),
            "bytes".to_string(),
        ),
    ];
    assert_eq!(attributes(&cpu.samples[0].attribute_indices), expected);
    assert!(cpu.samples[1].attribute_indices.is_empty());
}

#[test]
fn time_that_is_a_count_times_the_period_goes_once() {
    let mut b = ProfileBuilder::new();
    b.sample_type("samples", "count");
    b.sample_type("cpu", "nanoseconds");
    b.period("cpu", "nanoseconds", 10);
    let stack = b.stack(&[]);
    b.sample(stack, Default::default(), &[3, 30]);
    let request = decoded(&b.finish());
    let profiles = &request.resource_profiles[0].scope_profiles[0].profiles;
    let strings = request.dictionary.unwrap().string_table;
    assert_eq!(profiles.len(), 1);
    let ty = profiles[0].sample_type.unwrap();
    assert_eq!(strings[ty.type_strindex as usize], "samples");
    assert_eq!(
        (profiles[0].period, &profiles[0].samples[0].values),
        (10, &vec![3])
    );
}

#[test]
fn entry_0_of_each_table_is_empty_also_for_a_profile_of_nothing() {
    for profile in [profile(), Profile::default()] {
        let tables = decoded(&profile).dictionary.unwrap();
        assert_eq!(tables.mapping_table[0], otlp::Mapping::default());
        assert_eq!(tables.location_table[0], otlp::Location::default());
        assert_eq!(tables.function_table[0], otlp::Function::default());
        assert_eq!(tables.attribute_table[0], otlp::KeyValueAndUnit::default());
        assert_eq!(tables.stack_table[0], otlp::Stack::default());
        assert_eq!(tables.string_table[0], "");
        assert_eq!(tables.link_table[0].trace_id, [0; 16]);
        assert_eq!(tables.link_table[0].span_id, [0; 8]);
    }
}
