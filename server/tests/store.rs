//! Restart, retries, failing disks, damaged files, a lost index, merging, retention.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends there")]

mod common;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{
    Local, SECOND, T0, WINDOW, busy_maintenance, config, get, profile, push, push_path, total,
    try_request,
};
use pilotlight_server::block::decode_manifest;
use pilotlight_server::{Config, Disk, Error, LocalDisk, Maintenance, Server};

const SERIES: &str = "{service_name=\"checkout\"}";

fn body(n: i64) -> Vec<u8> {
    profile(
        T0 + n * SECOND,
        &[(&["main", "work"], 10_000_000 * (n + 1))],
    )
}

/// Segments and manifests of blocks.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for kind in ["segments", "blocks"] {
        let listed = fs::read_dir(folder.join(kind)).unwrap();
        files.extend(listed.map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().unwrap() != "parquet");
    files.sort();
    files
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "{what} after 30 s"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn duplicate(address: SocketAddr, header: &str, body: &[u8]) -> bool {
    let answer = try_request(address, "POST", &push_path(SERIES), header, body).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["duplicate"].as_bool().unwrap()
}

#[test]
fn a_retry_is_counted_once_before_and_after_restart_and_merging() {
    let folder = tempfile::tempdir().unwrap();
    let id = "X-Pilotlight-Request-Id: scrape-1\r\n";
    let server = Local::start(config(folder.path()));
    assert!(!duplicate(server.address, "", &body(0)));
    assert!(
        duplicate(server.address, "", &body(0)),
        "same content, series and time"
    );
    assert!(!duplicate(server.address, id, &body(1)));
    assert!(duplicate(server.address, id, &body(1)), "same request");
    assert!(!duplicate(server.address, "", &body(2)));
    assert!(!duplicate(server.address, "", &body(3)));
    server.stop();

    let mut merging = config(folder.path());
    merging.maintenance = Some(busy_maintenance());
    let server = Local::start(merging);
    assert!(duplicate(server.address, "", &body(0)));
    wait("merged", || {
        get(server.address, "/api/v1/status").json()["segments"] == 1
    });
    wait("old files are gone", || segments(folder.path()).len() == 1);
    server.stop();

    let server = Local::start(config(folder.path()));
    assert!(duplicate(server.address, "", &body(3)));
    assert!(duplicate(server.address, id, &body(1)));
    assert_eq!(total(server.address, "{}"), (100_000_000, false));
    let other = push(server.address, "{service_name=\"cart\"}", &body(0));
    assert_eq!(
        other.json()["duplicate"],
        false,
        "another series is another push"
    );
    server.stop();
}

#[test]
fn a_profile_without_time_gets_the_time_of_receipt_and_is_never_taken_for_a_retry() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let timeless = profile(0, &[(&["main"], 10_000_000)]);
    for _ in 0..2 {
        let answer = push(server.address, SERIES, &timeless).json();
        assert_eq!(
            (&answer["duplicate"], &answer["repaired"]["missing_time"]),
            (&false.into(), &1.into())
        );
    }
    let now = get(server.address, "/api/v1/top?type=cpu&from=now-1m").json();
    assert_eq!(now["total"], 20_000_000);
    let path = format!("{}&from=1767225700&until=1767225710", push_path(SERIES));
    assert_eq!(
        try_request(server.address, "POST", &path, "", &timeless)
            .unwrap()
            .status,
        200
    );
    assert_eq!(
        total(server.address, "{}"),
        (10_000_000, false),
        "the sender's from is its time"
    );
    server.stop();
}

#[test]
fn the_same_push_at_the_same_moment_from_eight_connections_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let address = server.address;
    let fresh: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| !duplicate(address, "", &body(0))))
            .collect();
        threads
            .into_iter()
            .map(|thread| usize::from(thread.join().unwrap()))
            .sum()
    });
    assert_eq!(fresh, 1);
    assert_eq!(total(address, "{}"), (10_000_000, false));
    server.stop();
}

/// A disk that fails on demand: 0 works, 1 is full, 2 is read-only, 3 cannot be read, 4 panics.
struct Failing {
    inner: LocalDisk,
    mode: AtomicU8,
}

impl Failing {
    fn check(&self, mode: u8, kind: io::ErrorKind) -> io::Result<()> {
        if self.mode.load(Relaxed) == mode {
            Err(kind.into())
        } else {
            Ok(())
        }
    }
}

impl Disk for Failing {
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.check(1, io::ErrorKind::StorageFull)?;
        self.check(2, io::ErrorKind::ReadOnlyFilesystem)?;
        assert_ne!(self.mode.load(Relaxed), 4, "told to");
        self.inner.put_new(name, bytes)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.check(3, io::ErrorKind::Other)?;
        self.inner.read(name, range)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
}

