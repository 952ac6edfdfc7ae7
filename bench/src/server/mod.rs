//! `bench server`: ingest, acknowledgement, bytes on disk and flame graph of a bare server over
//! loopback. The peers need Go builds and minutes, so their figures are those that the project
//! measured once on another corpus of the same shape; they are marked `(research)`.

pub mod http;
pub mod process;

use std::{
    io::Write,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use self::{
    http::{Client, encode},
    process::{Server, bytes_on_disk},
};
use crate::{
    child::Outcome,
    figure::{Figure, Goal},
    generator::Service,
    profile::prost_peer::Profile,
};

const PODS: usize = 12;
const PROFILES_PER_POD: usize = 60;
const SECONDS_PER_PROFILE: i64 = 10;
/// Pushes one at a time, for the acknowledgement time.
const SINGLE_PUSHES: usize = 60;
const QUERIES: usize = 7;

/// One profile on its way.
struct Push {
    target: String,
    body: Vec<u8>,
    samples: usize,
}

/// Prints all figures of the part.
pub fn run() -> Outcome<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
    let begin = now - PROFILES_PER_POD as i64 * SECONDS_PER_PROFILE;
    let pods = pushes(begin)?;
    let server = Server::start()?;
    acknowledgement(&server, begin)?;
    ingest(&server, &pods)?;
    queries(&server, begin, now)?;
    figure(
        "rss_peak",
        server.peak_rss_mib()?,
        "MiB",
        Goal::AtMost(300.0),
        "pyroscope(research):815MB,parca(research):5280MB",
    );
    figure(
        "start",
        server.ready_seconds,
        "s",
        Goal::AtMost(0.5),
        "pyroscope(research):3.6s,parca(research):0.12s",
    );
    Ok(())
}

/// All profiles of all pods, a list a pod.
fn pushes(begin: i64) -> Outcome<Vec<Vec<Push>>> {
    let mut pods = Vec::new();
    for pod in 0..PODS {
        // All pods run the same program, so one seed fixes the symbols; the draws differ.
        let mut service = Service::new(11, 2_000, 6_000).reseeded(pod as u64);
        let one = |at: usize| {
            let start = (begin + at as i64 * SECONDS_PER_PROFILE) * 1_000_000_000;
            push(&mut service, "shop", pod, start)
        };
        pods.push(
            (0..PROFILES_PER_POD)
                .map(one)
                .collect::<Outcome<Vec<Push>>>()?,
        );
    }
    Ok(pods)
}

fn push(service: &mut Service, name: &str, pod: usize, start_ns: i64) -> Outcome<Push> {
    let raw = service.profile(750, start_ns, SECONDS_PER_PROFILE * 1_000_000_000);
    let samples = Profile::decode(raw.as_slice())?.sample.len();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&raw)?;
    let series = format!("{{service_name=\"{name}\",pod=\"{name}-{pod}\"}}");
    let target = format!("/api/v1/push?series={}&name=process_cpu", encode(&series));
    Ok(Push {
        target,
        body: gzip.finish()?,
        samples,
    })
}

