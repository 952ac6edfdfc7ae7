//! `pilotlight up` as a user runs it: the built binary, signals, restart, and what it says when it cannot.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

mod common;

use common::{PATIENCE, Running, pilotlight, run, text};
use pilotlight_tests::process::{Program, Scratch};
use pilotlight_tests::{free_port, http, wait_for};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

/// Total CPU time of a service in the last hour, once there is any.
fn cpu_of(port: u16, service: &str) -> Result<f64, String> {
    let selector = http::encode(&format!("{{service_name=\"{service}\"}}"));
    let path =
        format!("/api/v1/tree.json?type=process_cpu:cpu:nanoseconds:cpu:nanoseconds&q={selector}");
    let tree = http::json(port, &path)?;
    let total = tree["meta"]["total"].as_f64().unwrap_or(0.0);
    if total > 0.0 {
        Ok(total)
    } else {
        Err(format!("no CPU time yet: {}", tree["meta"]))
    }
}

#[test]
fn without_configuration_it_profiles_itself_and_a_restart_shows_the_earlier_data() {
    let scratch = Scratch::new("up-self");
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let up = Running::start(scratch.path(), &["up", "--no-agent", "--listen", &listen]);
    wait_for("the page", PATIENCE, || {
        match http::get_within(port, "/", Duration::from_secs(2)) {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{:?}", other.map(|answer| answer.status))),
        }
    });
    let before = wait_for("a self-profile", PATIENCE, || cpu_of(port, "pilotlight"));
    let targets = http::json(port, "/api/v1/targets").unwrap();
    assert_eq!(
        targets["data"]["activeTargets"][0]["health"], "up",
        "{targets}"
    );
    // the top five come at the latest 8 s after the start
    std::thread::sleep(Duration::from_secs(9));
    let (output, took) = up.stop("-INT");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(took < Duration::from_secs(5), "ended after {took:?}");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        out.contains(&format!("page        http://{listen}\n")),
        "{out}"
    );
    assert!(out.contains("profiling   pilotlight every 5s"), "{out}");
    assert!(
        out.contains("    scrape_configs:\n      - job_name: my-service\n"),
        "{out}"
    );
    assert!(
        out.contains("of CPU time; by the functions themselves:\n") && out.contains(" %  "),
        "{out}"
    );
    assert!(
        !out.contains('\u{1b}') && !err.contains('\u{1b}'),
        "NO_COLOR: {out}{err}"
    );
    assert!(err.contains("stopping"), "{err}");

    let again = Running::start(scratch.path(), &["up", "--no-agent", "--listen", &listen]);
    let after = wait_for("the earlier data", PATIENCE, || {
        cpu_of(port, "pilotlight").and_then(|now| {
            if now >= before {
                Ok(now)
            } else {
                Err(format!("{now} < {before}"))
            }
        })
    });
    assert!(after >= before);
    let (output, _) = again.stop("-TERM");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_capture_that_is_still_running_does_not_hold_up_ctrl_c() {
    let scratch = Scratch::new("up-busy");
    let port = free_port();
    let up = Running::start(
        scratch.path(),
        &["up", "--no-agent", "--listen", &format!("127.0.0.1:{port}")],
    );
    wait_for("the page", PATIENCE, || {
        http::get_within(port, "/", Duration::from_secs(2)).map(drop)
    });
    let capture = std::thread::spawn(move || {
        let _ = http::get_within(
            port,
            "/debug/pprof/profile?seconds=60",
            Duration::from_secs(90),
        );
    });
    std::thread::sleep(Duration::from_secs(1));
    let (output, took) = up.stop("-INT");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(took < Duration::from_secs(5), "ended after {took:?}");
    capture.join().unwrap();
}