fn failing(folder: &Path) -> (tokio::runtime::Runtime, Arc<Failing>, Config) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let inner = LocalDisk::open(folder, runtime.handle().clone()).unwrap();
    let disk = Arc::new(Failing {
        inner,
        mode: AtomicU8::new(0),
    });
    let mut config = config(folder);
    config.disk = Some(disk.clone());
    config.cache_bytes = 0;
    (runtime, disk, config)
}

#[test]
fn a_full_read_only_or_panicking_disk_is_a_clear_error_and_nothing_is_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, disk, config) = failing(folder.path());
    let server = Local::start(config);
    assert_eq!(push(server.address, SERIES, &body(0)).status, 200);
    for (mode, status, word) in [
        (1, 507, "full"),
        (2, 500, "read-only"),
        (4, 500, "panicked"),
    ] {
        disk.mode.store(mode, Relaxed);
        for _ in 0..3 {
            let answer = push(server.address, SERIES, &body(1));
            assert_eq!(answer.status, status, "{}", answer.text());
            assert!(answer.text().contains(word), "{}", answer.text());
            assert!(answer.head.contains("retry-after"), "{}", answer.head);
        }
        assert_eq!(
            total(server.address, "{}"),
            (10_000_000, false),
            "reads go on"
        );
    }
    disk.mode.store(0, Relaxed);
    let answer = push(server.address, SERIES, &body(1)).json();
    assert_eq!(
        answer["duplicate"], false,
        "the failed pushes are not remembered"
    );
    assert_eq!(total(server.address, "{}"), (30_000_000, false));
    assert_eq!(
        get(server.address, "/api/v1/status").json()["write_errors"],
        6
    );
    server.stop();
    let server = Local::start(common::config(folder.path()));
    assert_eq!(total(server.address, "{}"), (30_000_000, false));
    server.stop();
}

#[test]
fn a_read_that_fails_makes_the_answer_partial_until_it_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, disk, config) = failing(folder.path());
    let server = Local::start(config);
    assert_eq!(push(server.address, SERIES, &body(0)).status, 200);
    disk.mode.store(3, Relaxed);
    assert_eq!(total(server.address, "{}"), (0, true));
    disk.mode.store(0, Relaxed);
    assert_eq!(total(server.address, "{}"), (10_000_000, false));
    server.stop();
}

#[test]
fn a_damaged_segment_is_named_and_the_rest_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    (0..3).for_each(|n| assert_eq!(push(server.address, SERIES, &body(n)).status, 200));
    server.stop();
    let files = segments(folder.path());
    assert_eq!(files.len(), 3, "one push at a time, one segment each");
    let mut bytes = fs::read(&files[1]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&files[1], bytes).unwrap();
    let name = files[1].file_name().unwrap().to_str().unwrap().to_owned();

    for _restart in 0..2 {
        let server = Local::start(config(folder.path()));
        let tree = get(
            server.address,
            &format!("/api/v1/tree.json?type=cpu&{WINDOW}"),
        )
        .json();
        assert_eq!(tree["meta"]["total"], 40_000_000);
        assert_eq!(tree["meta"]["partial"], true);
        assert_eq!(tree["meta"]["problems"][0]["segment"], name);
        let reason = tree["meta"]["problems"][0]["reason"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(reason.contains("checksum of symbols"), "{reason}");
        let top = get(server.address, &format!("/api/v1/top?type=cpu&{WINDOW}")).json();
        assert_eq!(top["partial"], true, "known damage is named again");
        let elsewhere =
            "/api/v1/tree.json?type=process_cpu:cpu:nanoseconds:cpu:nanoseconds&from=now-1h";
        let elsewhere = get(server.address, elsewhere).json();
        assert_eq!(
            elsewhere["meta"]["partial"], false,
            "a window it does not touch is whole"
        );
        let metrics = get(server.address, "/metrics").text();
        assert!(
            metrics.contains("pilotlight_segments_quarantined 1"),
            "{metrics}"
        );
        server.stop();
    }
    // Cut to nothing: not even its time is known, so every answer may miss something.
    fs::write(&files[1], b"PLSG").unwrap();
    let server = Local::start(config(folder.path()));
    assert_eq!(total(server.address, "{}"), (40_000_000, true));
    server.stop();
}

