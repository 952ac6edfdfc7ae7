//! What is pushed: a folder that `loadgen` made, or profiles of the bench's own generator.

use std::{
    fs,
    io::Write,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use crate::{child::Outcome, generator::Service, profile::prost_peer::Profile, server::http};

/// One profile on its way.
pub struct Push {
    /// Path and parameters.
    pub target: String,
    /// Labels as a selector.
    pub series: String,
    /// Start in Unix seconds.
    pub start_s: i64,
    /// Gzipped pprof.
    pub body: Vec<u8>,
}

/// All of them, a list a connection.
pub struct Corpus {
    /// Pushes, in the order of their time.
    pub pushes: Vec<Vec<Push>>,
    /// Samples of all.
    pub samples: u64,
    /// A service, and how many profiles it has.
    pub service: (String, usize),
    /// Seconds from the first profile to behind the last.
    pub window: (i64, i64),
}

/// Connections that push at once.
const CONNECTIONS: usize = 12;
const SECOND: i64 = 1_000_000_000;
const SECONDS_PER_PROFILE: i64 = 10;
/// What the generator makes.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Services.
    pub services: usize,
    /// Pods of each.
    pub pods: usize,
    /// Profiles of each pod.
    pub profiles: usize,
    /// Seconds from one profile of a pod to the next.
    pub every_s: i64,
    /// Samples drawn for each profile.
    pub draws: usize,
}

/// Two services with six pods each over 20 minutes.
pub const SMALL: Shape = Shape {
    services: 2,
    pods: 6,
    profiles: 120,
    every_s: SECONDS_PER_PROFILE,
    draws: 750,
};
const NAMES: [&str; 2] = ["checkout", "cart"];

fn target(labels: &str) -> String {
    let labels = http::encode(labels);
    format!("/api/v1/push?name=process_cpu&series={labels}")
}

/// Profiles of a shape that end now, twelve lists of pods.
pub fn generated(shape: &Shape) -> Outcome<Corpus> {
    let end = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
    let begin = end - shape.profiles as i64 * shape.every_s;
    let mut corpus = Corpus {
        pushes: (0..CONNECTIONS).map(|_| Vec::new()).collect(),
        samples: 0,
        service: (NAMES[0].to_owned(), shape.pods * shape.profiles),
        window: (begin - 1, end + 1),
    };
    let mut services = Vec::new();
    for at in 0..shape.services {
        // All pods run the same program, so one seed fixes the symbols; the draws differ.
        services.push(Service::new(at as u64 + 21, 2_000, 10_000));
    }
    for n in 0..shape.profiles as i64 {
        let start = (begin + n * shape.every_s) * SECOND;
        for series in 0..shape.services * shape.pods {
            let (at, pod) = (series % shape.services, series / shape.services);
            let name = NAMES.get(at).copied().unwrap_or("other");
            let labels = format!("{{service_name=\"{name}\",pod=\"{name}-{pod}\"}}");
            let raw = services[at].profile(shape.draws, start, SECONDS_PER_PROFILE * SECOND);
            corpus.samples += Profile::decode(raw.as_slice())?.sample.len() as u64;
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&raw)?;
            corpus.pushes[series % CONNECTIONS].push(Push {
                target: target(&labels),
                series: labels,
                start_s: start / SECOND,
                body: gzip.finish()?,
            });
        }
    }
    Ok(corpus)
}

/// Reads `corpus.bin`, `manifest.jsonl` and `meta.json`.
pub fn read(folder: &Path) -> Outcome<Corpus> {
    let bytes = fs::read(folder.join("corpus.bin"))?;
    let series = series(&fs::read_to_string(folder.join("meta.json"))?);
    let records = fs::read_to_string(folder.join("manifest.jsonl"))?;
    let times = records.lines().filter_map(|line| number(line, "t"));
    let (first, last) = times.fold((i64::MAX, 0), |(a, b), t| (a.min(t), b.max(t)));
    let service = series.first().ok_or("meta.json has no series")?.1.clone();
    let mut corpus = Corpus {
        pushes: (0..CONNECTIONS).map(|_| Vec::new()).collect(),
        samples: 0,
        service: (service.clone(), 0),
        window: (first / SECOND - 1, last / SECOND + 1),
    };
    for line in records.lines() {
        let field = |key| number(line, key).ok_or_else(|| format!("no {key} in {line}"));
        let (labels, of) = &series[field("s")? as usize];
        let (from, len) = (field("off")? as usize, field("len")? as usize);
        corpus.samples += field("n")? as u64;
        corpus.service.1 += usize::from(*of == service);
        corpus.pushes[field("s")? as usize % CONNECTIONS].push(Push {
            target: target(labels),
            series: labels.clone(),
            start_s: field("t")? / SECOND,
            body: bytes[from..from + len].to_vec(),
        });
    }
    Ok(corpus)
}

/// The number behind `"key":` on a line of JSON that `loadgen` wrote.
fn number(line: &str, key: &str) -> Option<i64> {
    let rest = line.split_once(&format!("\"{key}\":"))?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-')?;
    rest[..end].parse().ok()
}

/// (labels, service) of each series, from the indented JSON that `loadgen` wrote.
fn series(meta: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for block in meta.split("\"labels\":").skip(1) {
        let inside = block.split('}').next().unwrap_or_default();
        let words: Vec<&str> = inside.split('"').skip(1).step_by(2).collect();
        let pairs: Vec<(&str, &str)> = words
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
            .collect();
        let text: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let service = pairs.iter().find(|(name, _)| *name == "service_name");
        let service = service.map_or(String::new(), |(_, value)| (*value).to_owned());
        all.push((format!("{{{}}}", text.join(",")), service));
    }
    all
}
