//! Profiles of other profilers through our endpoints.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use pilotlight::http::{Body, Request, respond};
use pilotlight::{Kind, foreign};
use pilotlight_profile::{Limits, Mode, Profile, ProfileBuilder, decode, top};

fn get(name: &str, query: &str) -> (u16, Vec<u8>) {
    let response = respond(&Request::get(&format!("/debug/pprof/{name}"), query));
    let bytes = match response.body {
        Body::Full(bytes) => bytes,
        Body::Stream(mut stream) => {
            let mut bytes = Vec::new();
            while let Some(chunk) = stream.next_chunk(|time| {
                common::burn(time.as_nanos() as u64);
                true
            }) {
                bytes.extend(chunk);
            }
            bytes
        }
    };
    (response.status, bytes)
}

fn profile(name: &str, query: &str) -> Profile {
    let (status, bytes) = get(name, query);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&bytes));
    let decoded = decode(&bytes, Mode::Strict, &Limits::default());
    decoded.unwrap().profile
}

fn arena() -> Vec<u8> {
    let mut b = ProfileBuilder::new();
    b.sample_type("blocks", "count");
    let name = b.string(b"Arena::grow");
    let function = b.function(name, name, Default::default(), 0);
    let location = b.location(None, 0, &[(function, 7)]);
    let stack = b.stack(&[location]);
    b.sample(stack, Default::default(), &[42]);
    b.finish().to_pprof_gz()
}

#[test]
fn what_the_program_makes_is_served_like_ours() {
    foreign::add("arena", "Blocks of the arena", Kind::Level, || Ok(arena())).unwrap();
    let got = profile("arena", "");
    assert_eq!(got.total(0), 42);
    assert_eq!(top(&got, 0)[0].name, "Arena::grow");
    let text = String::from_utf8(get("arena", "debug=1").1).unwrap();
    assert!(
        text.starts_with("arena profile: total 42\n42 @ 0x0\n#\t0x0\tArena::grow\t:7\n"),
        "{text}"
    );
    let types = pilotlight::profile_types();
    assert!(
        types
            .iter()
            .any(|ty| ty.name == "arena" && ty.description == "Blocks of the arena")
    );

    // Broken ones say why; names that are taken are refused.
    foreign::add("arena", "", Kind::Level, || Err("the arena is gone".into())).unwrap();
    assert_eq!(get("arena", ""), (500, b"the arena is gone\n".to_vec()));
    foreign::add("arena", "", Kind::Level, || Ok(vec![1, 2, 3])).unwrap();
    assert_eq!(get("arena", "").0, 500);
    for name in ["profile", "symbol", "", "a/b", "A"] {
        assert!(
            foreign::add(name, "", Kind::Level, || Ok(arena())).is_err(),
            "{name}"
        );
    }
    assert!(foreign::add("arena", "", Kind::Window, || Ok(arena())).is_err());
}

#[cfg(feature = "pprof")]
#[test]
fn what_pprof_rs_samples_is_served_with_names_threads_and_differences() {
    #[inline(never)]
    fn burned_under_pprof_rs() {
        common::burn(400_000_000);
    }

    let guard = pprof::ProfilerGuardBuilder::default()
        .frequency(199)
        .build()
        .unwrap();
    let guard = std::sync::Arc::new(guard);
    burned_under_pprof_rs();
    pilotlight::pprof::serve("pprof_rs", guard.clone()).unwrap();
    let all = profile("pprof_rs", "");
    // pprof-rs asks for 199 a second of CPU time and gets what the kernel's tick allows.
    let samples = common::expiries(&all, "burned_under_pprof_rs");
    assert!((20..=160).contains(&samples), "{samples} samples");
    assert_eq!(all.total(1), all.total(0) * (1_000_000_000 / 199));
    let report = guard.report().build().unwrap();
    let counted: isize = report.data.values().sum();
    assert!(
        all.total(0) <= counted as i64,
        "{} of {counted}",
        all.total(0)
    );
    let labels = all.iter_samples().flat_map(|sample| sample.labels);
    let thread = std::thread::current().name().unwrap().to_string();
    let mut values = labels.filter_map(|label| match label.value {
        pilotlight_profile::LabelValue::Str(value) => Some(all.strings.text(value)),
        _ => None,
    });
    // The system cuts names of threads at 15 bytes.
    assert!(values.any(|value| !value.is_empty() && thread.starts_with(&*value)));

    let gained = profile("pprof_rs", "seconds=1");
    assert_eq!(common::expiries(&gained, "burned_under_pprof_rs"), 0);
    assert!(
        common::expiries(&gained, "migration::") > 20,
        "{}",
        gained.total(0)
    );
}