#[test]
fn a_damaged_or_deleted_index_changes_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("index");
    let server = Local::start(config(folder.path()));
    (0..20).for_each(|n| assert_eq!(push(server.address, SERIES, &body(n)).status, 200));
    let path = format!("/api/v1/tree.json?type=cpu&{WINDOW}");
    let expected = get(server.address, &path).json();
    server.stop();

    let check = |name: &str, noted: Option<bool>| {
        let server = Local::start(config(folder.path()));
        assert_eq!(get(server.address, &path).json(), expected, "{name}");
        let recovery = get(server.address, "/api/v1/status").json()["recovery"].clone();
        assert_eq!(recovery["segments_read"], 20, "{name}");
        if let Some(noted) = noted {
            assert_eq!(
                recovery["index_note"].is_string(),
                noted,
                "{name}: {recovery}"
            );
        }
        let from_index = recovery["from_index"].as_u64().unwrap();
        server.stop();
        from_index
    };
    assert_eq!(
        check("untouched", Some(false)),
        20,
        "headers came from the index"
    );
    fs::remove_dir_all(&index).unwrap();
    assert_eq!(check("deleted", Some(false)), 0);
    assert_eq!(check("built again", Some(false)), 20);

    let largest = |folder: &Path| {
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        files
            .filter(|path| path.is_file())
            .max_by_key(|path| fs::metadata(path).unwrap().len())
            .unwrap()
    };
    let file = largest(&index);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 3]).unwrap();
    // sled notices some damage and mends other by itself; both are fine.
    check("cut", None);
    let file = largest(&index);
    let mut bytes = fs::read(&file).unwrap();
    bytes
        .iter_mut()
        .skip(64)
        .step_by(7)
        .for_each(|byte| *byte ^= 0x5a);
    fs::write(&file, bytes).unwrap();
    check("scrambled", None);
    // A snapshot of sled half written: spacejam/sled#1527, #1533.
    let snapshots = |keep: fn(&[u8]) -> Vec<u8>| {
        let mut found = 0;
        for entry in fs::read_dir(&index).unwrap() {
            let path = entry.unwrap().path();
            if path
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("snap.")
            {
                fs::write(&path, keep(&fs::read(&path).unwrap())).unwrap();
                found += 1;
            }
        }
        found
    };
    check("whole again", None);
    assert!(snapshots(|bytes| bytes[..bytes.len() / 2].to_vec()) > 0);
    check("a snapshot cut", None);
    snapshots(|bytes| bytes.iter().map(|byte| !byte).collect());
    check("a snapshot scrambled", None);
    snapshots(|_| Vec::new());
    check("a snapshot empty", None);
    let _ = fs::remove_dir_all(&index);
    fs::write(&index, b"not a folder").unwrap();
    check("a file in its place", Some(true));

    let mut rebuild = config(folder.path());
    rebuild.rebuild_index = true;
    let server = Local::start(rebuild);
    assert_eq!(get(server.address, &path).json(), expected);
    assert_eq!(
        get(server.address, "/api/v1/status").json()["recovery"]["from_index"],
        0
    );
    server.stop();
}

#[test]
fn segments_left_beside_their_merge_by_a_crash_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    (0..8).for_each(|n| assert_eq!(push(server.address, SERIES, &body(n)).status, 200));
    let before = total(server.address, "{}");
    server.stop();
    let mut merging = config(folder.path());
    // The files stay for an hour: the folder looks as after a crash right behind the merge.
    merging.maintenance = Some(Maintenance {
        grace: Duration::from_secs(3600),
        ..busy_maintenance()
    });
    let server = Local::start(merging);
    wait("merged", || {
        get(server.address, "/api/v1/status").json()["segments"] == 1
    });
    assert_eq!(total(server.address, "{}"), before);
    server.stop();
    assert_eq!(segments(folder.path()).len(), 9);
    let server = Local::start(config(folder.path()));
    assert_eq!(total(server.address, "{}"), before);
    assert_eq!(get(server.address, "/api/v1/status").json()["segments"], 1);
    server.stop();
}

#[test]
fn retention_deletes_the_oldest_and_keeps_what_was_pushed_today() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    (0..4).for_each(|n| assert_eq!(push(server.address, SERIES, &body(n)).status, 200));
    server.stop();
    let sizes: Vec<u64> = segments(folder.path())
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .collect();
    let rules = Maintenance {
        fan_in: 1000,
        patience: Duration::from_secs(3600),
        grace: Duration::ZERO,
        // The profiles' own times are long past; the push is what counts.
        max_age: Some(Duration::from_secs(3600)),
        max_bytes: Some(sizes[2] + sizes[3]),
        ..Maintenance::default()
    };
    let mut config = config(folder.path());
    config.maintenance = Some(rules);
    let server = Local::start(config);
    wait("two are left", || segments(folder.path()).len() == 2);
    assert_eq!(
        total(server.address, "{}"),
        (30_000_000 + 40_000_000, false)
    );
    server.stop();
}

