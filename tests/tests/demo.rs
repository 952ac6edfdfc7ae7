//! The example service shows each kind of profile, from its endpoint to the server's answers, by the
//! configuration that the example file has for it.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::process::Command;
use std::time::Duration;

use pilotlight_tests::process::{Program, Scratch, built};
use pilotlight_tests::{free_port, http, pprof, wait_for};

/// Start of the type's name, value column, a function, and the least share that it has. Most of the
/// wall time is that of threads that wait for work.
const SHOWN: [(&str, &str, &str, f64); 5] = [
    ("process_cpu:cpu:", "cpu", "price_basket", 0.2),
    ("memory:inuse_space:", "inuse_space", "archive::keep", 0.2),
    ("mutex:delay:", "delay", "archive::keep", 0.2),
    ("await:wait:", "wait", "bank", 0.2),
    ("wall:wall:", "wall", "checkout::", 0.02),
];

#[test]
fn up_shows_cpu_memory_locks_waits_and_wall_time_of_the_example() {
    let scratch = Scratch::new("demo");
    let (service, sdk, server) = (free_port(), free_port(), free_port());
    let mut command = Command::new(built("checkout"));
    command
        .env("CHECKOUT_LISTEN", format!("127.0.0.1:{service}"))
        .env("PILOTLIGHT_LISTEN", format!("127.0.0.1:{sdk}"));
    let _checkout = Program::start("checkout", scratch.path(), &mut command);
    wait_for("checkout", Duration::from_secs(10), || {
        http::json(service, "/truth")
    });
    let mut command = Command::new(built("checkout-load"));
    command.args(["--seconds", "120", "--connections", "4", "--url"]);
    command.arg(format!("http://127.0.0.1:{service}"));
    let _load = Program::start("checkout-load", scratch.path(), &mut command);

    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../pilotlight.example.yaml");
    let example = std::fs::read_to_string(example).unwrap();
    let (_, profiles) = example.split_once("    profiling_config:\n").unwrap();
    let (profiles, _) = profiles.split_once("\n\n").unwrap();
    let file = scratch.path().join("pilotlight.yaml");
    let job = format!(
        "scrape_configs:\n  - job_name: checkout\n    scrape_interval: 5s\n    \
         static_configs: [{{targets: ['127.0.0.1:{sdk}']}}]\n    profiling_config:\n{profiles}\n"
    );
    std::fs::write(&file, job).unwrap();
    let mut command = Command::new(built("pilotlight"));
    command.args(["up", "--no-agent", "--config"]).arg(&file);
    command.args(["--listen", &format!("127.0.0.1:{server}"), "--data"]);
    command.arg(scratch.path().join("data"));
    let _up = Program::start("up", scratch.path(), &mut command);

    let selection = http::encode("{service_name=\"checkout\"}");
    for (profile, column, function, least) in SHOWN {
        wait_for(profile, Duration::from_secs(60), || {
            let types = http::json(
                server,
                &format!("/api/v1/types?q={selection}&from=now-10m&until=now"),
            )?;
            let types = types["types"].to_string();
            // The full name of the type, which starts like this.
            let id = types.split('"').find(|text| text.starts_with(profile));
            let id = http::encode(id.ok_or(format!("no {profile} in {types}"))?);
            let url = format!(
                "http://127.0.0.1:{server}/api/v1/pprof?type={id}&q={selection}&from=now-10m&until=now"
            );
            let unit = match column {
                "inuse_space" => "B",
                _ => "ns",
            };
            let top = pprof::top(&[&url], column, unit, scratch.path())?;
            let share = top.share(function);
            (share > least).then_some(()).ok_or(format!(
                "{function} has {share} of {profile}: {:?}",
                top.rows
            ))
        });
    }
}
