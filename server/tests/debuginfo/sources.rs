//! Files that nobody sent: from debuginfod servers, good and hostile, and from folders.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use pilotlight_server::Config;

use super::common::held_config;
use super::*;

const NAMED: [&str; 4] = ["", "main", "leaf", "square"];

/// A peer that answers each build id as it was told to, and notes what it was asked.
struct Peer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

type Answer = Arc<dyn Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync>;

impl Peer {
    fn start(answers: HashMap<String, Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (notes, answers) = (asked.clone(), Arc::new(answers));
        // Ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (notes, answers) = (notes.clone(), answers.clone());
                std::thread::spawn(move || answer(stream, &notes, &answers));
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, notes: &Mutex<Vec<String>>, answers: &HashMap<String, Answer>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
    let id = first.split('/').nth(2).unwrap_or_default().to_owned();
    notes.lock().unwrap().push(first);
    let _ = match answers.get(&id) {
        Some(answer) => answer(&mut stream),
        None => head(&mut stream, "404 Not Found", "Content-Length: 0\r\n"),
    };
}

fn head(stream: &mut TcpStream, status: &str, headers: &str) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n"
    )
}

fn answering(
    act: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> Answer {
    Arc::new(act)
}

fn redirect(to: impl Into<String>) -> Answer {
    let to = format!("Location: {}\r\nContent-Length: 0\r\n", to.into());
    answering(move |stream| head(stream, "302 Found", &to))
}

fn whole(bytes: Vec<u8>) -> Answer {
    answering(move |stream| {
        let length = format!("Content-Length: {}\r\n", bytes.len());
        head(stream, "200 OK", &length)?;
        stream.write_all(&bytes)
    })
}

/// Bytes without end and without a length.
fn endless() -> Answer {
    answering(|stream| {
        head(stream, "200 OK", "")?;
        loop {
            stream.write_all(&[0x7f; 16 << 10])?;
        }
    })
}

pub fn asking(config: &mut Config, peer: SocketAddr) {
    let url = format!("http://{peer}");
    let sources = &mut config.debuginfo.sources;
    sources.debuginfod = vec![pilotlight_wire::Url::parse(&url).unwrap()];
    sources.requests_per_minute = 60_000;
}

/// What came of each build id, once something has.
fn outcomes(address: SocketAddr) -> HashMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let missing = missing(address);
    let binaries = missing["binaries"].as_array().unwrap().iter();
    let asked = binaries.filter(|of| !of["asked"].is_null());
    let pair = |of: &Value| (text(&of["build_id"]), text(&of["asked"]["outcome"]));
    asked.map(pair).collect()
}

fn push_addresses(server: &Local, built: &Built, build_id: &str) {
    let series = format!("{{service_name=\"s{}\"}}", &build_id[..8]);
    let pushed = push(server.address, &series, &addresses(built, build_id));
    assert_eq!(pushed.status, 200);
}

#[test]
fn names_come_from_a_debuginfod_server_that_nobody_sent_to() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let peer = Local::start(config(&folder.path().join("peer")));
    assert_eq!(upload(peer.address, &built.debug)["state"], "stored");
    let mut own = config(&folder.path().join("data"));
    asking(&mut own, peer.address);
    let server = Local::start(own);
    push_addresses(&server, &built, &built.build_id);
    wait_for("names", || names(server.address) == NAMED);
    let files = get(server.address, "/api/v1/debuginfo/files").json();
    assert_eq!(files["files"][0]["source"], "debuginfod", "{files}");
    assert_eq!(files["files"][0]["quality"], "dwarf");
    assert_eq!(files["files"][0]["name"], "app");
    let sources = missing(server.address)["sources"].clone();
    assert_eq!(sources["debuginfod"]["outcomes"]["stored"], 1, "{sources}");
    assert_eq!(sources["waiting"], 0);
    let metrics = get(server.address, "/metrics").text();
    let line = "pilotlight_debuginfo_debuginfod_total{outcome=\"stored\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    server.stop();
    peer.stop();
}