#[test]
fn one_folder_one_server_and_no_open_address_without_saying_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = Local::start(config(folder.path()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let second = runtime
        .block_on(Server::start(config(folder.path())))
        .err()
        .unwrap();
    assert!(matches!(second, Error::InUse(_)), "{second}");
    let mut open = config(folder.path());
    open.listen = ([0, 0, 0, 0], 0).into();
    let open = runtime.block_on(Server::start(open)).err().unwrap();
    assert!(open.to_string().contains("allow_public"), "{open}");
    let taken = server.address;
    let other = tempfile::tempdir().unwrap();
    let mut same = config(other.path());
    same.listen = taken;
    let same = runtime.block_on(Server::start(same)).err().unwrap();
    assert!(matches!(same, Error::Listen { .. }), "{same}");
    server.stop();
    Local::start(config(folder.path())).stop();
}

#[test]
fn sources_of_merged_sources_do_not_come_back_when_their_merge_is_deleted_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut merging = config(folder.path());
    merging.maintenance = Some(Maintenance {
        grace: Duration::from_secs(3600),
        ..busy_maintenance()
    });
    let server = Local::start(merging);
    let address = server.address;
    let merged = |level: &str| {
        let files = segments(folder.path());
        files
            .iter()
            .filter(|path| path.to_str().unwrap().contains(level))
            .count()
    };
    let mut n = 0;
    while merged("-2-") == 0 {
        assert_eq!(push(address, SERIES, &body(n)).status, 200);
        n += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = total(address, "{}");
    server.stop();
    assert_eq!(before, ((1..=n).sum::<i64>() * 10_000_000, false));
    // As after a crash between the deletions of one round: the sources are gone, theirs are not.
    let files = segments(folder.path());
    let top = files
        .iter()
        .filter(|path| path.to_str().unwrap().contains("-2-"));
    let mut gone = 0;
    for path in top {
        let file = fs::read(path).unwrap();
        for name in decode_manifest(&file).unwrap().0.replaces {
            if name.contains("-1-") {
                fs::remove_file(folder.path().join("blocks").join(name)).unwrap();
                gone += 1;
            }
        }
    }
    assert!(gone > 1);
    let server = Local::start(config(folder.path()));
    assert_eq!(total(server.address, "{}"), before);
    server.stop();
}

/// A folder that several servers use as they would use a bucket. A listing is no moment in time: the
/// first two that show a manifest lack the files written before it.
struct Bucket(LocalDisk, Mutex<HashMap<String, u32>>);

impl Disk for Bucket {
    fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.put_new(name, bytes)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = self.0.list()?;
        let mut shown = self.1.lock().unwrap();
        let mut hidden = HashSet::new();
        for name in files
            .iter()
            .filter_map(|(name, _)| name.strip_suffix(".plblk"))
        {
            let times = shown.entry(name.to_owned()).or_default();
            *times += 1;
            if *times <= 2 {
                hidden.insert(name.to_owned());
            }
        }
        files.retain(|(name, _)| {
            let of = name.split('.').next().unwrap();
            !name.ends_with(".parquet") || !hidden.contains(of)
        });
        Ok(files)
    }

    fn read(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.0.read(name, range)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn shared(&self) -> bool {
        true
    }
}

#[test]
fn two_servers_over_one_store_see_each_others_profiles_and_one_of_them_merges() {
    const EACH: i64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let inner = LocalDisk::open(&folder.path().join("bucket"), runtime.handle().clone());
    let bucket = Arc::new(Bucket(inner.unwrap(), Mutex::default()));
    let start = |name: &str| {
        let mut config = config(&folder.path().join(name));
        config.disk = Some(bucket.clone());
        config.maintenance = Some(Maintenance {
            refresh: Duration::from_millis(100),
            grace: Duration::from_secs(3),
            ..busy_maintenance()
        });
        Local::start(config)
    };
    let servers = [start("a"), start("b")];
    for n in 0..EACH {
        for (at, server) in servers.iter().enumerate() {
            let answer = push(server.address, SERIES, &body(2 * n + at as i64));
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let expected = ((1..=2 * EACH).sum::<i64>() * 10_000_000, false);
    let agree = |what: &str, all: &dyn Fn() -> bool| {
        let since = Instant::now();
        while !all() {
            assert!(since.elapsed() < Duration::from_secs(90), "{what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let both = || servers.iter().all(|of| total(of.address, "{}") == expected);
    agree("both know all", &both);
    let merged = || {
        let files = bucket.list().unwrap();
        !files.iter().any(|(name, _)| name.ends_with(".plseg"))
    };
    agree("segments are merged and deleted", &merged);
    agree("both still know all", &both);
    let merges = servers.each_ref().map(|of| {
        let status = get(of.address, "/api/v1/status").json();
        let elsewhere = status["merging_elsewhere"].as_bool().unwrap();
        (elsewhere, status["merges"].as_u64().unwrap() > 0)
    });
    let one = merges == [(false, true), (true, false)] || merges == [(true, false), (false, true)];
    assert!(one, "(merging elsewhere, merged): {merges:?}");
    servers.into_iter().for_each(Local::stop);
    let third = start("c");
    agree("a third one knows all", &|| {
        total(third.address, "{}") == expected
    });
    third.stop();
}
