//! What bounds a query: its client, its budget, and the queries of others.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pilotlight_profile::{Limits, Mode, decode, merge};
use pilotlight_server::{Config, Disk, QueryLimits};

use super::{CPU, answered, ask, error, expected};
use crate::common::{Local, SECOND, T0, WINDOW, config, get, profile, push, try_request};

/// Files in memory; a read takes as long as is set, and is counted.
#[derive(Default)]
struct Slow {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    reads: AtomicU64,
    delay_ms: AtomicU64,
}

impl Disk for Slow {
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        files.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let files = self.files.lock().unwrap();
        let list = files.iter();
        Ok(list
            .map(|(name, bytes)| (name.clone(), bytes.len() as u64))
            .collect())
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.reads.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_millis(self.delay_ms.load(Relaxed)));
        let files = self.files.lock().unwrap();
        let bytes = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let end = (range.end as usize).min(bytes.len());
        Ok(bytes[(range.start as usize).min(end)..end].to_vec())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().unwrap().remove(name);
        Ok(())
    }
}

fn slow(folder: &Path) -> (Config, Arc<Slow>) {
    let disk = Arc::new(Slow::default());
    let mut config = config(folder);
    config.disk = Some(disk.clone());
    // Nothing stays decoded, so that every query reads.
    config.cache_bytes = 0;
    (config, disk)
}

/// A segment each, so that there is much to read.
fn push_many(address: SocketAddr, count: i64) {
    for n in 0..count {
        let body = profile(T0 + n * 10 * SECOND, &[(&["main"], 10_000_000)]);
        assert_eq!(push(address, "{service_name=\"s\"}", &body).status, 200);
    }
}

fn tree_path() -> String {
    format!("/api/v1/tree.json?type={CPU}&{WINDOW}")
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn finished_queries(address: SocketAddr) -> u64 {
    let text = get(address, "/metrics").text();
    let line = text
        .lines()
        .find(|line| line.starts_with("pilotlight_queries_total "));
    let value = line.and_then(|line| line.split(' ').nth(1));
    value.and_then(|value| value.parse().ok()).expect("counted")
}

#[test]
fn a_query_whose_client_has_gone_stops_reading() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let (config, disk) = slow(folder.path());
    let server = Local::start(config);
    push_many(server.address, 120);
    let (reads, queries) = (disk.reads.load(Relaxed), finished_queries(server.address));
    disk.delay_ms.store(100, Relaxed);
    let mut client = std::net::TcpStream::connect(server.address).unwrap();
    let head = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", tree_path());
    client.write_all(head.as_bytes()).unwrap();
    wait_for("the query reads", || disk.reads.load(Relaxed) > reads + 2);
    drop(client);
    wait_for("the query ends", || {
        finished_queries(server.address) > queries
    });
    let read = disk.reads.load(Relaxed) - reads;
    assert!(
        read < 120,
        "all {read} of 120 segments were read for nobody"
    );
    server.stop();
}

#[test]
fn a_query_over_its_budget_is_refused_with_the_limit_and_what_to_narrow() {
    type Cut = fn(&mut QueryLimits);
    let cuts: [(&str, Cut); 2] = [
        ("max_read", |limits| limits.read_bytes = 2000),
        ("max_memory", |limits| limits.memory_bytes = 100),
    ];
    for (limit, cut) in cuts {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        cut(&mut config.query);
        let server = Local::start(config);
        push_many(server.address, 20);
        for route in ["tree", "tree.json", "top", "depth", "pprof"] {
            let path = tree_path().replace("tree.json", route);
            let message = error(server.address, &path, 422);
            let wanted = message.contains(limit) && message.contains("narrow q");
            assert!(wanted, "{route}: {message}");
        }
        // A part of it is still to be had.
        if limit == "max_read" {
            let until = T0 / SECOND + 15;
            let path = format!("/api/v1/tree.json?type={CPU}&from=1767225000&until={until}");
            let tree = get(server.address, &path).json();
            assert_eq!(tree["meta"]["total"], 20_000_000, "{tree}");
        }
        server.stop();
    }
}

