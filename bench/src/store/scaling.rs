//! How a store grows: with the number of series, and with the time that is kept.

use super::{
    corpus::{self, Shape},
    disk, figure, ingest,
    questions::{ask, label_values, middle, tree},
};
use crate::{
    child::Outcome,
    figure::Goal,
    server::{http::Client, process::Server},
};

/// Rows of some seconds each; those marked long only when asked for.
const ROWS: [(&str, bool, Shape); 6] = [
    ("series_12", false, pods(6, 120)),
    ("series_120", false, pods(60, 12)),
    ("series_1200", true, pods(600, 3)),
    ("hours_1", false, hours(360, 10)),
    ("hours_24", false, hours(1_440, 60)),
    ("hours_720", true, hours(8_640, 300)),
];

const fn pods(pods: usize, profiles: usize) -> Shape {
    Shape {
        pods,
        profiles,
        ..corpus::SMALL
    }
}

const fn hours(profiles: usize, every_s: i64) -> Shape {
    Shape {
        services: 1,
        pods: 2,
        profiles,
        every_s,
        draws: 400,
    }
}

/// Prints what each row costs.
pub fn run(long: bool) -> Outcome<()> {
    for (name, only_long, shape) in ROWS {
        if long || !only_long {
            row(name, &shape)?;
        }
    }
    Ok(())
}

fn row(name: &str, shape: &Shape) -> Outcome<()> {
    let corpus = corpus::generated(shape)?;
    let server = Server::start()?;
    let cost = ingest::push(&server, &corpus)?;
    let (samples, symbols) = disk::sizes(&server)?;
    let mut client = Client::connect(server.port)?;
    let mut cpu_ms = |target: &str| -> Outcome<f64> {
        ask(&server, &mut client, target)?;
        let mut times = Vec::new();
        for _ in 0..5 {
            times.push(ask(&server, &mut client, target)?.0);
        }
        Ok(middle(times))
    };
    let flame = cpu_ms(&tree(&corpus, Some(8192)))?;
    let labels = cpu_ms(&label_values(&corpus))?;
    let n = corpus.samples as f64;
    let print = |what: &str, value: f64, unit: &str| {
        figure(&format!("{name}_{what}"), value, unit, Goal::None, "");
    };
    print("ingest", n / cost.cpu, "samples/s");
    print("bytes_per_sample", samples as f64 / n, "B");
    print("symbols_per_sample", symbols as f64 / n, "B");
    print("flame_graph_cut_cpu", flame, "ms");
    print("label_values_cpu", labels, "ms");
    print("rss_peak", server.peak_rss_mib()?, "MiB");
    Ok(())
}
