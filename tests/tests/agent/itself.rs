//! What the agent says of itself, and what it leaves to others.

use super::*;

#[test]
fn the_agent_shows_its_own_counts_and_costs_and_profile() {
    let scratch = Scratch::new("agent-own");
    let running = spin(&scratch, "own");
    let pair = profile(&scratch, &[running.id()]);
    let port = agent_port(&pair.agent);
    wait_for("samples", Duration::from_secs(60), || {
        let samples = metric(port, "pilotlight_agent_samples_total{state=\"exported\"}")?;
        let profiles = metric(
            port,
            "pilotlight_agent_profiles_total{state=\"acknowledged\"}",
        )?;
        let good = samples > 50.0 && profiles >= 1.0;
        good.then_some(())
            .ok_or(format!("{samples} samples, {profiles} profiles"))
    });
    assert!(metric(port, "process_cpu_seconds_total").unwrap() > 0.0);
    assert!(metric(port, "process_resident_memory_bytes").unwrap() > 1e6);
    assert_eq!(
        metric(port, "pilotlight_agent_info{sampler=\"perf\"}"),
        Ok(1.0)
    );
    let own = http::get_within(
        port,
        "/debug/pprof/profile?seconds=1",
        Duration::from_secs(60),
    )
    .unwrap();
    assert_eq!((own.status, &own.body[..2]), (200, &b"\x1f\x8b"[..]));
    let none = http::get_within(port, "/", Duration::from_secs(10)).unwrap();
    assert_eq!(none.status, 404);
    nothing_was_refused(&pair.agent);
}

/// CPU time of this process, seconds.
fn own_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

/// Uses one second of CPU time, whatever else runs.
fn burn() {
    let used = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let mut sum = 0u64;
    while used() < 1_000_000_000 {
        for i in 0..1_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
        }
    }
}

#[test]
fn a_program_with_the_sdk_is_counted_once_by_sdk_and_agent_together() {
    let scratch = Scratch::new("agent-sdk");
    let service = "counted-once";
    let _sdk = pilotlight::Config::new(service)
        .no_listener()
        .start()
        .unwrap();
    let pair = profile(&scratch, &[std::process::id()]);
    let agent = agent_port(&pair.agent);

    let capture = pilotlight::Capture::begin().unwrap();
    let before = own_cpu();
    let left = || {
        metric(
            agent,
            "pilotlight_agent_samples_total{state=\"left_to_sdk\"}",
        )
    };
    let mut rounds = 0;
    // Until the agent has seen and left out what the SDK counts.
    while rounds < 2 || left().unwrap() < 100.0 && rounds < 60 {
        let threads = [(); 2].map(|()| std::thread::spawn(burn));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        rounds += 1;
    }
    let used = own_cpu() - before;
    let own = capture.finish();
    assert!(
        left().unwrap() >= 100.0,
        "the agent did not see this process"
    );
    // Exports what it still has.
    assert!(pair.agent.interrupt(Duration::from_secs(60)).success());

    let file = scratch.path().join("own.pb.gz");
    std::fs::write(&file, own.to_pprof_gz()).unwrap();
    let mut push = Command::new(built("pilotlight"));
    push.arg("push")
        .arg(&file)
        .args(["--service", service, "--server"]);
    push.arg(format!("http://127.0.0.1:{}", pair.port));
    assert!(push.status().unwrap().success());
    let series = http::encode(&format!("{{service_name=\"{service}\"}}"));
    let path = format!("/api/v1/top?type=cpu&q={series}&from=now-10m&until=now&limit=5");
    let total = wait_for("the profile", Duration::from_secs(60), || {
        let total = http::json(pair.port, &path)?["total"]
            .as_f64()
            .unwrap_or(0.0);
        (total > 0.0)
            .then_some(total / 1e9)
            .ok_or("nothing yet".to_owned())
    });
    assert!(
        (total / used - 1.0).abs() < 0.02,
        "{total} s on the server, {used} s used"
    );
}
