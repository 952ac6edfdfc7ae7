//! What a process answers that does not sample. Apart from the other tests, for the sampler is one
//! a process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod http_support;

use http_support::{Go, get, go_tool_pprof, server};

#[test]
fn refused_capture_reads_like_gos_refusal() {
    let (go, ours) = (Go::start(), server(|_| {}));
    // Go refuses a second capture; ours runs without a sampler and refuses every one.
    let target = "/debug/pprof/profile?seconds=2";
    let first = std::thread::spawn(move || get(go.address, target).status);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let expected = get(go.address, target);
    let answer = get(ours.address(), target);
    assert_eq!((answer.status, expected.status), (500, 500));
    for name in [
        "Content-Type",
        "X-Content-Type-Options",
        "X-Go-Pprof",
        "Content-Disposition",
    ] {
        assert_eq!(answer.header(name), expected.header(name), "{name}");
    }
    for text in [answer.text(), expected.text()] {
        assert!(
            text.starts_with("Could not enable CPU profiling: "),
            "{text}"
        );
        assert!(text.ends_with('\n'), "{text}");
    }
    assert_eq!(first.join().unwrap(), 200);
}

#[test]
fn go_tool_pprof_shows_why_there_is_no_profile() {
    let ours = server(|_| {});
    let url = format!("http://{}/debug/pprof/profile?seconds=1", ours.address());
    let error = go_tool_pprof(&["-top", &url]).unwrap_err();
    assert!(
        error.contains("Could not enable CPU profiling: "),
        "{error}"
    );
}

#[test]
fn index_says_that_the_profile_is_off_and_why() {
    let page = get(server(|_| {}).address(), "/debug/pprof/").text();
    assert!(
        page.contains("<td><a href='profile?debug=1'>profile</a></td><td>off: "),
        "{page}"
    );
    assert!(
        page.contains("<td><a href='cmdline?debug=1'>cmdline</a></td><td>on</td>"),
        "{page}"
    );
}
