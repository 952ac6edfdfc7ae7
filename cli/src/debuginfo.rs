//! `pilotlight debuginfo`: files that name addresses, to a server; what it has and what it lacks.

use crate::api::Api;
use crate::args::{self, DebuginfoVerb};
use crate::fail::Failure;
use crate::text;
use pilotlight_server::{Announced, describe};
use pilotlight_wire::Bytes;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes in one request; what has arrived stays when the next one fails.
const CHUNK_BYTES: u64 = 8 << 20;
/// Files asked for in one question.
const QUESTIONS: usize = 1000;

pub async fn run(arguments: args::Debuginfo) -> Result<(), Failure> {
    match arguments.verb {
        DebuginfoVerb::Upload(arguments) => upload(arguments).await,
        DebuginfoVerb::List(arguments) => list(arguments).await,
    }
}

async fn upload(arguments: args::DebuginfoUpload) -> Result<(), Failure> {
    let api = Api::new(&arguments.remote)?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        let named = path.is_file();
        for file in all_files(path)? {
            match describe(&file) {
                Ok(announced) => files.push((file, announced)),
                Err(reason) if named => {
                    let text = format!("{}: {reason}", file.display());
                    return Err(Failure::new(text, format!("file {}", file.display())).usage());
                }
                // A folder holds other files too.
                Err(_) => {}
            }
        }
    }
    let mut sent = 0;
    for some in files.chunks(QUESTIONS) {
        for (wanted, (path, announced)) in wanted(&api, some).await?.into_iter().zip(some) {
            let state = if wanted {
                send(&api, path, announced).await?
            } else {
                "not needed".to_owned()
            };
            sent += usize::from(state == "stored");
            let (quality, id) = (announced.quality.text(), &announced.build_id);
            text::data(&format!(
                "{state:<10}  {quality:<14}  {id}  {}",
                path.display()
            ));
        }
    }
    text::news(&format!("{sent} of {} files sent", files.len()));
    Ok(())
}

/// A file itself, or all files below a folder, sorted. Links inside folders are not followed.
fn all_files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| {
        let path = path.display();
        Failure::new(format!("{path}: {error}"), format!("ls -l {path}")).usage()
    };
    if std::fs::metadata(path).map_err(failed)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut files, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).map_err(failed)?.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && is_elf(&entry.path()) => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && &magic == b"\x7fELF"
}

/// Which of these files the server wants.
async fn wanted(api: &Api, files: &[(PathBuf, Announced)]) -> Result<Vec<bool>, Failure> {
    let ask = |(_, of): &(PathBuf, Announced)| json!({ "build_id": of.build_id, "quality": of.quality, "has_code": of.has_code });
    let body = json!({ "files": files.iter().map(ask).collect::<Vec<_>>() });
    let body = Bytes::from(body.to_string());
    let answer = api.post("/api/v1/debuginfo/wanted", &[], body).await?;
    let answers = answer["files"].as_array().into_iter().flatten();
    let mut wanted: Vec<bool> = answers.map(|file| file["wanted"] == true).collect();
    wanted.resize(files.len(), true);
    Ok(wanted)
}

/// Sends what the server does not have of a file.
async fn send(api: &Api, path: &Path, announced: &Announced) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        let path = path.display();
        Failure::new(format!("{path}: {error}"), format!("ls -l {path}"))
    };
    let body = serde_json::to_vec(announced).map_err(|error| failed(error.into()))?;
    let started = api.post("/api/v1/debuginfo/uploads", &[], Bytes::from(body));
    let started = started.await?;
    let Some(id) = started["upload"].as_str() else {
        return Ok("not needed".to_owned());
    };
    let mut file = File::open(path).map_err(failed)?;
    let mut offset = started["offset"].as_u64().unwrap_or(0);
    let target = format!("/api/v1/debuginfo/uploads/{id}");
    while offset < announced.size_bytes {
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        let mut chunk = Vec::new();
        let mut some = Read::by_ref(&mut file).take(CHUNK_BYTES);
        some.read_to_end(&mut chunk).map_err(failed)?;
        let at = offset.to_string();
        let pairs = [("offset", at.as_str())];
        let sent = api.post(&target, &pairs, Bytes::from(chunk)).await?;
        let received = sent["offset"].as_u64().unwrap_or(0);
        if received <= offset {
            let text = format!("{} became shorter while it was sent", path.display());
            return Err(Failure::new(text, "the same command again"));
        }
        offset = received;
    }
    let finish = format!("{target}/finish");
    let done = api.post(&finish, &[], Bytes::new()).await?;
    Ok(done["state"].as_str().unwrap_or("?").replace('_', " "))
}

async fn list(arguments: args::DebuginfoList) -> Result<(), Failure> {
    let api = Api::new(&arguments.remote)?;
    let pairs = [
        ("q", arguments.q.as_str()),
        ("from", arguments.from.as_str()),
        ("until", arguments.until.as_str()),
    ];
    let missing = api.get("/api/v1/debuginfo", &pairs).await?;
    let stored = api.get("/api/v1/debuginfo/files", &[]).await?;
    if arguments.json {
        let both = json!({ "missing": missing, "stored": stored });
        text::data(&both.to_string());
        return Ok(());
    }
    for line in missing_lines(&missing)
        .into_iter()
        .chain(stored_lines(&stored))
    {
        text::data(&line);
    }
    Ok(())
}

fn missing_lines(answer: &Value) -> Vec<String> {
    let total = answer["total"].as_f64().unwrap_or(0.0);
    let binaries = answer["binaries"].as_array().into_iter().flatten();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for of in binaries {
        let share = crate::query::percent(of["value"].as_f64().unwrap_or(0.0), total);
        let (frames, reason) = (&of["frames"], word(&of["reason"]));
        lines.push(format!(
            "{share}  {frames:>6} frames  {reason:<16}  {}: {}",
            word(&of["binary"]),
            word(&of["what_to_do"])
        ));
    }
    if lines.is_empty() {
        lines.push("no address of this selection lacks a name".to_owned());
    } else {
        lines.insert(0, format!("{:>7}  of {}", "self", word(&answer["type"])));
    }
    lines
}

fn stored_lines(answer: &Value) -> Vec<String> {
    let files = answer["files"].as_array().into_iter().flatten();
    let line = |of: &Value| {
        let word = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
        let failed = of["failed"]
            .as_str()
            .map(|why| format!("  unreadable: {why}"));
        format!(
            "{:<14}  {}  {} ({} bytes){}",
            word("quality"),
            of["build_ids"][0].as_str().unwrap_or_default(),
            word("name"),
            of["size_bytes"],
            failed.unwrap_or_default()
        )
    };
    let mut lines = vec![format!("stored: {} bytes", answer["bytes"])];
    lines.extend(files.map(line));
    lines
}
