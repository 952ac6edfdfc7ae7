//! `bench store [FOLDER]`: what a load costs from socket to Parquet blocks, what it takes on disk,
//! and what questions cost, warm, cold and after a kill. FOLDER is made by `loadgen`; without it the
//! bench's own generator makes a smaller load. Peers were measured once on `loadgen`'s 4,320 profiles
//! and are marked `(research)`.

mod corpus;

use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use self::corpus::{Corpus, Push};
use crate::{
    child::Outcome,
    figure::{Figure, Goal},
    server::{
        http::{Client, encode},
        process::{Server, bytes_on_disk},
    },
};

const REPEATS: usize = 7;

/// Prints all figures of the part.
pub fn run(folder: Option<&str>) -> Outcome<()> {
    let corpus = match folder {
        Some(folder) => corpus::read(Path::new(folder))?,
        None => corpus::generated()?,
    };
    let count: usize = corpus.pushes.iter().map(Vec::len).sum();
    println!("# {count} profiles, {} samples", corpus.samples);
    let mut server = Server::start()?;
    ingest(&server, &corpus)?;
    disk(&server, &corpus)?;
    let warm = queries(&server, &corpus)?;
    let peak = server.peak_rss_mib()?;
    let peers = "pyroscope(research):815MB,parca(research):5280MB";
    figure("rss_peak", peak, "MiB", Goal::AtMost(256.0), peers);
    forget_pages(&server.data)?;
    server.kill_and_restart()?;
    let ready = server.ready_seconds;
    let peers = "pyroscope(research):3.6s";
    figure("ready_after_kill", ready, "s", Goal::AtMost(0.5), peers);
    let mut client = Client::connect(server.port)?;
    forget_pages(&server.data)?;
    let (cold, _) = ask(&server, &mut client, &tree(&corpus, Some(8192)))?;
    figure("cold_to_warm", cold / warm, "x", Goal::AtMost(2.0), "");
    Ok(())
}

/// Pushes all, one connection a pod, and waits until every segment became a block.
fn ingest(server: &Server, corpus: &Corpus) -> Outcome<()> {
    let (before, begun) = (server.cpu_seconds()?, Instant::now());
    thread::scope(|scope| {
        let send_all = |pushes: &[Push]| -> Result<(), String> {
            let mut client = Client::connect(server.port).map_err(|e| e.to_string())?;
            for push in pushes {
                let answer = client.request("POST", &push.target, &push.body);
                match answer.map_err(|error| error.to_string())? {
                    answer if answer.status == 200 => {}
                    answer => return Err(String::from_utf8_lossy(&answer.body).into_owned()),
                }
            }
            Ok(())
        };
        let workers: Vec<_> = corpus
            .pushes
            .iter()
            .map(|pushes| scope.spawn(move || send_all(pushes)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker died".to_owned())?)
    })?;
    let sent = begun.elapsed().as_secs_f64();
    let acknowledged = server.cpu_seconds()? - before;
    let mut client = Client::connect(server.port)?;
    while status(&mut client, "\"segments\":")? != status(&mut client, "\"blocks\":")? {
        if begun.elapsed() > Duration::from_secs(110) {
            return Err("segments are still there after 110 s".into());
        }
        thread::sleep(Duration::from_millis(200));
    }
    let cpu = server.cpu_seconds()? - before;
    println!(
        "# pushed in {sent:.1} s, {acknowledged:.2} CPU-s; all in blocks after {:.1} s, {cpu:.2} CPU-s",
        begun.elapsed().as_secs_f64()
    );
    let peers = "pyroscope(research):58000-69000/s,parca(research):25000/s";
    let rate = corpus.samples as f64 / cpu;
    // Eight times Pyroscope's lower figure.
    let goal = Goal::AtLeast(464_000.0);
    figure("ingest_per_cpu_second", rate, "samples/s", goal, peers);
    Ok(())
}

/// The number behind a key of `/api/v1/status`.
fn status(client: &mut Client, key: &str) -> Outcome<u64> {
    let answer = client.request("GET", "/api/v1/status", b"")?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let rest = text.split_once(key).ok_or("no such key")?.1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}

/// Bytes of the blocks that count.
fn disk(server: &Server, corpus: &Corpus) -> Outcome<()> {
    let (mut samples, mut symbols, mut blocks) = (0, 0, 0);
    let replaced = replaced(server)?;
    for path in files(&server.data.join("blocks"))? {
        let name = path.to_string_lossy().into_owned();
        if replaced.iter().any(|stem| name.contains(stem.as_str())) {
            continue;
        }
        let len = fs::metadata(&path)?.len();
        match name.split_once('.').map_or("", |(_, end)| end) {
            end if end.ends_with("samples.parquet") => samples += len,
            end if end.ends_with("symbols.parquet") => symbols += len,
            _ => blocks += 1,
        }
    }
    println!("# {blocks} blocks: samples {samples} B, symbols {symbols} B");
    let n = corpus.samples as f64;
    let peers = "pyroscope(research):14B-compacted,parca(research):154B";
    figure(
        "bytes_per_sample",
        samples as f64 / n,
        "B",
        Goal::AtMost(2.0),
        "",
    );
    let all = (samples + symbols) as f64 / n;
    figure(
        "bytes_per_sample_with_symbols",
        all,
        "B",
        Goal::AtMost(14.0 / 3.0),
        peers,
    );
    println!("# whole folder: {} B", bytes_on_disk(&server.data)?);
    Ok(())
}

/// Names (without their ends) that some manifest says it replaces.
fn replaced(server: &Server) -> Outcome<Vec<String>> {
    let mut all = Vec::new();
    let files = files(&server.data.join("blocks"))?;
    let manifests = files
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "plblk"));
    for path in manifests {
        let bytes = fs::read(path)?;
        for other in &files {
            let stem = other
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let Some(stem) = stem.strip_suffix(".plblk") else {
                continue;
            };
            let own = path.to_string_lossy().contains(stem);
            if !own
                && bytes
                    .windows(stem.len())
                    .any(|window| window == stem.as_bytes())
            {
                all.push(stem.to_owned());
            }
        }
    }
    Ok(all)
}

