//! `bench edges`: what everybody else notices while somebody holds 1,000 connections open and says a
//! byte of a request's head now and then (slowloris).

use std::{
    io::Write,
    mem,
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::{
    child::Outcome,
    figure::{Figure, Goal},
    server::{http::Client, process::Server},
};

const SLOW: usize = 1000;
const REQUESTS: usize = 2000;

/// Prints all figures of the part.
pub fn run() -> Outcome<()> {
    allow_sockets(4 * SLOW as u64)?;
    let server = Server::start()?;
    let alone = p99_ms(server.port)?;
    let (stop, open) = (AtomicBool::new(false), AtomicU64::new(0));
    let (besides, held) = thread::scope(|scope| {
        scope.spawn(|| hold(server.port, &stop, &open));
        let begun = Instant::now();
        while open.load(Relaxed) < SLOW as u64 && begun.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(5));
        }
        let besides = p99_ms(server.port);
        let held = open.load(Relaxed);
        stop.store(true, Relaxed);
        (besides, held)
    });
    if held < SLOW as u64 * 9 / 10 {
        return Err(format!("only {held} of {SLOW} slow connections were open").into());
    }
    println!("# {held} slow connections open");
    let peer = format!("without-them:{alone:.2}ms");
    let goal = Goal::AtMost(100.0);
    Figure::print_of("edges", "slowloris_p99", besides?, "ms", goal, &peer);
    Ok(())
}

/// 99th percentile of requests, each on a connection of its own.
fn p99_ms(port: u16) -> Outcome<f64> {
    let mut times = Vec::with_capacity(REQUESTS);
    for at in 0..REQUESTS {
        let path = ["/api/v1/labels", "/api/v1/status", "/", "/api/v1/types"][at % 4];
        let begun = Instant::now();
        let answer = Client::connect(port)?.request("GET", path, b"")?;
        if answer.status != 200 {
            return Err(format!("{path}: status {}", answer.status).into());
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[REQUESTS * 99 / 100])
}

/// Keeps the slow connections open; those that the server ends are opened again.
fn hold(port: u16, stop: &AtomicBool, open: &AtomicU64) {
    let mut slow: Vec<TcpStream> = Vec::new();
    while !stop.load(Relaxed) {
        slow.retain_mut(|stream| stream.write_all(b"a").is_ok());
        while slow.len() < SLOW && !stop.load(Relaxed) {
            let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
                break;
            };
            if stream
                .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
                .is_ok()
            {
                slow.push(stream);
            }
            open.store(slow.len() as u64, Relaxed);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Raises the limit of open files, which the server inherits.
fn allow_sockets(wanted: u64) -> Outcome<()> {
    // SAFETY: all-zero is a valid rlimit.
    let mut limit: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: `limit` is valid for the write.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err("the limit of open files cannot be read".into());
    }
    limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
    // SAFETY: `limit` is valid for the read.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(()),
        _ => Err("the limit of open files cannot be raised".into()),
    }
}
