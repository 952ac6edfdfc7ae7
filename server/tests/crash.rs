//! kill -9 under load: what was acknowledged is there, once, whatever index is used.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{SECOND, T0, WINDOW, get, profile, push_path, try_request, wait_ready};
use pilotlight_server::{Maintenance, Server};

/// How often; 50 where it says nothing, 1,000 for a release.
const KILLS: &str = "PILOTLIGHT_KILLS";
const SENDERS: u64 = 4;
const FOLDER: &str = "PILOTLIGHT_CRASH_FOLDER";
const REBUILD: &str = "PILOTLIGHT_CRASH_REBUILD";

/// Not a test of its own: the child that gets killed.
#[test]
#[ignore = "started by the crash test"]
fn server_child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let mut config = common::config(Path::new(&folder));
    // Every round merges, rolls up and deletes something, and the first begins with the start.
    config.maintenance = Some(Maintenance {
        spans: [1, 3, 9].map(Duration::from_secs),
        fan_in: 2,
        roll_ups: vec![(1, Duration::from_secs(10)), (2, Duration::from_secs(60))],
        ..common::busy_maintenance()
    });
    config.rebuild_index = std::env::var_os(REBUILD).is_some();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let running = Server::start(config).await.unwrap();
        println!("\nADDRESS {}", running.local_addr());
        std::future::pending::<()>().await;
    });
}

fn start(folder: &Path, rebuild: bool) -> (Child, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "server_child", "--nocapture"]);
    command
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if rebuild {
        command.env(REBUILD, "1");
    }
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.map_while(Result::ok).find_map(|line| {
        line.strip_prefix("ADDRESS ")
            .map(|address| address.parse().unwrap())
    });
    let address = address.expect("the child says where it listens");
    wait_ready(address);
    (child, address)
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The `n`th push of a sender: a function of its own, so that the answer tells each push apart.
fn name(sender: u64, n: u64) -> String {
    format!("push_{sender}_{n}")
}

fn send(address: SocketAddr, sender: u64, n: u64) -> bool {
    let time = T0 + (n as i64) * SECOND;
    let body = profile(time, &[(&["main", &name(sender, n)], 10_000_000)]);
    let path = push_path(&format!(
        "{{service_name=\"s{}\",sender=\"{sender}\"}}",
        sender % 2
    ));
    // Odd senders rely on content + series + time, even ones name their requests.
    let header = match sender % 2 {
        0 => format!("X-Pilotlight-Request-Id: {sender}-{n}\r\n"),
        _ => String::new(),
    };
    try_request(address, "POST", &path, &header, &body).is_ok_and(|answer| answer.status == 200)
}

/// Sends until told to stop or until the server is gone. A push without an answer is sent again
/// in the next round: it may have been stored.
fn sender(address: SocketAddr, sender: u64, next: &AtomicU64, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let n = next.load(Relaxed);
        if !send(address, sender, n) {
            return;
        }
        next.store(n + 1, Relaxed);
    }
}

fn stored(address: SocketAddr) -> BTreeMap<String, i64> {
    let answer = get(address, &format!("/api/v1/top?type=samples&{WINDOW}")).json();
    assert_eq!(answer["partial"], false, "{}", answer["problems"]);
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        (
            row["name"].as_str().unwrap().to_owned(),
            row["self"].as_i64().unwrap(),
        )
    })
    .filter(|(name, _)| name != "main")
    .collect()
}

