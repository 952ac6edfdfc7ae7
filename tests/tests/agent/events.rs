//! Other events than the CPU's clock.

use super::*;

/// What `faults.cpp` faults in at once.
const PAGES: f64 = 5000.0;

/// The total of functions named like `function`, in profiles of a type.
fn total(port: u16, kind: &str, service: &str, function: &str) -> Result<f64, String> {
    let selection = http::encode(&format!("{{service_name=\"{service}\",source=\"agent\"}}"));
    let path = format!("/api/v1/top?type={kind}&q={selection}&from=now-10m&until=now&limit=1000");
    let top = http::json(port, &path)?;
    let rows = top["rows"].as_array().into_iter().flatten();
    let named = rows.filter(|row| row["name"].as_str().unwrap_or("").contains(function));
    let total = named
        .filter_map(|row| row["total"].as_f64())
        .fold(0.0, f64::max);
    match total > 0.0 {
        true => Ok(total),
        false => Err(top.to_string().chars().take(2000).collect()),
    }
}

#[test]
fn every_page_fault_of_a_program_stands_on_the_server_at_its_function() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("SKIP: BPF programs are loaded by root only (CAP_BPF, CAP_PERFMON)");
        return;
    }
    let scratch = Scratch::new("agent-faults");
    let program = cpp(&scratch, "faults.cpp", "faults-cpp");
    let go = scratch.path().join("go");
    let running = Program::start(
        "faults-cpp",
        scratch.path(),
        Command::new(&program).arg(&go),
    );
    let (_server, port) = server::start(scratch.path(), "server", |_| {});
    let agent = start_agent(
        &scratch,
        port,
        &[running.id()],
        "event: page-faults@1,",
        &[],
    );
    let kind = "page_faults:faults:count:faults:count";
    let limit = Duration::from_secs(60);
    // Its tables are made when a page that it touches now and then has its function.
    let metrics = agent_port(&agent);
    wait_for("its first faults", limit, || {
        total(port, kind, "faults-cpp", "seldom_in_cpp")
    });
    std::fs::write(&go, "").unwrap();
    let taken = wait_for("its faults", limit, || {
        let output = running.output();
        let told = output.lines().find_map(|line| line.strip_prefix("faults "));
        told.and_then(|n| n.parse::<f64>().ok()).ok_or(output)
    });
    let counted = wait_for("all its faults", limit, || {
        let counted = total(port, kind, "faults-cpp", "faults_in_cpp")?;
        (counted >= PAGES)
            .then_some(counted)
            .ok_or(format!("{counted} so far"))
    });
    println!("{counted} counted, {taken} by the system");
    assert!((PAGES..=PAGES + 2.0).contains(&counted), "{counted}");
    assert!((counted - taken).abs() <= 4.0, "{counted} of {taken}");
    let label = "pilotlight_agent_event_info{event=\"page-faults\",wanted=\"page-faults\"}";
    assert_eq!(metric(metrics, label), Ok(1.0));
    assert_eq!(metric(metrics, "pilotlight_agent_event_missing"), Ok(0.0));
    nothing_was_refused(&agent);
}

/// Virtual machines seldom have the processor's counters; then it must be said.
#[test]
fn cycles_are_sampled_or_the_clock_instead_and_it_says_so() {
    let scratch = Scratch::new("agent-cycles");
    let program = cpp(&scratch, "hot.cpp", "cycles-cpp");
    let running = Program::start("cycles-cpp", scratch.path(), &mut Command::new(&program));
    let (_server, port) = server::start(scratch.path(), "server", |_| {});
    let agent = agent_with(&scratch, port, &[running.id()], "event: cycles@10000019,");
    let missing = metric(agent_port(&agent), "pilotlight_agent_event_missing").unwrap() == 1.0;
    let said = agent
        .output()
        .contains("cycles: this machine does not count it");
    assert_eq!(missing, said, "{}", agent.output());
    let (event, kind) = match missing {
        true => ("cpu-clock", "process_cpu:cpu:nanoseconds:cpu:nanoseconds"),
        false => ("cycles", "cpu_cycles:cycles:count:cycles:count"),
    };
    let label = format!("pilotlight_agent_event_info{{event=\"{event}\",wanted=\"cycles\"}}");
    assert_eq!(metric(agent_port(&agent), &label), Ok(1.0));
    wait_for("its hot function", Duration::from_secs(60), || {
        total(port, kind, "cycles-cpp", "hot_in_cpp")
    });
}
