//! A client of a few lines, profiles made by code, and a server in this process or in a child.
#![allow(dead_code, reason = "each test binary uses its own share")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pilotlight_profile::{LabelSetId, ProfileBuilder};
use pilotlight_server::{Config, Env, Maintenance, Running, Server};
use serde_json::Value;

/// 2026-01-01T00:00:00Z.
pub const T0: i64 = 1_767_225_600_000_000_000;
/// Window of all test data.
pub const WINDOW: &str = "from=1767225000&until=1767325600";
pub const SECOND: i64 = 1_000_000_000;

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.text()))
    }
}

pub fn try_request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> std::io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // A server may refuse before it has read all.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.ok_or_else(|| std::io::Error::other("no answer"))?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer[end + 4..].to_vec();
    Ok(Response {
        status: status.unwrap_or(0),
        head,
        body,
    })
}

pub fn get(address: SocketAddr, path: &str) -> Response {
    try_request(address, "GET", path, "", b"").unwrap()
}

/// Escapes what stands in a query parameter.
pub fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

pub fn push_path(series: &str) -> String {
    format!("/api/v1/push?name=process_cpu&series={}", escape(series))
}

pub fn push(address: SocketAddr, series: &str, body: &[u8]) -> Response {
    try_request(address, "POST", &push_path(series), "", body).unwrap()
}

/// A cpu profile whose stacks are given as (names root first, nanoseconds).
pub fn profile(time_ns: i64, stacks: &[(&[&str], i64)]) -> Vec<u8> {
    let mut out = ProfileBuilder::new();
    out.sample_type("samples", "count");
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 10_000_000);
    out.time(time_ns, 10 * SECOND);
    for (names, value) in stacks {
        let mut path = Vec::new();
        for name in names.iter().rev() {
            let id = out.string(name.as_bytes());
            let file = out.string(format!("{name}.rs").as_bytes());
            let function = out.function(id, id, file, 1);
            path.push(out.location(None, 0, &[(function, 7)]));
        }
        let stack = out.stack(&path);
        out.sample(stack, LabelSetId(0), &[value / 10_000_000, *value]);
    }
    out.finish().to_pprof_gz()
}

/// Settings for tests: a free port, no background work.
pub fn config(folder: &Path) -> Config {
    let mut config = Config::new(folder);
    config.listen = ([127, 0, 0, 1], 0).into();
    config.maintenance = None;
    config
}

/// A clock that a test sets, and random numbers that count through all values.
pub struct Held {
    pub now_ns: AtomicI64,
    draws: AtomicU64,
}

impl Env for Held {
    fn now_ns(&self) -> i64 {
        self.now_ns.load(Relaxed)
    }

    fn random(&self) -> u64 {
        let n = self.draws.fetch_add(1, Relaxed) + 1;
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Settings with a clock that the test holds, 100 s after [`T0`].
pub fn held_config(folder: &Path) -> (Config, Arc<Held>) {
    let env = Arc::new(Held {
        now_ns: AtomicI64::new(T0 + 100 * SECOND),
        draws: AtomicU64::new(0),
    });
    let mut config = config(folder);
    config.env = env.clone();
    (config, env)
}

/// Merges all the time, so that it meets everything else.
pub fn busy_maintenance() -> Maintenance {
    Maintenance {
        fan_in: 4,
        patience: Duration::from_millis(100),
        grace: Duration::from_millis(200),
        max_age: None,
        max_bytes: None,
        ..Maintenance::default()
    }
}

/// A server in this process, with a runtime of its own.
pub struct Local {
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    pub address: SocketAddr,
}

impl Local {
    pub fn start(config: Config) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let running = runtime.block_on(Server::start(config)).unwrap();
        let address = running.local_addr();
        wait_ready(address);
        Self {
            runtime,
            running: Some(running),
            address,
        }
    }

    pub fn stop(mut self) {
        let running = self.running.take().unwrap();
        self.runtime.block_on(running.shutdown());
    }
}

pub fn wait_ready(address: SocketAddr) {
    let since = Instant::now();
    loop {
        if let Ok(answer) = try_request(address, "GET", "/ready", "", b"")
            && answer.status == 200
        {
            return;
        }
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "not ready after 30 s"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Total of a selection, and whether the answer is complete.
pub fn total(address: SocketAddr, q: &str) -> (i64, bool) {
    let path = format!(
        "/api/v1/tree.json?type=process_cpu:cpu:nanoseconds:cpu:nanoseconds&{WINDOW}&q={}",
        escape(q)
    );
    let meta = get(address, &path).json()["meta"].clone();
    (
        meta["total"].as_i64().unwrap(),
        meta["partial"].as_bool().unwrap(),
    )
}
