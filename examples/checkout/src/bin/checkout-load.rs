//! Load for the checkout service: a fixed rate over some connections, bounded in time and number.
//!
//! `checkout-load [--url http://127.0.0.1:8080] [--seconds 10] [--connections 2] [--rate 450]
//! [--requests N]`

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
struct Plan {
    host: String,
    seconds: u64,
    connections: u64,
    /// Requests a second over all connections.
    rate: u64,
    /// Most requests in all.
    requests: u64,
}

#[derive(Default)]
struct Outcome {
    latencies: Vec<Duration>,
    failures: u64,
    last_failure: Option<String>,
}

fn main() -> Result<(), Failure> {
    let plan = plan(std::env::args().skip(1))?;
    let start = Instant::now();
    let clients: Vec<_> = (0..plan.connections)
        .map(|client| {
            let plan = plan.clone();
            std::thread::spawn(move || run_client(&plan, client, start))
        })
        .collect();
    let mut total = Outcome::default();
    for client in clients {
        let outcome = client.join().map_err(|_| "a client thread panicked")?;
        total.latencies.extend(outcome.latencies);
        total.failures += outcome.failures;
        total.last_failure = outcome.last_failure.or(total.last_failure);
    }
    report(total, start.elapsed())
}

fn plan(mut arguments: impl Iterator<Item = String>) -> Result<Plan, Failure> {
    let mut plan = Plan {
        host: "127.0.0.1:8080".into(),
        seconds: 10,
        connections: 2,
        rate: 450,
        requests: u64::MAX,
    };
    while let Some(flag) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{flag} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|error| format!("{flag} {value}: {error}"))
        };
        match flag.as_str() {
            "--url" => {
                let host = value.strip_prefix("http://").unwrap_or(&value);
                plan.host = host.trim_end_matches('/').to_string();
            }
            "--seconds" => plan.seconds = number()?,
            "--connections" => plan.connections = number()?.clamp(1, 256),
            "--rate" => plan.rate = number()?.max(1),
            "--requests" => plan.requests = number()?,
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    Ok(plan)
}

/// Sends this client's share of the requests at random times (a Poisson process). A steady beat
/// would fall in step with the kernel's tick, at which CPU timers are looked at, and no sampler
/// would see the true shares.
fn run_client(plan: &Plan, client: u64, start: Instant) -> Outcome {
    let mut outcome = Outcome::default();
    let mut connection = None;
    let mut random = Random::new(client);
    let mean_gap = plan.connections as f64 / plan.rate as f64;
    let mut due = Duration::ZERO;
    let first_and_next = (client..plan.requests).step_by(plan.connections as usize);
    for number in first_and_next {
        due += Duration::from_secs_f64(mean_gap * random.exponential());
        if due.max(start.elapsed()) >= Duration::from_secs(plan.seconds) {
            break;
        }
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let sent = Instant::now();
        match request(&mut connection, plan, number) {
            Ok(()) => outcome.latencies.push(sent.elapsed()),
            Err(error) => {
                connection = None;
                outcome.failures += 1;
                outcome.last_failure = Some(error.to_string());
            }
        }
    }
    outcome
}

/// Xorshift: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// Exponentially distributed with mean 1.
    fn exponential(&mut self) -> f64 {
        const STEPS: u64 = 1 << 32;
        -((self.below(STEPS) + 1) as f64 / STEPS as f64).ln()
    }
}

fn request(
    connection: &mut Option<BufReader<TcpStream>>,
    plan: &Plan,
    number: u64,
) -> Result<(), Failure> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(&plan.host)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            connection.insert(BufReader::new(stream))
        }
    };
    let body = basket(number);
    let head = format!(
        "POST /checkout HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        plan.host,
        body.len()
    );
    stream
        .get_mut()
        .write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
    read_response(stream)
}

fn read_response(stream: &mut BufReader<TcpStream>) -> Result<(), Failure> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200 ") {
        return Err(format!("answer {line:?}").into());
    }
    let mut length = 0;
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
    }
    std::io::copy(&mut stream.take(length), &mut std::io::sink())?;
    Ok(())
}

/// A basket of about 200 items, the same for the same number.
fn basket(number: u64) -> String {
    let mut random = Random::new(number);
    let mut next = |limit| random.below(limit);
    let items: Vec<String> = (0..160 + next(80))
        .map(|_| {
            format!(
                r#"{{"sku":"sku-{:05}","quantity":{},"unit_cents":{}}}"#,
                next(100_000),
                1 + next(9),
                50 + next(20_000)
            )
        })
        .collect();
    format!(
        r#"{{"customer":"customer-{}","items":[{}]}}"#,
        next(1000),
        items.join(",")
    )
}

fn report(mut total: Outcome, elapsed: Duration) -> Result<(), Failure> {
    total.latencies.sort();
    let at = |share: f64| {
        let index = (total.latencies.len() as f64 * share) as usize;
        total.latencies.get(index).copied().unwrap_or_default()
    };
    println!(
        "{} requests in {:.1} s, {} failed, median {:?}, 99th percentile {:?}",
        total.latencies.len(),
        elapsed.as_secs_f64(),
        total.failures,
        at(0.5),
        at(0.99)
    );
    match total.last_failure {
        Some(failure) if total.latencies.is_empty() => Err(failure.into()),
        _ => Ok(()),
    }
}
