//! The whole road once, started as a user would start it: a Rust service under load, a Go program as it
//! is, and `pilotlight up` with a configuration file. The known hot function must have its known share
//! in the service's own endpoint, in the server's pprof, in the API's tree, and on the page.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pilotlight_tests::process::{Program, Scratch, built, go_build};
use pilotlight_tests::{four_sigma, free_port, http, pprof, tee, wait_for};

/// The function of known share, as symbols name it.
const HOT: &str = "price_basket";
/// How long the services run before anything is asserted.
const WARM: Duration = Duration::from_secs(30);

/// Everything that a user would have running.
struct Stage {
    scratch: Scratch,
    service_port: u16,
    sdk_port: u16,
    server_port: u16,
    go_port: u16,
    recorded: tee::Recorded,
    up: Program,
    _checkout: Program,
    _load: Program,
    _go: Program,
}

impl Stage {
    fn start() -> Self {
        let scratch = Scratch::new("first-light");
        let (service_port, sdk_port, server_port, go_port) =
            (free_port(), free_port(), free_port(), free_port());
        let checkout = start_checkout(&scratch, service_port, sdk_port);
        let load = start_load(&scratch, service_port);
        let go_program = go_build("go/service", scratch.path());
        let address = format!("127.0.0.1:{go_port}");
        let go = Program::start(
            "goservice",
            scratch.path(),
            Command::new(go_program).arg(address),
        );
        let (tee_port, recorded) = tee::start(go_port);
        let up = start_up(&scratch, server_port, &configuration(sdk_port, tee_port));
        Self {
            scratch,
            service_port,
            sdk_port,
            server_port,
            go_port,
            recorded,
            up,
            _checkout: checkout,
            _load: load,
            _go: go,
        }
    }

    /// Cumulative CPU time in the hot function and in the whole process, as the service measured it.
    fn truth(&self) -> (f64, f64) {
        let truth = wait_for("the service", Duration::from_secs(10), || {
            http::json(self.service_port, "/truth")
        });
        let field = |name: &str| {
            truth[name]
                .as_f64()
                .unwrap_or_else(|| panic!("no {name} in {truth}"))
        };
        (field("hot_cpu_ns"), field("process_cpu_ns"))
    }
}

fn start_checkout(scratch: &Scratch, port: u16, sdk_port: u16) -> Program {
    let mut command = Command::new(built("checkout"));
    command
        .env("CHECKOUT_LISTEN", format!("127.0.0.1:{port}"))
        .env("PILOTLIGHT_LISTEN", format!("127.0.0.1:{sdk_port}"));
    let program = Program::start("checkout", scratch.path(), &mut command);
    wait_for("checkout", Duration::from_secs(10), || {
        http::json(port, "/truth")
    });
    program
}

fn start_load(scratch: &Scratch, port: u16) -> Program {
    let mut command = Command::new(built("checkout-load"));
    command.args([
        "--seconds",
        "150",
        "--connections",
        "2",
        "--url",
        &format!("http://127.0.0.1:{port}"),
    ]);
    Program::start("checkout-load", scratch.path(), &mut command)
}

fn configuration(sdk_port: u16, go_port: u16) -> String {
    format!(
        "scrape_configs:\n\
         - job_name: checkout\n  scrape_interval: 5s\n  static_configs:\n  - targets: ['127.0.0.1:{sdk_port}']\n    labels: {{env: test}}\n\
         - job_name: orders\n  scrape_interval: 5s\n  static_configs:\n  - targets: ['127.0.0.1:{go_port}']\n"
    )
}

fn start_up(scratch: &Scratch, port: u16, configuration: &str) -> Program {
    let file = scratch.path().join("pilotlight.yaml");
    std::fs::write(&file, configuration).unwrap();
    let mut command = Command::new(built("pilotlight"));
    command.args(["up", "--no-agent", "--config"]).arg(&file);
    command
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .arg("--data")
        .arg(scratch.path().join("data"));
    let program = Program::start("up", scratch.path(), &mut command);
    wait_for("the server", Duration::from_secs(10), || ready(port));
    program
}

fn ready(port: u16) -> Result<(), String> {
    let answer = http::get_within(port, "/ready", Duration::from_secs(5))?;
    if answer.status == 200 {
        Ok(())
    } else {
        Err(format!("/ready: {}", answer.status))
    }
}

fn selection(service: &str) -> String {
    format!(
        "type=cpu&q={}&from=now-10m&until=now",
        http::encode(&format!("{{service_name=\"{service}\"}}"))
    )
}

#[test]
fn the_hot_function_has_its_known_share_from_the_endpoint_to_the_page() {
    let mut stage = Stage::start();
    let before = stage.truth();
    std::thread::sleep(WARM);
    stage.up.must_run();
    let expected = Share::between(before, stage.truth());
    eprintln!("true share of {HOT}: {:.4}", expected.share);

    endpoint_has_the_share(&stage);
    server_pprof_has_the_share(&stage, &expected);
    let samples = tree_has_the_share(&stage, &expected);
    page_has_the_share(&stage, &expected, samples);
    go_service_equals_what_pprof_reads(&stage);
    earlier_data_is_there_after_a_restart(stage);
}

struct Share {
    share: f64,
}

impl Share {
    fn between(before: (f64, f64), after: (f64, f64)) -> Self {
        Self {
            share: (after.0 - before.0) / (after.1 - before.1),
        }
    }

    fn must_equal(&self, what: &str, measured: f64, samples: f64) {
        let slack = four_sigma(self.share, samples);
        eprintln!(
            "{what}: {measured:.4} of {samples} samples, expected {:.4} ± {slack:.4}",
            self.share
        );
        assert!(samples >= 100.0, "{what}: only {samples} samples");
        assert!(
            (measured - self.share).abs() <= slack,
            "{what}: {measured:.4}, expected {:.4} ± {slack:.4}",
            self.share
        );
    }
}