#[test]
fn shares_of_several_threads_are_the_same_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let mut profiles = Vec::new();
    for n in 0..24_u64 {
        let name = |at: u64| {
            format!(
                "f{:x}",
                (n * 31 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
            )
        };
        let names: Vec<[String; 3]> = (0..400)
            .map(|at| [format!("root{}", at % 7), name(at % 50), name(at)])
            .collect();
        let paths: Vec<Vec<&str>> = names
            .iter()
            .map(|path| path.iter().map(String::as_str).collect())
            .collect();
        let stacks: Vec<(&[&str], i64)> = paths
            .iter()
            .enumerate()
            .map(|(at, path)| (path.as_slice(), 10_000_000 * (1 + at as i64 % 3)))
            .collect();
        let body = profile(T0 + n as i64 * 10 * SECOND, &stacks);
        assert_eq!(
            push(server.address, "{service_name=\"s\"}", &body).status,
            200
        );
        profiles.push(
            decode(&body, Mode::Strict, &Limits::default())
                .unwrap()
                .profile,
        );
    }
    let stored = get(server.address, "/api/v1/status").json()["segment_bytes"].clone();
    assert!(
        stored.as_u64().unwrap() > 2 * (64 << 10),
        "{stored} bytes are one share"
    );
    let oracle = merge(&profiles.iter().collect::<Vec<_>>()).unwrap();
    let tree = ask(server.address, "tree.json", "{}", "");
    assert!(answered(&tree) == expected(&oracle, 1));
    assert_eq!(tree["meta"]["profiles"], 24);
    let pprof = |_| get(server.address, &tree_path().replace("tree.json", "pprof")).body;
    let [first, second] = [1, 2].map(pprof);
    assert!(first == second, "the same request gives the same bytes");
    let pprof = decode(&first, Mode::Strict, &Limits::default())
        .unwrap()
        .profile;
    assert!(expected(&pprof, 0) == expected(&oracle, 1));
    assert_eq!((pprof.time_ns, pprof.duration_ns), (T0, 240 * SECOND));
    server.stop();
}

/// What the machine itself listens on in 127.0.0.0/8 gives a client an address of its own.
fn get_from(source: [u8; 4], address: SocketAddr, path: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let status = String::from_utf8_lossy(&answer)
            .split(' ')
            .nth(1)
            .map(str::to_owned);
        status.and_then(|status| status.parse().ok()).unwrap_or(0)
    })
}

#[test]
fn a_flood_of_heavy_queries_of_one_client_does_not_starve_another() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, disk) = slow(folder.path());
    config.query.waiting = 40;
    let server = Local::start(config);
    push_many(server.address, 20);
    disk.delay_ms.store(20, Relaxed);
    let before = finished_queries(server.address);
    let address = server.address;
    let flood: Vec<_> = (0..30)
        .map(|_| std::thread::spawn(move || get(address, &tree_path()).status))
        .collect();
    wait_for("the flood is under way", || {
        finished_queries(address) > before + 2
    });
    let status = get_from([127, 0, 0, 2], address, &tree_path());
    let done = finished_queries(address) - before;
    assert_eq!(status, 200);
    assert!(
        done < 25,
        "{done} of 31 were answered before the other client's only one"
    );
    assert!(flood.into_iter().all(|one| one.join().unwrap() == 200));
    server.stop();
}

#[test]
fn who_asks_too_much_at_once_is_told_when_to_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, disk) = slow(folder.path());
    config.query.waiting = 1;
    let server = Local::start(config);
    push_many(server.address, 20);
    disk.delay_ms.store(20, Relaxed);
    let address = server.address;
    let many: Vec<_> = (0..12)
        .map(|_| {
            std::thread::spawn(move || try_request(address, "GET", &tree_path(), "", b"").unwrap())
        })
        .collect();
    let answers: Vec<_> = many.into_iter().map(|one| one.join().unwrap()).collect();
    let refused: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 429)
        .collect();
    assert!(
        !refused.is_empty() && refused.len() < 12,
        "{} refused",
        refused.len()
    );
    assert!(refused[0].head.to_lowercase().contains("retry-after: 1"));
    assert!(refused[0].text().contains("1 queries of this client wait"));
    server.stop();
}
