//! Files that somebody forged, sent to the built server: each costs a child of it at most.

use crate::common::{PATIENCE, Running, run, text};
use pilotlight_tests::process::Scratch;
use pilotlight_tests::{free_port, http, wait_for};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const ID: [u8; 4] = [0xaa, 0xbb, 0xcc, 0xdd];

/// A program with compressed debug sections and a build id that can be found.
fn program(folder: &Path) -> Vec<u8> {
    let source =
        "int twice(int n) { return n * 2; }\nint main(int c, char **v) { return twice(c); }\n";
    std::fs::write(folder.join("app.c"), source).unwrap();
    let built = Command::new("cc")
        .args([
            "-g",
            "-gz=zlib",
            "-Wl,--build-id=0xaabbccdd",
            "-o",
            "app",
            "app.c",
        ])
        .current_dir(folder)
        .status();
    assert!(built.unwrap().success());
    std::fs::read(folder.join("app")).unwrap()
}

fn number(bytes: &[u8], at: usize) -> usize {
    let field = bytes[at..at + 8].try_into().unwrap();
    u64::from_le_bytes(field) as usize
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Where the header of `.debug_info` is: the first compressed section, which this is not always,
/// and any will do.
fn compressed_section(bytes: &[u8]) -> usize {
    const SHF_COMPRESSED: usize = 0x800;
    let start = number(bytes, 0x28);
    let count = usize::from(u16::from_le_bytes([bytes[0x3c], bytes[0x3d]]));
    let mut headers = (0..count).map(|n| start + n * 64);
    headers
        .find(|&at| number(bytes, at + 8) & SHF_COMPRESSED != 0)
        .unwrap()
}

/// A gigabyte of zeros in 32 KiB of zstd: blocks of one repeated byte.
fn bomb() -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[0] = 2;
    put(&mut bytes, 8, 1 << 30);
    bytes.extend([0x28, 0xb5, 0x2f, 0xfd, 0, 0x38]);
    let block = |last: u32| ((128 << 10) << 3 | 1 << 1 | last).to_le_bytes();
    for n in 0..8192 {
        bytes.extend([&block(u32::from(n == 8191))[..3], &[0]].concat());
    }
    bytes
}

/// Forged variants, each with a build id of its own.
fn forge(folder: &Path, whole: &[u8]) {
    let at = whole.windows(4).position(|w| w == ID).unwrap();
    let section = compressed_section(whole);
    let write = |name: &str, number: u8, change: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut bytes = whole.to_vec();
        bytes[at] = number;
        change(&mut bytes);
        std::fs::write(folder.join(name), bytes).unwrap();
    };
    write("size", 1, &mut |bytes| {
        let contents = number(bytes, section + 24);
        put(bytes, contents + 8, u64::MAX - 1);
        bytes[contents + 30] ^= 0xff;
    });
    write("bomb", 2, &mut |bytes| {
        let (end, bomb) = (bytes.len() as u64, bomb());
        put(bytes, section + 24, end);
        put(bytes, section + 32, bomb.len() as u64);
        bytes.extend(bomb);
    });
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for n in 3..13 {
        write(&format!("random-{n}"), n, &mut |bytes| {
            // Headers and ids stay, so that the file is taken at all.
            for _ in 0..200 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = 0x1000 + (random as usize >> 8) % (bytes.len() - 0x2000);
                bytes[at] = random as u8;
            }
        });
    }
}

fn state<'a>(files: &'a Value, name: &str) -> Option<&'a Value> {
    let all = files["files"].as_array()?;
    all.iter().find(|file| file["name"] == name)
}

#[test]
fn forged_files_cost_the_server_a_child_at_most() {
    let scratch = Scratch::new("hostile");
    let folder = scratch.path().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let whole = program(&folder);
    forge(&folder, &whole);
    // So large that its names do not fit: the system ends the child.
    std::fs::copy(std::env::current_exe().unwrap(), folder.join("large")).unwrap();
    let config = "server:\n  debuginfo: {parse_memory_bytes: 4MB, parse_cpu_time: 20s}\n";
    std::fs::write(scratch.path().join("pilotlight.yaml"), config).unwrap();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let server = format!("http://{listen}");
    let running = Running::start(
        scratch.path(),
        &[
            "server",
            "--listen",
            &listen,
            "--data",
            "d",
            "--config",
            "pilotlight.yaml",
        ],
    );
    wait_for("ready", PATIENCE, || {
        let ready = http::json(port, "/ready")?;
        (ready["ready"] == true)
            .then_some(())
            .ok_or("no".to_owned())
    });
    let sent = run(
        scratch.path(),
        &["debuginfo", "upload", "bin", "--server", &server],
    );
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let files = wait_for("all files are read", PATIENCE, || {
        let files = http::json(port, "/api/v1/debuginfo/files")?;
        let all = files["files"].as_array().ok_or("none")?;
        let sum = |of: &Value| {
            let counts = of.as_object().into_iter().flatten();
            counts.filter_map(|(_, n)| n.as_u64()).sum::<u64>()
        };
        // Each was read twice: its headers when it came, then its names.
        let readings = sum(&files["read"]) + sum(&files["unread"]);
        // A reading is counted before its failure is written down.
        let written = |name: &&str| state(&files, name).is_some_and(|f| !f["failed"].is_null());
        let all_written = ["bomb", "size", "large"].iter().all(written);
        let done = readings == 2 * all.len() as u64 && all_written;
        done.then_some(files.clone()).ok_or(files.to_string())
    });
    assert!(files["files"].as_array().unwrap().len() >= 4, "{files}");
    let why = |name: &str| {
        let file = state(&files, name).unwrap_or_else(|| panic!("{name}: {files}"));
        file["failed"].as_str().unwrap_or("-").to_owned()
    };
    assert_eq!(why("app"), "-");
    assert!(why("bomb").contains("inflated sections"), "{}", why("bomb"));
    assert!(why("size").contains("is damaged"), "{}", why("size"));
    assert!(why("large").contains("ended by signal"), "{}", why("large"));
    assert!(files["unread"]["killed"].as_u64() >= Some(1), "{files}");
    assert_eq!(files["read"]["in_process"], 0, "{files}");
    let metrics = http::get_within(port, "/metrics", PATIENCE).unwrap();
    let metrics = text(&metrics.body);
    let killed = "pilotlight_debuginfo_unread_total{reason=\"killed\"} ";
    assert!(metrics.contains(killed), "{metrics}");
    let (output, _) = running.stop("-TERM");
    assert!(output.status.success(), "{}", text(&output.stderr));
}