#[test]
fn a_taken_port_and_a_taken_folder_say_what_to_run_next() {
    let scratch = Scratch::new("up-taken");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = run(
        scratch.path(),
        &["up", "--no-agent", "--listen", &format!("127.0.0.1:{port}")],
    );
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("another program has this port") && err.contains(&format!("sport = :{port}")),
        "{err}"
    );
    assert!(
        err.trim_end().ends_with(&format!(
            "next:  pilotlight up --listen 127.0.0.1:{}",
            port + 1
        )),
        "{err}"
    );

    let port = free_port();
    let up = Running::start(
        scratch.path(),
        &["up", "--no-agent", "--listen", &format!("127.0.0.1:{port}")],
    );
    wait_for("the page", PATIENCE, || {
        http::get_within(port, "/", Duration::from_secs(2)).map(drop)
    });
    let output = run(scratch.path(), &["up", "--listen", "127.0.0.1:0"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("in use by another pilotlight") && err.contains("next:  pilotlight up --data"),
        "{err}"
    );
    up.stop("-INT");
}

#[test]
fn a_bad_file_lists_its_problems_and_exits_with_2() {
    let scratch = Scratch::new("up-config");
    let file = scratch.path().join("pilotlight.yaml");
    std::fs::write(
        &file,
        "scrape_configs: [{job_name: a, scrap_interval: 1s, proxy_url: 'http://p'}]\n",
    )
    .unwrap();
    let output = run(scratch.path(), &["up", "--config", "pilotlight.yaml"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("did you mean scrape_interval?") && err.contains("not supported yet"),
        "{err}"
    );
    assert!(err.contains("next:  edit pilotlight.yaml"), "{err}");
    assert_eq!(text(&output.stdout), "");
    for (section, problem) in [
        (
            "server: {lisen: x}",
            "server.lisen: unknown key; did you mean listen?",
        ),
        (
            "server: {listen: x}",
            "server.listen: \"x\" is not an address",
        ),
        ("server: []", "server: must be a mapping"),
        (
            "server: {ingest: {bytes_per_second: fast}}",
            "server.ingest.bytes_per_second: \"fast\" is not a size",
        ),
        (
            "server: {ingest: {sampling: [{selector: '{a=', keep_share: 0.5}]}}",
            "server.ingest.sampling[0].selector: at byte",
        ),
        (
            "server: {ingest: {sampling: [{keep_share: 1.5}]}}",
            "server.ingest.sampling[0].keep_share: must be from 0 to 1",
        ),
        (
            "server: {ingest: {sampling: [{keep_share: 0.5, keep_series: 0.5}]}}",
            "server.ingest.sampling[0]: needs one of keep_share, keep_series and keep_profiles",
        ),
        (
            "server: {retention: {max_age: 0s}}",
            "server.retention.max_age: must be longer than 0",
        ),
        (
            "server: {retention: {rules: [{selector: '{pod!=\"\"}'}]}}",
            "server.retention.rules[0]: needs one of max_age, roll_up_max_age and max_bytes",
        ),
        (
            "server: {retention: {rules: [{selector: '{pod', max_age: 3d}]}}",
            "server.retention.rules[0].selector: at byte",
        ),
    ] {
        std::fs::write(&file, section).unwrap();
        let output = run(scratch.path(), &["up", "--config", "pilotlight.yaml"]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(problem), "{err}");
    }
    let output = run(scratch.path(), &["up", "--config", "missing.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("next:  pilotlight up, without --config"));
}

#[test]
fn an_address_for_everyone_needs_a_word() {
    let scratch = Scratch::new("up-public");
    let output = run(scratch.path(), &["up", "--listen", "0.0.0.0:0"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("nobody needs a token")
            && err.contains("next:  pilotlight up --listen 127.0.0.1:"),
        "{err}"
    );
}

#[test]
fn the_example_file_is_valid() {
    let scratch = Scratch::new("up-example");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pilotlight.example.yaml");
    let port = free_port();
    let arguments = [
        "up",
        "--no-agent",
        "--config",
        example.to_str().unwrap(),
        "--listen",
        &format!("127.0.0.1:{port}"),
    ];
    let data = scratch.path().join("data");
    let up = Running::start(
        scratch.path(),
        &[&arguments[..], &["--data", data.to_str().unwrap()]].concat(),
    );
    let count = wait_for("targets", PATIENCE, || {
        let targets = http::json(port, "/api/v1/targets")?;
        let count = targets["data"]["activeTargets"]
            .as_array()
            .map_or(0, Vec::len);
        if count >= 9 {
            Ok(count)
        } else {
            Err(targets.to_string())
        }
    });
    assert_eq!(
        count, 9,
        "six profiles of checkout, two of orders, pilotlight"
    );
    let (output, _) = up.stop("-INT");
    assert!(output.status.success());
    let out = text(&output.stdout);
    assert!(
        out.contains("profiling   orders every 15s: 127.0.0.1:6061, 127.0.0.1:6062,"),
        "{out}"
    );
    assert!(!out.contains("to add a service"), "{out}");
}

/// `up` with its agent, its output in a file; port and program.
fn with_agent(scratch: &Scratch, port: u16) -> Program {
    let file = scratch.path().join("pilotlight.yaml");
    std::fs::write(&file, "agent: {interval: 1s, debuginfo: {upload: false}}\n").unwrap();
    let listen = format!("127.0.0.1:{port}");
    let arguments = ["up", "--config", "pilotlight.yaml", "--listen", &listen];
    Program::start(
        "up",
        scratch.path(),
        &mut pilotlight(scratch.path(), &arguments),
    )
}

/// What it says of the host agent, once it does.
fn said(up: &Program) -> String {
    wait_for("a line of the host agent", Duration::from_secs(60), || {
        let output = up.output();
        let line = output.lines().find(|line| line.starts_with("host agent  "));
        line.map(str::to_owned).ok_or(output)
    })
}

#[test]
fn the_host_agent_runs_beside_it_where_it_may_and_ends_with_it() {
    let scratch = Scratch::new("up-agent");
    let port = free_port();
    let up = with_agent(&scratch, port);
    let doctor = text(&run(scratch.path(), &["doctor"]).stdout);
    let line = said(&up);
    if !doctor.contains("ok       CAP_PERFMON") {
        println!("SKIP: no permission to sample; it says {line:?}");
        return;
    }
    assert!(line.starts_with("host agent  by "), "{line}");
    let selection = http::encode("{source=\"agent\"}");
    wait_for("a profile from outside", Duration::from_secs(60), || {
        let path = format!("/api/v1/top?type=cpu&q={selection}&from=now-10m&until=now&limit=5");
        let top = http::json(port, &path)?;
        let total = top["total"].as_f64().unwrap_or(0.0);
        (total > 0.0).then_some(()).ok_or(top.to_string())
    });
    let agent = child_of(up.id());
    // Killed, not ended in order: the agent sees its input end.
    drop(up);
    wait_for(
        "the end of the agent",
        Duration::from_secs(60),
        || match parent_of(agent) {
            None => Ok(()),
            Some(parent) => Err(format!("{agent} runs still, child of {parent}")),
        },
    );
}

/// From `/proc/PID/stat`; `None` when it has ended.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z")
}

fn child_of(parent: u32) -> u32 {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|&pid| parent_of(pid) == Some(parent)).unwrap()
}

#[test]
fn without_its_host_agent_it_says_why_and_goes_on() {
    let scratch = Scratch::new("up-alone");
    let port = free_port();
    let name = format!("pilotlight-agent http://127.0.0.1:{port}/");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _other = UnixListener::bind_addr(&address).unwrap();
    let mut up = with_agent(&scratch, port);
    let line = said(&up);
    let expected =
        "host agent  not started: another pilotlight agent on this host sends to http://127.0.0.1:";
    assert!(line.starts_with(expected), "{line}");
    assert!(line.contains("; next: pilotlight agent"), "{line}");
    wait_for("a self-profile", PATIENCE, || cpu_of(port, "pilotlight"));
    up.must_run();
}
