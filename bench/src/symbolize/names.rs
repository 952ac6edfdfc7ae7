//! From the end of an upload to names in the answer.

use super::{gigabyte, program};
use crate::child::Outcome;
use crate::figure::{Figure, Goal, Short};
use crate::server::{http::Client, http::encode, process::Server};
use pilotlight_profile::{LabelSetId, Mapping, ProfileBuilder};
use pilotlight_symbolize::Object;
use pilotlight_symbolize::tables::inspect;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const STACKS: u64 = 20_000;
const DEPTH: u64 = 30;
const GOAL_S: f64 = 10.0;
/// Where nobody would wait any longer.
const GIVE_UP: Duration = Duration::from_secs(100);
/// Bytes of one request of an upload.
const PART_BYTES: u64 = 64 << 20;

/// Prints the time for the measuring program's own DWARF, and for the gigabyte.
pub fn run() -> Outcome<()> {
    measure("upload_to_names", &program()?)?;
    measure("upload_to_names_gigabyte", &gigabyte::file()?)
}

fn measure(name: &str, program: &Path) -> Outcome<()> {
    let server = Server::start()?;
    let mut client = Client::connect(server.port)?;
    let object = Object::parse(std::fs::read(program)?)?;
    let build_id = inspect_id(program)?;
    let body = addresses(&object, &build_id)?;
    let series = encode("{service_name=\"bare\"}");
    expect(
        &mut client,
        &format!("/api/v1/push?series={series}&name=process_cpu"),
        &body,
    )?;
    let unknown = |client: &mut Client| -> Outcome<u64> {
        let question =
            format!("/api/v1/tree.json?type=cpu&q={series}&from=now-1h&until=now&max_nodes=100");
        let answer = client.request("GET", &question, b"")?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let after = text
            .split_once("\"unknown\":")
            .ok_or_else(|| format!("tree: {text}"))?
            .1;
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        Ok(digits.parse()?)
    };
    let before = unknown(&mut client)?;
    if before == 0 {
        return Err("all addresses have names before the upload".into());
    }
    let id = upload(&mut client, program, &build_id)?;
    let begun = Instant::now();
    expect(
        &mut client,
        &format!("/api/v1/debuginfo/uploads/{id}/finish"),
        b"",
    )?;
    let checked = begun.elapsed();
    // Addresses are drawn from all of the code, and padding has no name.
    while unknown(&mut client)? > before / 2 {
        if begun.elapsed() > GIVE_UP {
            let why = client.request("GET", "/api/v1/debuginfo/files", b"")?;
            return Err(format!("no names: {}", String::from_utf8_lossy(&why.body)).into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let took = begun.elapsed().as_secs_f64();
    let note = format!(
        "file:{}MB,checked-after:{}s",
        Short(std::fs::metadata(program)?.len() as f64 / 1e6),
        Short(checked.as_secs_f64())
    );
    Figure::print_of("symbolize", name, took, "s", Goal::AtMost(GOAL_S), &note);
    Ok(())
}

fn inspect_id(program: &Path) -> Outcome<String> {
    let found = inspect(&std::fs::read(program)?)?;
    let id = found.gnu_build_id.ok_or("the file has no build id")?;
    Ok(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Sends all bytes; the number of the upload, which is not finished.
fn upload(client: &mut Client, path: &Path, build_id: &str) -> Outcome<String> {
    let size = std::fs::metadata(path)?.len();
    let sum = Command::new("sha256sum").arg(path).output()?;
    let sum = String::from_utf8(sum.stdout)?;
    let sha256 = sum.split(' ').next().ok_or("sha256sum said nothing")?;
    let announced = format!(
        "{{\"build_id\":\"{build_id}\",\"quality\":\"dwarf\",\"size_bytes\":{size},\
         \"sha256\":\"{sha256}\",\"name\":\"app\"}}"
    );
    let started = expect(client, "/api/v1/debuginfo/uploads", announced.as_bytes())?;
    let id = started
        .split("\"upload\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let id = id
        .ok_or_else(|| format!("no upload: {started}"))?
        .to_owned();
    let (mut file, mut at) = (File::open(path)?, 0);
    while at < size {
        let mut part = Vec::new();
        let read = file.by_ref().take(PART_BYTES).read_to_end(&mut part)?;
        expect(
            client,
            &format!("/api/v1/debuginfo/uploads/{id}?offset={at}"),
            &part,
        )?;
        at += read as u64;
    }
    Ok(id)
}

/// Posts; the body of an answer without an error.
fn expect(client: &mut Client, target: &str, body: &[u8]) -> Outcome<String> {
    let answer = client.request("POST", target, body)?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    if answer.status == 200 {
        Ok(text)
    } else {
        Err(format!("{target}: {} {text}", answer.status).into())
    }
}

/// Stacks of addresses all over the code of a program, drawn by a fixed rule.
fn addresses(object: &Object, build_id: &str) -> Outcome<Vec<u8>> {
    let text = object
        .segments()
        .iter()
        .find(|segment| segment.executable)
        .ok_or("no code")?;
    let page = text.file_offset & !0xfff;
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    let mut out = ProfileBuilder::new();
    out.sample_type("cpu", "nanoseconds");
    out.period("cpu", "nanoseconds", 10_000_000);
    out.time(now - 60_000_000_000, 10_000_000_000);
    let (file, build_id) = (out.string(b"/srv/bin/app"), out.string(build_id.as_bytes()));
    let start = 0x7f12_3456_0000;
    let mapping = out.mapping(Mapping {
        start,
        limit: start + (text.file_offset - page + text.file_size).next_multiple_of(4096),
        offset: page,
        file,
        build_id,
        ..Mapping::default()
    });
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    // All of the code, in odd steps.
    let stride = (text.file_size / (20 * DEPTH * DEPTH)) | 1;
    for _ in 0..STACKS {
        let mut path = Vec::new();
        for level in (0..DEPTH).rev() {
            // Few callers near the root, many leaves.
            let at = draw(1 + level * level * 20) * stride % text.file_size;
            path.push(out.location(Some(mapping), start + text.file_offset - page + at, &[]));
        }
        let stack = out.stack(&path);
        out.sample(stack, LabelSetId(0), &[10_000_000]);
    }
    Ok(out.finish().to_pprof_gz())
}
