//! A program that pushes, and the server as a user starts it.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pilotlight::push::{Protocol, Push};
use pilotlight_tests::process::{Program, Scratch, built};
use pilotlight_tests::{free_port, http, pprof, wait_for};

#[inline(never)]
fn burn_and_push(stop: &AtomicBool) -> u64 {
    let mut x = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            x = black_box(x.wrapping_mul(31).wrapping_add(7));
        }
    }
    x
}

#[test]
fn what_is_pushed_is_asked_back_whole_also_what_was_taken_while_the_server_was_away() {
    round_trip(Protocol::Pprof);
}

#[test]
fn what_goes_as_otlp_is_asked_back_whole() {
    round_trip(Protocol::Otlp);
}

fn round_trip(protocol: Protocol) {
    let scratch = Scratch::new("push");
    let port = free_port();
    let push = Push::new(&format!("http://127.0.0.1:{port}")).label("env", "test");
    let push = push.protocol(protocol);
    let push = push.interval(Duration::from_secs(1));
    let config = pilotlight::Config::new("pusher").no_listener();
    let before = pilotlight::stats();
    let guard = config.push(push).start().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| burn_and_push(&stop));
        wait_for("a failed try", Duration::from_secs(20), || {
            let stats = pilotlight::stats();
            (stats.push_failed_tries > before.push_failed_tries + 1)
                .then_some(())
                .ok_or(format!("{stats:?}"))
        });
        let mut command = Command::new(built("pilotlight"));
        command.args(["server", "--listen", &format!("127.0.0.1:{port}"), "--data"]);
        command.arg(scratch.path().join("data"));
        let server = Program::start("server", scratch.path(), &mut command);
        wait_for("two pushes", Duration::from_secs(60), || {
            let stats = pilotlight::stats();
            (stats.pushed >= before.pushed + 2)
                .then_some(())
                .ok_or(format!("{stats:?}"))
        });
        stop.store(true, Ordering::Relaxed);
        // Sends the rest.
        drop(guard);
        let stats = pilotlight::stats();
        assert_eq!(
            (stats.push_lost_refused, stats.push_lost_unsent),
            (0, 0),
            "{stats:?}"
        );
        let selection = http::encode("{service_name=\"pusher\",env=\"test\"}");
        let url = format!(
            "http://127.0.0.1:{port}/api/v1/pprof?type=cpu&q={selection}&from=now-10m&until=now"
        );
        let top = pprof::top(&[&url], "cpu", "ns", scratch.path()).unwrap();
        assert!(top.share("burn_and_push") > 0.5, "{:?}", top.rows);
        let period_ns = 1e9 / 97.0;
        let taken = (top.total / period_ns).round();
        // Every sample of every push, of which each lasted a second.
        let expected = (stats.expiries - before.expiries) as f64;
        // What threads used after their last sample is settled when they end.
        let settled = stats.between_ticks + stats.unseen - before.between_ticks - before.unseen;
        let most = 1.01 * (expected + settled as f64);
        assert!(
            (0.99 * expected..=most).contains(&taken),
            "{taken} of {expected} samples and {settled} settled"
        );
        drop(server);
    });
}
