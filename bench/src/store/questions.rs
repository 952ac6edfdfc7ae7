//! What questions cost.

use std::time::Instant;

use super::{corpus::Corpus, figure};
use crate::{
    child::Outcome,
    figure::Goal,
    server::{
        http::{Client, encode},
        process::Server,
    },
};

const REPEATS: usize = 7;

pub fn question(corpus: &Corpus, route: &str, more: &str) -> String {
    let q = encode(&format!("{{service_name=\"{}\"}}", corpus.service.0));
    let (from, until) = corpus.window;
    format!("/api/v1/{route}?type=cpu&q={q}&from={from}&until={until}{more}")
}

/// Names of all pods.
pub fn label_values(corpus: &Corpus) -> String {
    let (from, until) = corpus.window;
    format!("/api/v1/labels/pod/values?from={from}&until={until}")
}

/// A flame graph of the service.
pub fn tree(corpus: &Corpus, nodes: Option<usize>) -> String {
    let nodes = nodes.map_or(String::new(), |nodes| format!("&max_nodes={nodes}"));
    question(corpus, "tree", &nodes)
}

/// CPU milliseconds of an answer, and its wall milliseconds.
pub fn ask(server: &Server, client: &mut Client, target: &str) -> Outcome<(f64, f64)> {
    let (before, sent) = (server.cpu_seconds()?, Instant::now());
    let answer = client.request("GET", target, b"")?;
    let wall = sent.elapsed().as_secs_f64() * 1e3;
    if answer.status != 200 {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        return Err(format!("{target}: {} {text}", answer.status).into());
    }
    Ok(((server.cpu_seconds()? - before) * 1e3, wall))
}

pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The answer is the CPU time of the cut tree, warm.
pub fn run(server: &Server, corpus: &Corpus) -> Outcome<f64> {
    let mut client = Client::connect(server.port)?;
    println!(
        "# questions about {} profiles of one service",
        corpus.service.1
    );
    let of = "research,2160-profiles";
    let cut = format!("pyroscope({of}):340-620ms,parca({of}):8000-12000ms");
    let whole = format!("pyroscope({of}):2970ms");
    let labels = label_values(corpus);
    let timeline = question(corpus, "series", "");
    let mut warm = 0.0;
    for (name, target, limit, peer, by_wall) in [
        (
            "flame_graph_cut_cpu",
            tree(corpus, Some(8192)),
            100.0,
            cut.as_str(),
            false,
        ),
        (
            "flame_graph_whole_cpu",
            tree(corpus, None),
            500.0,
            whole.as_str(),
            false,
        ),
        ("label_values_wall", labels, 5.0, "", true),
        ("timeline_wall", timeline, 5.0, "", true),
    ] {
        ask(server, &mut client, &target)?;
        let mut times = Vec::new();
        for _ in 0..REPEATS {
            let (cpu, wall) = ask(server, &mut client, &target)?;
            times.push(if by_wall { wall } else { cpu });
        }
        let value = middle(times);
        if warm == 0.0 {
            warm = value;
        }
        figure(name, value, "ms", Goal::AtMost(limit), peer);
    }
    Ok(warm)
}
