//! A load on its way in: CPU time to blocks, and how long each push waited for its answer.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    corpus::{Corpus, Push},
    figure,
    questions::middle,
};
use crate::{
    child::Outcome,
    figure::Goal,
    server::{http::Client, process::Server},
};

/// What a load cost.
pub struct Cost {
    /// CPU seconds of the server until all was in blocks.
    pub cpu: f64,
    /// Milliseconds that each push waited.
    pub waits: Vec<f64>,
}

/// Pushes all, a connection each list, and waits until every segment became a block.
pub fn push(server: &Server, corpus: &Corpus) -> Outcome<Cost> {
    let (before, begun) = (server.cpu_seconds()?, Instant::now());
    let waits = send(server.port, &corpus.pushes)?;
    let sent = begun.elapsed().as_secs_f64();
    let acknowledged = server.cpu_seconds()? - before;
    settle(server)?;
    let cpu = server.cpu_seconds()? - before;
    println!(
        "# pushed in {sent:.1} s, {acknowledged:.2} CPU-s; all in blocks after {:.1} s, {cpu:.2} CPU-s",
        begun.elapsed().as_secs_f64()
    );
    Ok(Cost { cpu, waits })
}

/// Pushes all and prints the figures.
pub fn run(server: &Server, corpus: &Corpus) -> Outcome<()> {
    let cost = push(server, corpus)?;
    let peers = "pyroscope(research):58000-69000/s,parca(research):25000/s";
    let rate = corpus.samples as f64 / cost.cpu;
    // Eight times Pyroscope's lower figure.
    let goal = Goal::AtLeast(464_000.0);
    figure("ingest_per_cpu_second", rate, "samples/s", goal, peers);
    let peers = "pyroscope(research):499ms";
    let goal = Goal::AtMost(300.0);
    figure("ack_p50_full", middle(cost.waits), "ms", goal, peers);
    Ok(())
}

/// Pushes of one sender who pauses: each waits for its own segment.
pub fn idle(server: &Server, corpus: &Corpus) -> Outcome<()> {
    let pushes = corpus.pushes.first().ok_or("no pushes")?;
    let mut client = Client::connect(server.port)?;
    let mut waits = Vec::new();
    for push in pushes.iter().take(60) {
        let target = "/api/v1/push?name=process_cpu&series=%7Bservice_name%3D%22idle%22%7D";
        waits.push(one(&mut client, target, &push.body)?);
        thread::sleep(Duration::from_millis(20));
    }
    let peers = "pyroscope(research):499ms,parca-without-durability(research):28ms";
    let goal = Goal::AtMost(50.0);
    figure("ack_p50_idle", middle(waits), "ms", goal, peers);
    Ok(())
}

fn one(client: &mut Client, target: &str, body: &[u8]) -> Outcome<f64> {
    let sent = Instant::now();
    let answer = client.request("POST", target, body)?;
    if answer.status != 200 {
        return Err(String::from_utf8_lossy(&answer.body).into_owned().into());
    }
    Ok(sent.elapsed().as_secs_f64() * 1e3)
}

fn send(port: u16, pushes: &[Vec<Push>]) -> Outcome<Vec<f64>> {
    let send_all = |pushes: &[Push]| -> Result<Vec<f64>, String> {
        let mut client = Client::connect(port).map_err(|e| e.to_string())?;
        let sent = pushes
            .iter()
            .map(|push| one(&mut client, &push.target, &push.body).map_err(|e| e.to_string()));
        sent.collect()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = pushes
            .iter()
            .map(|pushes| scope.spawn(move || send_all(pushes)))
            .collect();
        let mut waits = Vec::new();
        for worker in workers {
            waits.extend(worker.join().map_err(|_| "a worker died")??);
        }
        Ok(waits)
    })
}

/// Waits until every segment became a block.
fn settle(server: &Server) -> Outcome<()> {
    let mut client = Client::connect(server.port)?;
    let mut count = |key: &str| status(&mut client, &format!("\"{key}\":"));
    let sent = Instant::now();
    // Roll-ups count among the segments too.
    while count("segments")? != count("blocks")? + count("roll_ups")? {
        if sent.elapsed() > Duration::from_secs(110) {
            return Err("segments are still there after 110 s".into());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The number behind a key of `/api/v1/status`.
fn status(client: &mut Client, key: &str) -> Outcome<u64> {
    number_behind(client, "/api/v1/status", key)
}

/// The number behind a key like `"samples":` of an answer.
pub fn number_behind(client: &mut Client, target: &str, key: &str) -> Outcome<u64> {
    let answer = client.request("GET", target, b"")?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let rest = text.split_once(key);
    let rest = rest
        .ok_or_else(|| format!("{target} answers without {key}"))?
        .1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}
