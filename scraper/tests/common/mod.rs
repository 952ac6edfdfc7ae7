//! Listeners that play targets and servers, and profiles to serve.
#![allow(dead_code)] // each test file uses a part

use pilotlight_profile::{LabelSetId, ProfileBuilder};
use pilotlight_scraper::{Options, Url};
use pilotlight_wire::Retry;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Path and query.
    pub target: String,
    /// The whole head.
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }
}

/// What a listener does with a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Status, extra header lines, body.
    Answer(u16, &'static str, Vec<u8>),
    /// The answer after a pause.
    Late(Duration, Vec<u8>),
    /// Never a byte.
    Silence,
}

pub fn ok(body: Vec<u8>) -> Act {
    Act::Answer(200, "", body)
}

/// A listener and what it was asked.
#[derive(Clone)]
pub struct Peer {
    pub address: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Peer {
    /// `act` is given each request and its number.
    pub async fn start(act: impl Fn(&Request, usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = Self {
            address: listener.local_addr().unwrap().to_string(),
            seen: Arc::default(),
        };
        let (seen, act) = (Arc::clone(&peer.seen), Arc::new(act));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen), Arc::clone(&act)));
            }
        });
        peer
    }

    pub fn url(&self) -> Url {
        Url::parse(&format!("http://{}/", self.address)).unwrap()
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub async fn until(&self, count: usize) -> Vec<Request> {
        until("requests", || {
            (self.seen().len() >= count).then(|| self.seen())
        })
        .await
    }
}

async fn serve<A: Fn(&Request, usize) -> Act>(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<Request>>>,
    act: Arc<A>,
) {
    while let Some(request) = read(&mut stream).await {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let (status, headers, body) = match act(&request, number) {
            Act::Answer(status, headers, body) => (status, headers, body),
            Act::Late(pause, body) => {
                tokio::time::sleep(pause).await;
                (200, "", body)
            }
            Act::Silence => std::future::pending().await,
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        if stream.write_all(head.as_bytes()).await.is_err()
            || stream.write_all(&body).await.is_err()
        {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut request = Request {
        target: head.split(' ').nth(1)?.to_owned(),
        body: bytes.split_off(end),
        head,
    };
    let length = request
        .header("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    while request.body.len() < length {
        if stream.read_buf(&mut request.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(request)
}

/// Asks until there is an answer, at most 20 s.
pub async fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "no {what} within 20 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A CPU profile, gzipped, of `samples` rows and with this start time.
pub fn profile(samples: usize, time_ns: i64) -> Vec<u8> {
    let mut builder = ProfileBuilder::new();
    builder.sample_type("cpu", "nanoseconds");
    builder.period("cpu", "nanoseconds", 10_000_000);
    builder.time(time_ns, 1_000_000_000);
    for index in 0..samples {
        let name = builder.string(format!("work_{index}").as_bytes());
        let file = builder.string(b"work.rs");
        let function = builder.function(name, name, file, 1);
        let location = builder.location(None, index as u64 + 1, &[(function, 7)]);
        let stack = builder.stack(&[location]);
        builder.sample(stack, LabelSetId::default(), &[10_000_000]);
    }
    builder.finish().to_pprof_gz()
}

/// Options with short pauses.
pub fn options(server: Url) -> Options {
    let mut options = Options::new(server);
    options.retry = Retry {
        first: Duration::from_millis(20),
        longest: Duration::from_millis(100),
        tries: 5,
    };
    options.hostname = "test-host".to_owned();
    options
}

/// Runs a test on a runtime of its own.
pub fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}
