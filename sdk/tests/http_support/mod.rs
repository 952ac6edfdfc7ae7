//! A raw HTTP client, a server in this process, and the Go program to compare with.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use pilotlight::http::{Options, ServerHandle, serve_with};

pub fn server(change: impl FnOnce(&mut Options)) -> ServerHandle {
    let mut options = Options::default();
    change(&mut options);
    serve_with(TcpListener::bind("127.0.0.1:0").unwrap(), options).unwrap()
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(40)))
        .unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes and reads until the server closes.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset ends the answer as a close does.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// Without chunk framing.
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One request on a connection of its own.
pub fn request(address: SocketAddr, method: &str, target: &str, body: &[u8]) -> Answer {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    parse(&exchange(address, &[head.as_bytes(), body].concat()))
}

pub fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, "GET", target, b"")
}

pub fn parse(bytes: &[u8]) -> Answer {
    let mut reader = BufReader::new(bytes);
    let answer = read_answer(&mut reader, true);
    answer.unwrap_or_else(|| panic!("no answer in {:?}", String::from_utf8_lossy(bytes)))
}

/// The next answer of a connection; `closing` reads bodies of unknown length to the end.
pub fn read_answer(reader: &mut impl BufRead, closing: bool) -> Option<Answer> {
    let status = line(reader)?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        let line = line(reader)?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.push((name.to_string(), value.to_string()));
    }
    let mut answer = Answer {
        status,
        headers,
        body: Vec::new(),
    };
    if answer.header("Transfer-Encoding") == Some("chunked") {
        loop {
            let size = usize::from_str_radix(&line(reader)?, 16).ok()?;
            let start = answer.body.len();
            answer.body.resize(start + size, 0);
            reader.read_exact(&mut answer.body[start..]).ok()?;
            line(reader)?;
            if size == 0 {
                break;
            }
        }
    } else if closing {
        reader.read_to_end(&mut answer.body).ok()?;
    } else {
        let length = answer
            .header("Content-Length")
            .map_or(0, |length| length.parse().unwrap());
        answer.body.resize(length, 0);
        reader.read_exact(&mut answer.body).ok()?;
    }
    Some(answer)
}

fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let count = reader.read_line(&mut line).ok()?;
    (count > 0).then(|| line.trim_end().to_string())
}

/// The Go program, ended with the value.
pub struct Go {
    child: Child,
    pub address: SocketAddr,
    _scratch: Scratch,
}

impl Go {
    pub fn start() -> Self {
        let scratch = Scratch::new("go");
        let program = scratch.0.join("reference");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http_go");
        let build = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .current_dir(source)
            .output()
            .expect("go is on PATH");
        assert!(
            build.status.success(),
            "{}",
            String::from_utf8_lossy(&build.stderr)
        );
        let mut child = Command::new(program)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut first)
            .unwrap();
        Go {
            child,
            address: first.trim().parse().unwrap(),
            _scratch: scratch,
        }
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder of its own, removed with the value.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pilotlight-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `go tool pprof` with these arguments; its output, or both streams when it fails.
pub fn go_tool_pprof(arguments: &[&str]) -> Result<String, String> {
    let scratch = Scratch::new("pprof");
    let output = Command::new("go")
        .args(["tool", "pprof"])
        .args(arguments)
        .env("PPROF_TMPDIR", &scratch.0)
        .output()
        .expect("go is on PATH");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }
}

/// Samples from the first call to the end of the process, without a listener of its own.
pub fn start_sampler() {
    static SAMPLER: OnceLock<pilotlight::Guard> = OnceLock::new();
    SAMPLER.get_or_init(|| {
        pilotlight::Config::new("http-test")
            .no_listener()
            .start()
            .unwrap()
    });
}

/// Captures that run in this process, as the index page counts them.
pub fn captures(address: SocketAddr) -> usize {
    let page = get(address, "/debug/pprof/").text();
    let (before, _) = page
        .split_once("</td><td><a href='profile?debug=1'>")
        .unwrap();
    before.rsplit('>').next().unwrap().parse().unwrap()
}

/// Waits until no capture runs.
pub fn captures_end(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while captures(address) > 0 {
        assert!(
            Instant::now() < deadline,
            "a capture goes on without a client"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Method, target and body of a request, for servers that stand between.
pub fn read_request(reader: &mut impl BufRead) -> (String, String, Vec<u8>) {
    let first = line(reader).unwrap();
    let mut words = first.split(' ').map(String::from);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut body = Vec::new();
    while let Some((name, value)) = line(reader).unwrap().split_once(": ") {
        if name.eq_ignore_ascii_case("content-length") {
            body.resize(value.parse().unwrap(), 0);
        }
    }
    reader.read_exact(&mut body).unwrap();
    (method, target, body)
}
