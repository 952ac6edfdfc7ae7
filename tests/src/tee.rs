//! A recording proxy: what a target answered, byte for byte, while the scraper reads it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Bodies of all complete 200 answers that passed.
pub type Recorded = Arc<Mutex<Vec<Vec<u8>>>>;

/// Forwards connections on a new loopback port to `target` and records the bodies.
///
/// Each request gets a connection of its own (`Connection: close`).
///
/// # Panics
/// When no port is free.
#[must_use]
pub fn start(target: u16) -> (u16, Recorded) {
    let listener =
        TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no free port: {error}"));
    let port = listener.local_addr().map_or(0, |address| address.port());
    let recorded = Recorded::default();
    let copy = Arc::clone(&recorded);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let recorded = Arc::clone(&copy);
            std::thread::spawn(move || forward(client, target, &recorded));
        }
    });
    (port, recorded)
}

fn forward(mut client: TcpStream, target: u16, recorded: &Recorded) -> Option<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&request)
        .lines()
        .next()?
        .to_string();
    let path = line.split(' ').nth(1)?.to_string();
    let mut server = TcpStream::connect(("127.0.0.1", target)).ok()?;
    write!(server, "GET {path} HTTP/1.0\r\nHost: target\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let body = answer.split_off(end + 4);
    let status = head.split(' ').nth(1)?.to_string();
    let kind = if path.contains("/profile") {
        "application/octet-stream"
    } else {
        "text/plain"
    };
    let length = body.len();
    write!(client, "HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").ok()?;
    client.write_all(&body).ok()?;
    client.flush().ok()?;
    if status == "200" && path.contains("/profile") {
        recorded.lock().ok()?.push(body);
    }
    Some(())
}