/// Time from request to durable answer on an otherwise idle server.
fn acknowledgement(server: &Server, begin: i64) -> Outcome<()> {
    let mut service = Service::new(12, 2_000, 6_000);
    let mut client = Client::connect(server.port)?;
    let mut times = Vec::new();
    for at in 0..SINGLE_PUSHES {
        let start = (begin + at as i64 * SECONDS_PER_PROFILE) * 1_000_000_000;
        let push = push(&mut service, "single", 0, start)?;
        let sent = Instant::now();
        send(&mut client, &push)?;
        times.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let peer = "pyroscope(research):499ms,parca-without-durability(research):28ms";
    figure(
        "ack_p50",
        times[times.len() / 2],
        "ms",
        Goal::AtMost(50.0),
        peer,
    );
    Ok(())
}

/// All pods at once, one connection a pod; then the bytes, and the CPU time until it is quiet.
fn ingest(server: &Server, pods: &[Vec<Push>]) -> Outcome<()> {
    let before = (server.cpu_seconds()?, bytes_on_disk(&server.data)?);
    thread::scope(|scope| {
        let send_all = |pushes: &[Push]| -> Result<(), String> {
            let mut client = Client::connect(server.port).map_err(|e| e.to_string())?;
            pushes
                .iter()
                .try_for_each(|push| send(&mut client, push).map_err(|e| e.to_string()))
        };
        let workers: Vec<_> = pods
            .iter()
            .map(|pod| scope.spawn(move || send_all(pod)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker died".to_owned())?)
    })?;
    // Work that the last acknowledgement left behind belongs to the price.
    thread::sleep(Duration::from_secs(3));
    let cpu = server.cpu_seconds()? - before.0;
    let bytes = (bytes_on_disk(&server.data)? - before.1) as f64;
    let samples: usize = pods.iter().flatten().map(|push| push.samples).sum();
    let sent: usize = pods.iter().flatten().map(|push| push.body.len()).sum();
    println!(
        "# {} profiles, {samples} samples, {sent} B gzip",
        pods.iter().flatten().count()
    );
    let samples = samples as f64;
    let rates = "pyroscope(research):68500/s,parca(research):25000/s";
    figure(
        "ingest_per_cpu_second",
        samples / cpu,
        "samples/s",
        Goal::AtLeast(100_000.0),
        rates,
    );
    let sizes = format!(
        "pyroscope(research):14B-compacted;42B-segments,parca(research):154B,gzip-input:{:.0}B",
        sent as f64 / samples
    );
    figure("bytes_per_sample", bytes / samples, "B", Goal::None, &sizes);
    Ok(())
}

fn send(client: &mut Client, push: &Push) -> Outcome<()> {
    let answer = client.request("POST", &push.target, &push.body)?;
    match answer.status {
        200 => Ok(()),
        status => Err(format!("push: {status} {}", String::from_utf8_lossy(&answer.body)).into()),
    }
}

/// CPU time of the server for one flame graph of the service, the middle of several.
fn queries(server: &Server, begin: i64, end: i64) -> Outcome<()> {
    let peer = "pyroscope(research,2160-profiles):569ms,parca(research,2160-profiles):10203ms";
    let selector = encode("{service_name=\"shop\"}");
    let target = format!(
        "/api/v1/tree?type=cpu&q={selector}&from={}&until={}",
        begin - 1,
        end + 60
    );
    let mut client = Client::connect(server.port)?;
    let (mut cpu, mut wall, mut size) = (Vec::new(), Vec::new(), 0);
    for _ in 0..QUERIES {
        let (before, sent) = (server.cpu_seconds()?, Instant::now());
        let answer = client.request("GET", &target, b"")?;
        if answer.status != 200 {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            return Err(format!("tree: {} {text}", answer.status).into());
        }
        wall.push(sent.elapsed().as_secs_f64() * 1e3);
        cpu.push((server.cpu_seconds()? - before) * 1e3);
        size = answer.body.len();
    }
    println!("# tree of {} profiles: {size} B", PODS * PROFILES_PER_POD);
    figure(
        "flame_graph_first_cpu",
        cpu[0],
        "ms",
        Goal::AtMost(1_000.0),
        peer,
    );
    cpu.sort_by(f64::total_cmp);
    wall.sort_by(f64::total_cmp);
    figure(
        "flame_graph_cpu",
        cpu[QUERIES / 2],
        "ms",
        Goal::AtMost(1_000.0),
        peer,
    );
    figure("flame_graph_wall", wall[QUERIES / 2], "ms", Goal::None, "");
    Ok(())
}

fn figure(name: &str, value: f64, unit: &str, goal: Goal, peer: &str) {
    Figure::print_of("server", name, value, unit, goal, peer);
}