/// What a peer does, and what is to come of it.
fn hostile(other: &Built, built: &Built) -> Vec<(&'static str, Answer)> {
    let debug = std::fs::read(&built.debug).unwrap();
    let cut = debug[..debug.len() / 3].to_vec();
    vec![
        (
            "refused",
            redirect("http://169.254.169.254/latest/meta-data/"),
        ),
        ("refused", redirect("http://localhost/buildid/x/debuginfo")),
        ("refused", redirect("file:///etc/passwd")),
        ("wrong_id", whole(std::fs::read(&other.debug).unwrap())),
        ("too_large", endless()),
        (
            "too_large",
            answering(|stream| head(stream, "200 OK", "Content-Length: 99999999999\r\n")),
        ),
        ("unreadable", whole(b"no file at all".to_vec())),
        ("unreadable", whole(cut)),
        (
            "failed",
            answering(|stream| {
                head(stream, "200 OK", "Content-Length: 1000\r\n")?;
                stream.write_all(b"\x7fELF and then nothing")
            }),
        ),
        (
            "failed",
            answering(|stream| head(stream, "500 Oh No", "Content-Length: 0\r\n")),
        ),
        (
            "missing",
            answering(|stream| head(stream, "404 Not Found", "Content-Length: 0\r\n")),
        ),
    ]
}

#[test]
fn a_hostile_debuginfod_server_gives_nothing_and_leads_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let other = build(&folder.path().join("2"), &SOURCE.replace("+ 1", "+ 2"));
    let cases = hostile(&other, &built);
    let id = |at: usize| format!("{at:02x}{}", &built.build_id[2..]);
    let looping = id(cases.len());
    let again = format!("/buildid/{looping}/debuginfo");
    let mut answers: HashMap<String, Answer> = HashMap::from([(looping.clone(), redirect(again))]);
    for (at, (_, answer)) in cases.iter().enumerate() {
        answers.insert(id(at), answer.clone());
    }
    let peer = Peer::start(answers);
    let (mut own, clock) = held_config(&folder.path().join("data"));
    asking(&mut own, peer.address);
    own.debuginfo.sources.max_file_bytes = 1 << 20;
    let server = Local::start(own);
    for at in 0..=cases.len() {
        push_addresses(&server, &built, &id(at));
    }
    wait_for("an answer to each", || {
        outcomes(server.address).len() > cases.len()
    });
    let found = outcomes(server.address);
    for (at, (outcome, _)) in cases.iter().enumerate() {
        assert_eq!(found[&id(at)], *outcome, "case {at}");
    }
    assert_eq!(found[&looping], "refused", "too many redirects");
    for line in peer.asked() {
        let path = line.strip_prefix("GET /buildid/").unwrap();
        assert!(path.ends_with("/debuginfo HTTP/1.1"), "{line}");
    }
    let times =
        |asked: &[String], at: usize| asked.iter().filter(|line| line.contains(&id(at))).count();
    let missing = cases.len() - 1;
    let asked = peer.asked();
    assert_eq!(times(&asked, missing), 1, "a miss is remembered: {asked:?}");
    assert_eq!(
        times(&asked, cases.len()),
        4,
        "three redirects are followed"
    );
    let files = get(server.address, "/api/v1/debuginfo/files").json();
    assert_eq!(files["files"], json!([]));
    let scratch = folder.path().join("data/debuginfo/uploads");
    assert_eq!(
        std::fs::read_dir(scratch).unwrap().count(),
        0,
        "nothing stays"
    );
    clock.now_ns.fetch_add(7 * 3600 * SECOND, Relaxed);
    wait_for("another question hours later", || {
        outcomes(server.address);
        times(&peer.asked(), missing) == 2
    });
    server.stop();
}

