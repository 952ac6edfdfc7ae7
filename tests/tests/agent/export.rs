//! Where profiles go, and where they wait.

use super::*;

/// Waits for CPU time of a selection.
fn has_cpu(port: u16, selector: &str) {
    let selection = http::encode(selector);
    let path = format!("/api/v1/top?type=cpu&q={selection}&from=now-10m&until=now&limit=5");
    wait_for(selector, Duration::from_secs(60), || {
        let top = http::json(port, &path)?;
        let total = top["total"].as_f64().unwrap_or(0.0);
        (total > 0.0).then_some(()).ok_or(top.to_string())
    });
}

#[test]
fn receivers_of_other_protocols_get_the_same_and_chosen_variables_are_labels() {
    let scratch = Scratch::new("agent-protocols");
    let (_server, port) = server::start(scratch.path(), "server", |_| {});
    for protocol in ["pilotlight", "otlp", "pyroscope", "parca"] {
        let running = spin(&scratch, protocol);
        let more = format!("protocol: {protocol}, label_env: [ZONE],");
        let _agent = agent_with(&scratch, port, &[running.id()], &more);
        has_cpu(port, &format!("{{zone=\"{protocol}\"}}"));
    }
}

#[test]
fn what_waits_on_disk_is_sent_by_the_next_agent() {
    let scratch = Scratch::new("agent-queue");
    let port = pilotlight_tests::free_port();
    let more = format!(
        "queue_dir: '{}', label_env: [ZONE],",
        scratch.path().join("q").display()
    );
    let running = spin(&scratch, "before");
    let first = agent_with(&scratch, port, &[running.id()], &more);
    let metrics = agent_port(&first);
    wait_for("profiles that wait", Duration::from_secs(60), || {
        let waiting = metric(metrics, "pilotlight_agent_waiting_profiles")?;
        (waiting >= 1.0).then_some(()).ok_or(format!("{waiting}"))
    });
    nothing_was_refused(&first);
    let made = "pilotlight_agent_tables_total{from=\"built\"}";
    assert!(metric(metrics, made).unwrap() >= 1.0);
    // Killed: nothing more is sent by it, and nothing more comes from that process.
    drop((first, running));
    let mut command = Command::new(built("pilotlight"));
    command.args(["server", "--listen", &format!("127.0.0.1:{port}"), "--data"]);
    command.arg(scratch.path().join("data"));
    let _server = Program::start("server", scratch.path(), &mut command);
    let other = spin(&scratch, "after");
    let second = agent_with(&scratch, port, &[other.id()], &more);
    has_cpu(port, "{zone=\"before\"}");
    has_cpu(port, "{zone=\"after\"}");
    // The same shell and C library: their unwind tables are read, not made.
    let metrics = agent_port(&second);
    let cached = "pilotlight_agent_tables_total{from=\"cached\"}";
    assert!(metric(metrics, cached).unwrap() >= 1.0);
    let whole = [
        "pilotlight_agent_kept_tables_gone_total{reason=\"damaged\"}",
        "pilotlight_agent_kept_tables_gone_total{reason=\"outdated\"}",
    ];
    assert_eq!(whole.map(|gone| metric(metrics, gone)), [Ok(0.0), Ok(0.0)]);
}

#[test]
fn rules_rename_labels_and_leave_processes_out_and_say_how_much() {
    let scratch = Scratch::new("agent-rules");
    let (_server, port) = server::start(scratch.path(), "server", |_| {});
    let (kept, left_out) = (spin(&scratch, "north-1"), spin(&scratch, "south-1"));
    let more = "label_env: [ZONE], relabel_configs: [\
        {source_labels: [zone], regex: 'south-.*', action: drop}, \
        {source_labels: [zone], regex: '(.+)-.*', target_label: area}, \
        {regex: 'zone|service_name|source', action: labeldrop}],";
    let agent = agent_with(&scratch, port, &[kept.id(), left_out.id()], more);
    // Labels that a series must have are there again.
    has_cpu(
        port,
        "{area=\"north\",source=\"agent\",service_name=~\".+\",zone=\"\"}",
    );
    let metrics = agent_port(&agent);
    let state = "pilotlight_agent_samples_total{state=\"dropped_by_rule\"}";
    wait_for(state, Duration::from_secs(60), || {
        let dropped = metric(metrics, state)?;
        (dropped >= 1.0).then_some(()).ok_or(format!("{dropped}"))
    });
    let selection = http::encode("{area!=\"north\",source=\"agent\"}");
    let path = format!("/api/v1/top?type=cpu&q={selection}&from=now-10m&until=now&limit=5");
    let answer = http::json(port, &path).unwrap_err().to_string();
    assert!(answer.contains("there is no data"), "{answer}");
}
