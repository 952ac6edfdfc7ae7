use std::time::Duration;

use pilotlight_profile::{Limits, Mode, Profile, decode};

use super::fake::{Fake, HEAP};
use super::{Kind, State, profile_types, set_enabled, take};
use crate::http::{Body, Request, Response, respond};

fn body(response: Response) -> Vec<u8> {
    match response.body {
        Body::Full(bytes) => bytes,
        Body::Stream(mut stream) => {
            let mut bytes = Vec::new();
            while let Some(chunk) = stream.next_chunk(|time| {
                std::thread::sleep(time);
                true
            }) {
                bytes.extend(chunk);
            }
            bytes
        }
    }
}

fn get(path: &str, query: &str) -> (u16, String) {
    let response = respond(&Request::get(&format!("/debug/pprof/{path}"), query));
    let status = response.status;
    (status, String::from_utf8(body(response)).unwrap())
}

fn header(response: &Response, name: &str) -> Option<String> {
    let found = response.headers.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value.clone())
}

/// Name, values of each sample, in order of the names.
fn rows(profile: &Profile) -> Vec<(String, Vec<i64>)> {
    let mut rows: Vec<_> = profile
        .iter_samples()
        .map(|sample| {
            let line = profile.location(sample.stack[0] as usize).lines[0];
            let name = profile.functions[line.function.index()].name;
            (
                profile.strings.text(name).into_owned(),
                sample.values.to_vec(),
            )
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn seconds_gives_what_grew_and_the_levels_of_the_end() {
    let fake = Fake::add("fake_delta", HEAP);
    fake.set(&[
        ("same", 1, [5, 50, 2, 20]),
        ("grew", 2, [1, 10, 1, 10]),
        ("freed", 3, [4, 40, 4, 40]),
    ]);
    let response = respond(&Request::get("/debug/pprof/fake_delta", "seconds=1"));
    assert_eq!(response.status, 200);
    let disposition = header(&response, "Content-Disposition");
    assert_eq!(
        disposition.as_deref(),
        Some("attachment; filename=\"fake_delta-delta\"")
    );
    // The second profile has one stack more, and knows one name better.
    fake.set(&[
        ("same", 1, [5, 50, 2, 20]),
        ("grew, named", 2, [4, 70, 3, 30]),
        ("freed", 3, [4, 40, 0, 0]),
        ("new", 4, [9, 90, 0, 0]),
    ]);
    let gz = body(response);
    let profile = decode(&gz, Mode::Strict, &Limits::default())
        .unwrap()
        .profile;
    let expected = [
        ("grew, named", vec![3, 60, 3, 30]),
        ("new", vec![9, 90, 0, 0]),
        ("same", vec![0, 0, 2, 20]),
    ];
    assert_eq!(
        rows(&profile),
        expected.map(|(name, values)| (name.to_string(), values))
    );
    assert!((1_000_000_000..20_000_000_000).contains(&profile.duration_ns));
    assert!(profile.time_ns > 1_700_000_000_000_000_000);
}

#[test]
fn take_by_name_is_what_http_gives() {
    let fake = Fake::add("fake_take", HEAP);
    fake.set(&[("f", 1, [5, 50, 2, 20])]);
    let all = take("fake_take", Duration::ZERO).unwrap();
    assert_eq!(rows(&all), [("f".to_string(), vec![5, 50, 2, 20])]);
    let gained = take("fake_take", Duration::from_millis(1)).unwrap();
    assert_eq!(rows(&gained), [("f".to_string(), vec![0, 0, 2, 20])]);
    let error = take("nope", Duration::ZERO).unwrap_err().to_string();
    assert!(
        error.starts_with("profile type `nope`: there is no such type"),
        "{error}"
    );
}

#[test]
fn errors_of_seconds_are_those_of_go() {
    Fake::add("fake_errors", HEAP);
    Fake::add("fake_level", Kind::Level);
    let invalid = "invalid value for \"seconds\" - must be a positive integer\n";
    let unsupported = "\"seconds\" parameter is not supported for this profile type\n";
    for (path, query, text) in [
        ("fake_errors", "seconds=x", invalid),
        ("fake_errors", "seconds=0", invalid),
        ("fake_errors", "seconds=-1", invalid),
        ("fake_errors", "seconds=1.5", invalid),
        ("fake_errors", "seconds=x&debug=1", invalid),
        (
            "fake_errors",
            "seconds=1&debug=1",
            "seconds and debug params are incompatible\n",
        ),
        ("fake_level", "seconds=1", unsupported),
        ("fake_level", "seconds=x", invalid),
        ("fake_level", "seconds=1&debug=1", unsupported),
    ] {
        let response = respond(&Request::get(&format!("/debug/pprof/{path}"), query));
        assert_eq!(header(&response, "X-Go-Pprof").as_deref(), Some("1"));
        assert_eq!(header(&response, "Content-Disposition"), None);
        assert_eq!(
            (response.status, body(response)),
            (400, text.into()),
            "{path} {query}"
        );
    }
}

#[test]
fn text_forms_are_gos_legacy_forms() {
    let fake = Fake::add("fake_text", HEAP);
    fake.set(&[
        ("small", 0x10, [1, 10, 1, 10]),
        ("a\n# forged", 0x20, [4, 70, 3, 30]),
    ]);
    for query in ["debug=1", "debug=2", "debug=-1"] {
        let (status, text) = get("fake_text", query);
        let expected = "heap profile: 4: 40 [5: 80] @ heapprofile\n\
             3: 30 [4: 70] @ 0x20\n#\t0x20\ta?# forged\t:3\n\n\
             1: 10 [1: 10] @ 0x10\n#\t0x10\tsmall\t:3\n\n";
        assert_eq!((status, text.as_str()), (200, expected), "{query}");
    }
    assert!(
        respond(&Request::get("/debug/pprof/fake_text", "debug=0")).headers[0]
            .1
            .contains("octet")
    );
}

#[test]
fn what_is_off_says_why_and_how_to_switch_it_on() {
    let fake = Fake::add("fake_off", HEAP);
    fake.set(&[("f", 1, [5, 50, 2, 20])]);
    set_enabled("fake_off", false).unwrap();
    let text = "fake_off is off: switched off; to switch it on: pilotlight::set_enabled(\"fake_off\", true)";
    assert_eq!(get("fake_off", ""), (500, format!("{text}\n")));
    let (status, delta) = get("fake_off", "seconds=1");
    assert_eq!(
        (status, delta),
        (500, format!("failed to collect profile: {text}\n"))
    );
    let ty = profile_types()
        .into_iter()
        .find(|ty| ty.name == "fake_off")
        .unwrap();
    assert_eq!(ty.state, State::switched_off("fake_off"));
    assert_eq!((ty.cost.as_str(), ty.count), ("7 ns an event", 1));
    let (_, page) = get("", "");
    let row = "<tr><td>1</td><td><a href='fake_off?debug=1'>fake_off</a></td><td>off: switched off; \
         to switch it on: pilotlight::set_enabled(&#34;fake_off&#34;, true)</td><td>7 ns an event</td>";
    assert!(page.contains(row), "{page}");
    set_enabled("fake_off", true).unwrap();
    assert_eq!(
        respond(&Request::get("/debug/pprof/fake_off", "")).status,
        200
    );
    assert!(
        set_enabled("cmdline", false)
            .unwrap_err()
            .to_string()
            .contains("no switch")
    );
}

fn post(path: &str, query: &str, origin: Option<&str>) -> (u16, String) {
    let path = format!("/debug/pprof/{path}");
    let request = Request::new("POST", &path, query).with_origin(origin, Some("127.0.0.1:6060"));
    let response = respond(&request);
    let status = response.status;
    (status, String::from_utf8(body(response)).unwrap())
}

#[test]
fn http_switches_only_when_allowed_and_never_for_another_site() {
    Fake::add("fake_switch", HEAP);
    let (status, text) = post("fake_switch", "enable=0", None);
    assert_eq!(status, 403);
    assert!(text.contains("PILOTLIGHT_HTTP_SWITCH=true"), "{text}");
    crate::http::allow_switch(true);
    let elsewhere = post("fake_switch", "enable=0", Some("http://evil.example"));
    let no_site = post("fake_switch", "enable=0", Some("null"));
    assert_eq!((elsewhere.0, no_site.0), (403, 403));
    let own = Some("http://127.0.0.1:6060");
    let off = (200, "fake_switch is off: switched off\n".to_string());
    assert_eq!(post("fake_switch", "enable=0", own), off);
    assert_eq!(get("fake_switch", "").0, 500);
    let on = (200, "fake_switch is on\n".to_string());
    assert_eq!(post("fake_switch", "enable=1", None), on);
    assert_eq!(post("fake_switch", "enable=yes", None).0, 400);
    assert_eq!(post("fake_switch", "", None).0, 405);
    assert_eq!(post("nope", "enable=1", None).0, 404);
    assert_eq!(post("cmdline", "enable=0", None).0, 409);
    crate::http::allow_switch(false);
}

#[test]
fn a_difference_that_fails_at_its_end_breaks_the_body_off() {
    let fake = Fake::add("fake_fails", HEAP);
    let response = respond(&Request::get("/debug/pprof/fake_fails", "seconds=1"));
    fake.on.store(false, std::sync::atomic::Ordering::Relaxed);
    let Body::Stream(mut stream) = response.body else {
        panic!("no stream");
    };
    while stream.next_chunk(|_| true).is_some() {}
    assert!(stream.has_failed());
    assert!(stream.next_chunk(|_| true).is_none() && stream.has_failed());
}
