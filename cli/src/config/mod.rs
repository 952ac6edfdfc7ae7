//! `pilotlight.yaml`, and what the command line says over it.

mod access;
pub mod agent;
mod debuginfo;
mod ingest;
mod query;
mod storage;

use crate::args::Place;
use crate::fail::Failure;
use crate::text;
use pilotlight_scraper::config::reader::{Problems, Section};
use pilotlight_scraper::{Config, ScrapeConfig};
use pilotlight_server::{
    AccessRules, DebuginfoSettings, IngestRules, Limits, Maintenance, QueryLimits, TlsFiles,
};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the server listens and keeps its data, and what it takes.
pub struct Settings {
    pub listen: SocketAddr,
    pub data: PathBuf,
    pub allow_public: bool,
    pub jobs: Vec<ScrapeConfig>,
    /// The rest of the section `server`.
    pub server: ServerRules,
}

/// What the server takes and how long it keeps that.
#[derive(Default)]
pub struct ServerRules {
    pub limits: Limits,
    pub ingest: IngestRules,
    pub retention: Maintenance,
    pub query: QueryLimits,
    pub storage: Option<Storage>,
    pub debuginfo: DebuginfoSettings,
    pub access: AccessRules,
    pub tenants: Vec<String>,
    pub tls: Option<TlsFiles>,
}

/// An object store that holds the segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    pub bucket: String,
    pub prefix: String,
    pub endpoint: Option<String>,
    pub region: Option<String>,
}

/// Reads the file, if there is one; the command line wins.
pub fn settings(file: Option<&Path>, place: Place) -> Result<Settings, Failure> {
    let config = file.map(read).transpose()?;
    let mut settings = Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 4040)),
        data: PathBuf::from("pilotlight-data"),
        allow_public: place.allow_public,
        jobs: Vec::new(),
        server: ServerRules::default(),
    };
    if let (Some(file), Some(config)) = (file, config) {
        let server = config.sections.iter().filter(|(name, _)| *name == "server");
        for (_, section) in server {
            server_section(section, file, &mut settings)?;
        }
        settings.jobs = config.scrape_configs;
    }
    if let Some(listen) = place.listen {
        settings.listen = listen;
    }
    if let Some(data) = place.data {
        settings.data = data;
    }
    Ok(settings)
}

/// Reads and checks the file; its warnings are printed.
pub fn read(file: &Path) -> Result<Config, Failure> {
    let config = Config::read(file, &["server", "agent"])
        .map_err(|error| refused(file, &error.to_string()))?;
    for warning in &config.warnings {
        text::news(&format!("{}: {warning}", file.display()));
    }
    Ok(config)
}

fn refused(file: &Path, message: &str) -> Failure {
    let next = if file.exists() {
        format!(
            "edit {} (all settings: pilotlight.example.yaml) and run the same command again",
            file.display()
        )
    } else {
        "pilotlight up, without --config: it profiles itself and prints a file to begin with"
            .to_owned()
    };
    Failure::new(message, next).usage()
}

fn server_section(section: &Value, file: &Path, settings: &mut Settings) -> Result<(), Failure> {
    let problems = Problems::default();
    let mut server = Section::new("server", section, &problems);
    if let Some(listen) = server.text("listen") {
        match listen.parse() {
            Ok(address) => settings.listen = address,
            Err(_) => server.problem(
                "listen",
                format!("{listen:?} is not an address; write it like 127.0.0.1:4040"),
            ),
        }
    }
    if let Some(folder) = server.text("data_dir") {
        settings.data = file.parent().unwrap_or(Path::new("")).join(folder);
    }
    let nothing = Value::Null;
    let mut part = |key| {
        let value = server.value(key).unwrap_or(&nothing);
        Section::new(format!("server.{key}"), value, &problems)
    };
    ingest::read(part("ingest"), &mut settings.server);
    ingest::read_retention(part("retention"), &mut settings.server);
    let folder = file.parent().unwrap_or(Path::new(""));
    debuginfo::read(part("debuginfo"), folder, &mut settings.server.debuginfo);
    query::read(part("query"), &mut settings.server);
    storage::read(&mut server, &problems, &mut settings.server);
    access::read(&mut server, &problems, folder, &mut settings.server);
    server.finish(|_| None);
    let problems = problems.into_vec();
    if problems.is_empty() {
        return Ok(());
    }
    let text = format!("{}:\n  {}", file.display(), problems.join("\n  "));
    Err(refused(file, &text))
}
