//! `pilotlight.yaml`, and what the command line says over it.

use crate::args::Place;
use crate::fail::Failure;
use crate::text;
use pilotlight_scraper::{Config, ScrapeConfig};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the server listens and keeps its data.
#[derive(Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    pub data: PathBuf,
    pub allow_public: bool,
    pub jobs: Vec<ScrapeConfig>,
}

/// Reads the file, if there is one; the command line wins.
pub fn settings(file: Option<&Path>, place: Place) -> Result<Settings, Failure> {
    let config = file.map(read).transpose()?;
    let mut settings = Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 4040)),
        data: PathBuf::from("pilotlight-data"),
        allow_public: place.allow_public,
        jobs: Vec::new(),
    };
    if let (Some(file), Some(config)) = (file, config) {
        for (_, section) in &config.sections {
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
    let config =
        Config::read(file, &["server"]).map_err(|error| refused(file, &error.to_string()))?;
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
    let bad = |text: String| refused(file, &format!("{}:\n  server{text}", file.display()));
    let map = section
        .as_object()
        .ok_or_else(|| bad(": must be a mapping".to_owned()))?;
    for (key, value) in map {
        let text = value
            .as_str()
            .ok_or_else(|| bad(format!(".{key}: must be a text")))?;
        match key.as_str() {
            "listen" => {
                settings.listen = text.parse().map_err(|_| {
                    bad(format!(
                        ".listen: {text:?} is not an address; write it like 127.0.0.1:4040"
                    ))
                })?;
            }
            "data_dir" => settings.data = file.parent().unwrap_or(Path::new("")).join(text),
            _ => {
                return Err(bad(format!(
                    ".{key}: unknown key; known here: listen, data_dir"
                )));
            }
        }
    }
    Ok(())
}