#[test]
fn a_debuginfod_server_that_falls_silent_is_given_up_and_uploads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let silent = answering(|stream| {
        head(stream, "200 OK", "Content-Length: 1000\r\n")?;
        stream.write_all(b"\x7fELF")?;
        // Until the other side closes.
        let mut rest = Vec::new();
        std::io::Read::read_to_end(stream, &mut rest).map(drop)
    });
    let id = format!("ee{}", &built.build_id[2..]);
    let peer = Peer::start(HashMap::from([(id.clone(), silent)]));
    let mut own = config(&folder.path().join("data"));
    asking(&mut own, peer.address);
    own.debuginfo.sources.timeout = Duration::from_secs(20);
    let server = Local::start(own);
    push_addresses(&server, &built, &id);
    wait_for("the question", || {
        outcomes(server.address);
        !peer.asked().is_empty()
    });
    assert_eq!(upload(server.address, &built.debug)["state"], "stored");
    wait_for("the end of patience", || {
        !outcomes(server.address).is_empty()
    });
    assert_eq!(outcomes(server.address)[&id], "late");
    server.stop();
}

#[test]
fn names_come_from_a_folder_as_gdb_lays_it_out() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let debug = folder.path().join("debug");
    let (head, tail) = built.build_id.split_at(2);
    let place = debug.join(".build-id").join(head);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(&built.debug, place.join(format!("{tail}.debug"))).unwrap();
    let gdb = Command::new("gdb")
        .args(["-nx", "-batch", "-ex"])
        .arg(format!("set debug-file-directory {}", debug.display()))
        .arg("-ex")
        .arg(format!("file {}", built.stripped.display()))
        .args(["-ex", "info line leaf"])
        .output();
    if let Ok(gdb) = gdb {
        let said = String::from_utf8_lossy(&gdb.stdout).into_owned();
        assert!(said.contains("app.c\""), "gdb finds it there: {said}");
    }
    let mut own = config(&folder.path().join("data"));
    own.debuginfo.sources.folders = vec![folder.path().join("none"), debug];
    let server = Local::start(own);
    push_addresses(&server, &built, &built.build_id);
    wait_for("names", || names(server.address) == NAMED);
    let files = get(server.address, "/api/v1/debuginfo/files").json();
    assert_eq!(files["files"][0]["source"], "folder", "{files}");
    assert!(
        place.join(format!("{tail}.debug")).exists(),
        "a copy was taken"
    );
    let folders = missing(server.address)["sources"]["folders"].clone();
    assert_eq!(
        (&folders["count"], &folders["outcomes"]["stored"]),
        (&json!(2), &json!(1))
    );
    server.stop();
}

#[test]
fn a_restart_keeps_what_was_found_and_questions_keep_their_rate() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(&folder.path().join("1"), SOURCE);
    let debug = std::fs::read(&built.debug).unwrap();
    let peer = Peer::start(HashMap::from([(built.build_id.clone(), whole(debug))]));
    let mut own = config(&folder.path().join("data"));
    asking(&mut own, peer.address);
    own.debuginfo.sources.requests_per_minute = 150;
    let server = Local::start(own.clone());
    let unknown: Vec<String> = (0..4)
        .map(|n| format!("{n}{n}{n}{n}{}", &built.build_id[4..]))
        .collect();
    let since = Instant::now();
    for id in unknown.iter().chain([&built.build_id]) {
        push_addresses(&server, &built, id);
    }
    let found = |server: &Local| names(server.address).contains(&"square".to_owned());
    let misses = |server: &Local| {
        let outcomes = outcomes(server.address);
        let missing = unknown
            .iter()
            .filter(|id| outcomes.get(*id).is_some_and(|of| of == "missing"));
        missing.count()
    };
    wait_for("all answers", || found(&server) && misses(&server) == 4);
    // The first goes at once, four more 400 ms after one another.
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    assert_eq!(peer.asked().len(), 5, "each once: {:?}", peer.asked());
    server.stop();

    let server = Local::start(own);
    wait_for("the same names and the misses again", || {
        found(&server) && misses(&server) == 4
    });
    let asked = peer.asked();
    let of = |id: &str| asked.iter().filter(|line| line.contains(id)).count();
    assert_eq!(
        of(&built.build_id),
        1,
        "what was found is stored: {asked:?}"
    );
    assert!(unknown.iter().all(|id| of(id) == 2), "{asked:?}");
    server.stop();
}