fn files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries.into_iter().map(|entry| entry.path()).collect())
}

fn question(corpus: &Corpus, route: &str, more: &str) -> String {
    let q = encode(&format!("{{service_name=\"{}\"}}", corpus.service.0));
    let (from, until) = corpus.window;
    format!("/api/v1/{route}?type=cpu&q={q}&from={from}&until={until}{more}")
}

fn tree(corpus: &Corpus, nodes: Option<usize>) -> String {
    let nodes = nodes.map_or(String::new(), |nodes| format!("&max_nodes={nodes}"));
    question(corpus, "tree", &nodes)
}

/// CPU milliseconds of an answer, and its wall milliseconds.
fn ask(server: &Server, client: &mut Client, target: &str) -> Outcome<(f64, f64)> {
    let (before, sent) = (server.cpu_seconds()?, Instant::now());
    let answer = client.request("GET", target, b"")?;
    let wall = sent.elapsed().as_secs_f64() * 1e3;
    if answer.status != 200 {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        return Err(format!("{target}: {} {text}", answer.status).into());
    }
    Ok(((server.cpu_seconds()? - before) * 1e3, wall))
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The answer is the CPU time of the cut tree, warm.
fn queries(server: &Server, corpus: &Corpus) -> Outcome<f64> {
    let mut client = Client::connect(server.port)?;
    println!(
        "# questions about {} profiles of one service",
        corpus.service.1
    );
    let of = "research,2160-profiles";
    let cut = format!("pyroscope({of}):340-620ms,parca({of}):8000-12000ms");
    let whole = format!("pyroscope({of}):2970ms");
    let labels = format!(
        "/api/v1/labels/pod/values?from={}&until={}",
        corpus.window.0, corpus.window.1
    );
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

/// Asks the kernel to drop the folder's pages, as after a night without a question.
fn forget_pages(folder: &Path) -> Outcome<()> {
    for path in files(folder)? {
        if path.is_dir() {
            forget_pages(&path)?;
            continue;
        }
        let file = File::open(&path)?;
        file.sync_all()?;
        // SAFETY: the descriptor is open for the call; advice changes no memory.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}

fn figure(name: &str, value: f64, unit: &str, goal: Goal, peer: &str) {
    Figure::print_of("store", name, value, unit, goal, peer);
}
