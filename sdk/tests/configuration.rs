//! Settings and environment: what is wrong is said, with what to do.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use pilotlight::http::{Request, respond};
use pilotlight::{Capture, Config, Error};

/// Starts with one environment variable set.
fn start_under(name: &str, value: &str) -> Result<pilotlight::Guard, Error> {
    // SAFETY: the only test of this file that runs, and no other thread reads the environment.
    unsafe { std::env::set_var(name, value) };
    let started = Config::new("test").listen("127.0.0.1:0").start();
    // SAFETY: as above.
    unsafe { std::env::remove_var(name) };
    started
}

#[test]
fn environment_overrides_the_program_and_nonsense_is_refused() {
    let guard = start_under("PILOTLIGHT_LISTEN", "none").unwrap();
    assert_eq!(guard.address(), None);
    drop(guard);

    let guard = start_under("PILOTLIGHT_ENABLED", "false").unwrap();
    assert_eq!(guard.address(), None);
    assert!(matches!(Capture::begin(), Err(Error::NotStarted)));
    drop(guard);

    let guard = start_under("PILOTLIGHT_FREQUENCY_HZ", "250").unwrap();
    assert!(guard.address().unwrap().ip().is_loopback());
    let profile = Capture::begin().unwrap().finish();
    assert_eq!(profile.period, 4_000_000);
    drop(guard);

    let refused = start_under("PILOTLIGHT_FREQUENCY_HZ", "fast").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "PILOTLIGHT_FREQUENCY_HZ is `fast`; it may be 1 to 10000"
    );
    for (name, good, bad, expected) in [
        (
            "PILOTLIGHT_ENGINE",
            "process-timer",
            "itimer",
            "auto, perf, timer or process-timer",
        ),
        (
            "PILOTLIGHT_BUDGET_CPU_PERCENT",
            "0.5",
            "half",
            "0.01 to 100",
        ),
        ("PILOTLIGHT_BUDGET_BYTES", "1000000", "1 MB", "bytes"),
    ] {
        drop(start_under(name, good).unwrap());
        let refused = start_under(name, bad).unwrap_err().to_string();
        assert_eq!(refused, format!("{name} is `{bad}`; it may be {expected}"));
    }
    let refused = start_under("PILOTLIGHT_ENABLED", "perhaps").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "PILOTLIGHT_ENABLED is `perhaps`; it may be true or false"
    );

    let switch = Request::new("POST", "/debug/pprof/profile", "enable=0");
    for (value, status) in [("false", 403), ("true", 200)] {
        let guard = start_under("PILOTLIGHT_HTTP_SWITCH", value).unwrap();
        assert_eq!(respond(&switch).status, status);
        drop(guard);
    }
    let told = |guard| {
        let answer = respond(&Request::new("HEAD", "/debug/pprof/profile", "seconds=1"));
        drop(guard);
        let mut headers = answer.headers.into_iter();
        headers.find_map(|(name, value)| (name == "Pilotlight-Version").then_some(value))
    };
    let start = || Config::new("test").no_listener();
    assert_eq!(told(start().start().unwrap()), None);
    let otel = |value| start_under("OTEL_RESOURCE_ATTRIBUTES", value).unwrap();
    assert_eq!(told(otel("service.version=3.1,a=b")).unwrap(), "3.1");
    assert_eq!(told(otel("service.version=not a version")), None);
    assert_eq!(
        told(start().version("1.4").start().unwrap()).unwrap(),
        "1.4"
    );
    let guard = start_under("PILOTLIGHT_VERSION", "2.0-rc1").unwrap();
    assert_eq!(told(guard).unwrap(), "2.0-rc1");
    let refused = start_under("PILOTLIGHT_VERSION", "a b")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("without spaces"), "{refused}");

    let refused = pilotlight::take("profile", Duration::ZERO).unwrap_err();
    assert!(refused.to_string().contains("switched off"), "{refused}");
}

#[test]
fn settings_out_of_range_are_refused_before_anything_starts() {
    for config in [
        Config::new("test").frequency_hz(0),
        Config::new("test").frequency_hz(10_001),
        Config::new("test").version(""),
        Config::new("test").version("1.2\r\nX: y"),
        Config::new("test").max_depth(0),
        Config::new("test").max_depth(1025),
        Config::new("test").ring_bytes(100),
        Config::new("test").budget_cpu_percent(0.0),
        Config::new("test").budget_cpu_percent(f64::NAN),
        Config::new("test").budget_cpu_percent(101.0),
    ] {
        let refused = config.no_listener().start().unwrap_err();
        assert!(matches!(refused, Error::Setting { .. }), "{refused}");
    }
}

#[test]
fn a_taken_address_is_named_with_the_way_out() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = Config::new("test")
        .listen(&address)
        .start()
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&address) && refused.contains("PILOTLIGHT_LISTEN"),
        "{refused}"
    );
}

#[test]
fn a_start_that_fails_for_want_of_descriptors_leaves_nothing_running() {
    let descriptors = |soft: Option<u64>| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the limit is plain data.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
            let old = limit.rlim_cur;
            limit.rlim_cur = soft.unwrap_or(old);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
            old
        }
    };
    // Room for the listener, not for what the server needs besides.
    let next = std::fs::File::open("/dev/null").unwrap();
    let next = std::os::fd::IntoRawFd::into_raw_fd(next);
    // SAFETY: just opened.
    unsafe { libc::close(next) };
    let old = descriptors(Some(next as u64 + 1));
    let failed = Config::new("test").listen("127.0.0.1:0").start();
    descriptors(Some(old));
    assert!(matches!(failed, Err(Error::Thread(_))), "{failed:?}");
    assert!(matches!(Capture::begin(), Err(Error::NotStarted)));
    let _guard = Config::new("test").no_listener().start().unwrap();
    assert!(Capture::begin().is_ok());
}