fn endpoint_has_the_share(stage: &Stage) {
    let url = format!(
        "http://127.0.0.1:{}/debug/pprof/profile?seconds=8",
        stage.sdk_port
    );
    let before = stage.truth();
    let top = pprof::top(&[&url], "samples", "count", stage.scratch.path()).unwrap();
    let expected = Share::between(before, stage.truth());
    expected.must_equal("the service's endpoint", top.share(HOT), top.total);
}

fn server_pprof_has_the_share(stage: &Stage, expected: &Share) {
    let url = format!(
        "http://127.0.0.1:{}/api/v1/pprof?{}",
        stage.server_port,
        selection("checkout")
    );
    let samples = url.replace("type=cpu", "type=samples");
    let cpu = pprof::top(&[&url], "cpu", "ns", stage.scratch.path()).unwrap();
    let counted = pprof::top(&[&samples], "samples", "count", stage.scratch.path()).unwrap();
    expected.must_equal("the server's pprof", cpu.share(HOT), counted.total);
}

/// Answers the number of samples.
fn tree_has_the_share(stage: &Stage, expected: &Share) -> f64 {
    let tree = http::json(
        stage.server_port,
        &format!("/api/v1/tree.json?{}", selection("checkout")),
    )
    .unwrap();
    let column = |name: &str| -> Vec<i64> {
        tree[name]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| value.as_i64().unwrap())
            .collect()
    };
    let (depth, name, own) = (column("depth"), column("name"), column("self"));
    let hot: Vec<bool> = tree["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap().contains(HOT))
        .collect();
    let mut inside = i64::MAX;
    let (mut total, mut sum) = (0, 0);
    for node in 0..depth.len() {
        if depth[node] <= inside {
            inside = if hot[name[node] as usize] {
                depth[node]
            } else {
                i64::MAX
            };
        }
        total += own[node];
        sum += if inside == i64::MAX { 0 } else { own[node] };
    }
    let period_ns = 1e9 / 97.0;
    let samples = total as f64 / period_ns;
    expected.must_equal("the API's tree", sum as f64 / total as f64, samples);
    samples
}

fn page_has_the_share(stage: &Stage, expected: &Share, samples: f64) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui/web/test/browser/live.mjs");
    let url = format!(
        "http://127.0.0.1:{}/?{}",
        stage.server_port,
        selection("checkout")
    );
    let output = Command::new("node")
        .arg(script)
        .args([
            &url,
            HOT,
            &format!("{:.5}", expected.share),
            &format!("{:.5}", four_sigma(expected.share, samples)),
        ])
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{text}");
}

/// What the scraper took from the Go program, stored and asked back, is what `go tool pprof` reads from
/// the very same answers.
fn go_service_equals_what_pprof_reads(stage: &Stage) {
    let answers = stage.recorded.lock().unwrap().clone();
    assert!(
        answers.len() >= 3,
        "only {} captures of the Go program",
        answers.len()
    );
    let until_ms = last_profile_end_ms(answers.last().unwrap());
    let files: Vec<PathBuf> = (0..answers.len())
        .map(|n| stage.scratch.path().join(format!("go-{n}.pb.gz")))
        .collect();
    for (file, answer) in files.iter().zip(&answers) {
        std::fs::write(file, answer).unwrap();
    }
    let sources: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
    let direct = pprof::top(&sources, "cpu", "ns", stage.scratch.path()).unwrap();
    let query = selection("orders").replace("until=now", &format!("until={until_ms}"));
    let url = format!(
        "http://127.0.0.1:{}/api/v1/pprof?{query}",
        stage.server_port
    );
    // The last capture may still be on its way into a segment.
    let stored = wait_for("the Go program's profile", Duration::from_secs(10), || {
        let stored = pprof::top(&[&url], "cpu", "ns", stage.scratch.path())?;
        if stored.total == direct.total {
            Ok(stored)
        } else {
            Err(format!("{} of {} ns", stored.total, direct.total))
        }
    });
    assert_eq!(sorted(stored.rows), sorted(direct.rows));
}

fn sorted(mut rows: Vec<pprof::Row>) -> Vec<(String, u64, u64)> {
    rows.sort_by(|a, b| a.function.cmp(&b.function).then(a.flat.total_cmp(&b.flat)));
    rows.into_iter()
        .map(|row| (row.function, row.flat as u64, row.cumulative as u64))
        .collect()
}

fn last_profile_end_ms(answer: &[u8]) -> i64 {
    let limits = pilotlight_profile::Limits::default();
    let decoded =
        pilotlight_profile::decode(answer, pilotlight_profile::Mode::Strict, &limits).unwrap();
    (decoded.profile.time_ns + decoded.profile.duration_ns) / 1_000_000 + 1
}

fn earlier_data_is_there_after_a_restart(stage: Stage) {
    let Stage {
        scratch,
        server_port,
        sdk_port,
        go_port,
        up,
        ..
    } = stage;
    let tree = |port| -> Result<i64, String> {
        let path = format!(
            "/api/v1/tree.json?{}",
            selection("checkout").replace("until=now", "until=now-20s")
        );
        http::json(port, &path)?["meta"]["total"]
            .as_i64()
            .ok_or_else(|| "no total".to_string())
    };
    let before = tree(server_port).unwrap();
    let status = up.interrupt(Duration::from_secs(5));
    assert!(status.success(), "Ctrl-C: {status}");
    let _again = start_up(&scratch, server_port, &configuration(sdk_port, go_port));
    let after = tree(server_port).unwrap();
    assert!(
        before > 0 && after >= before,
        "{before} ns before the restart, {after} ns after it"
    );
}