fn check(address: SocketAddr, acknowledged: &[AtomicU64]) -> u64 {
    let stored = stored(address);
    let mut count = 0;
    for (sender, next) in acknowledged.iter().enumerate() {
        for n in 0..next.load(Relaxed) {
            let name = name(sender as u64, n);
            assert_eq!(stored.get(&name), Some(&1), "{name} was acknowledged");
            count += 1;
        }
    }
    for (name, value) in stored {
        assert_eq!(value, 1, "{name} is counted twice");
    }
    count
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_kills_at_any_moment() {
    let kills: u64 = std::env::var(KILLS).map_or(50, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let next: Vec<AtomicU64> = (0..SENDERS).map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now();
    let mut random = 0x9e37_79b9_u64;
    for round in 0..kills {
        let (child, address) = start(folder.path(), false);
        if round % 10 == 9 {
            check(address, &next);
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (id, next) in next.iter().enumerate() {
                let stop = &stop;
                scope.spawn(move || sender(address, id as u64, next, stop));
            }
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Now and then long enough for a merge and for the index to reach the disk.
            let long = if round % 10 == 5 { 1500 } else { 0 };
            std::thread::sleep(Duration::from_millis(20 + long + (random >> 33) % 250));
            kill(child);
            stop.store(true, Relaxed);
        });
    }
    let (child, address) = start(folder.path(), false);
    let acknowledged = check(address, &next);
    let status = get(address, "/api/v1/status").json();
    let tree = get(address, &format!("/api/v1/tree.json?type=cpu&{WINDOW}")).json();
    kill(child);
    println!(
        "{kills} kills in {:.1} s, {acknowledged} pushes acknowledged, all stored once; {} of {} \
         headers came from the index",
        began.elapsed().as_secs_f64(),
        status["recovery"]["from_index"],
        status["recovery"]["segments_found"],
    );
    assert!(
        acknowledged > kills,
        "the senders hardly got through: {acknowledged}"
    );

    let (child, address) = start(folder.path(), true);
    assert_eq!(
        get(address, "/api/v1/status").json()["recovery"]["from_index"],
        0
    );
    check(address, &next);
    let rebuilt = get(address, &format!("/api/v1/tree.json?type=cpu&{WINDOW}")).json();
    kill(child);
    assert_eq!(rebuilt, tree, "a rebuilt index gives the same answer");
}

/// Sends pushes again that were acknowledged: all are taken for what they are.
fn retry(address: SocketAddr, count: u64) {
    for n in 0..count {
        for id in 0..SENDERS {
            assert!(send(address, id, n), "push {n} of {id}");
        }
    }
    let stored = stored(address);
    assert_eq!(stored.len() as u64, count * SENDERS);
    assert!(stored.values().all(|&value| value == 1), "{stored:?}");
}

#[test]
fn a_retry_after_a_kill_counts_once_before_and_after_merging() {
    const COUNT: u64 = 8;
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = start(folder.path(), false);
    retry(address, COUNT);
    kill(child);
    let (child, address) = start(folder.path(), false);
    retry(address, COUNT);
    kill(child);

    // Until a start finds that all is in blocks, and what identities these hold.
    let since = Instant::now();
    loop {
        let (child, address) = start(folder.path(), false);
        let status = get(address, "/api/v1/status").json();
        retry(address, COUNT);
        kill(child);
        let (segments, blocks) = (&status["segments"], &status["blocks"]);
        let spared = status["recovery"]["identity_files_spared"].as_u64();
        if spared.is_some_and(|spared| spared > 0) {
            break;
        }
        let waited = since.elapsed();
        assert!(waited < Duration::from_secs(100), "{segments}, {blocks}");
        std::thread::sleep(Duration::from_millis(300));
    }
    let file = folder.path().join("identities");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let (child, address) = start(folder.path(), false);
    retry(address, COUNT);
    kill(child);
    std::fs::remove_file(&file).unwrap();
    let (child, address) = start(folder.path(), false);
    retry(address, COUNT);
    kill(child);
}

/// A file system of a few MB, unmounted with the test.
struct Small(tempfile::TempDir);

impl Small {
    fn mount(bytes: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_file_system_is_a_507_until_there_is_room_again() {
    let small = match Small::mount(3 << 20) {
        Ok(small) => small,
        Err(reason) => {
            println!("SKIP: no tmpfs can be mounted here ({reason}); run as root");
            return;
        }
    };
    let ballast = small.0.path().join("ballast");
    let data = small.0.path().join("data");
    let mut config = common::config(&data);
    config.maintenance = Some(common::busy_maintenance());
    let server = common::Local::start(config.clone());
    let address = server.address;
    let sent = |n: u64| {
        // Names that do not compress, so that the room is used up soon.
        let mut random = n + 1;
        let names: Vec<String> = (0..200)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                format!(
                    "{random:016x}{:016x}",
                    random.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                )
            })
            .collect();
        let stacks: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
        let stacks: Vec<(&[&str], i64)> = stacks.iter().map(|at| (&at[..], 10_000_000)).collect();
        let body = profile(T0 + n as i64 * SECOND, &stacks);
        common::push(address, "{service_name=\"s\"}", &body)
    };
    let total = || common::total(address, "{}");
    let each = 200 * 10_000_000;
    let mut stored = 0;
    let mut refused = 0;
    for round in 0..3 {
        let _ = std::fs::write(&ballast, vec![1; 2 << 20]);
        // Until it is full, and some more.
        let full_at = stored + refused;
        for n in full_at..full_at + 2000 {
            let answer = sent(n);
            match answer.status {
                200 => {
                    stored += 1;
                    continue;
                }
                507 => {
                    assert!(answer.text().contains("full"), "{}", answer.text());
                    refused += 1;
                }
                other => panic!("{other}: {}", answer.text()),
            }
            assert_eq!(total(), (stored as i64 * each, false), "reads go on");
            if refused > round * 5 + 5 {
                break;
            }
        }
        assert!(refused > round * 5 + 5, "never full");
        std::fs::remove_file(&ballast).unwrap();
        let since = Instant::now();
        // It recovers by itself.
        while sent(stored + refused).status != 200 {
            assert!(since.elapsed() < Duration::from_secs(60), "still full");
            refused += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        stored += 1;
        assert_eq!(total(), (stored as i64 * each, false));
    }
    server.stop();
    let server = common::Local::start(common::config(&data));
    assert_eq!(
        common::total(server.address, "{}"),
        (stored as i64 * each, false)
    );
    println!("{stored} pushes stored, {refused} refused with 507");
    server.stop();
    drop(small);
}
