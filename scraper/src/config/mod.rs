//! The configuration file, with Prometheus' names and Parca's `profiling_config`.
//!
//! Unknown keys are errors, with the nearest known key as a hint; keys that Prometheus knows and we do not have yet say
//! so. All problems of a file are reported at once, each with its place.

mod duration;
mod jobs;
pub mod reader;
mod size;
mod tls;

pub use duration::{format_duration, parse_duration};
pub(crate) use jobs::read_group;
pub use jobs::{FileSd, Group, Profile, ScrapeConfig, read_rules};
pub(crate) use reader::Problems;
use reader::Section;
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
pub use tls::read_tls;

/// A checked file.
#[derive(Clone, Debug)]
pub struct Config {
    /// The jobs, in the order of the file.
    pub scrape_configs: Vec<ScrapeConfig>,
    /// Sections that belong to others, by name.
    pub sections: Vec<(&'static str, Value)>,
    /// Things that are accepted and have no effect.
    pub warnings: Vec<String>,
}

/// A file that cannot be used, with everything that is wrong in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// One text per problem, beginning with its place in the file.
    pub problems: Vec<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads and checks a file. `others` are top-level sections that the caller reads itself.
    ///
    /// # Errors
    /// When the file cannot be read, or as [`Config::parse`].
    pub fn read(path: &Path, others: &[&'static str]) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            path: path.to_owned(),
            problems: vec![format!("cannot be read: {error}")],
        })?;
        Self::parse(&text, path, others)
    }

    /// Checks the text of a file; relative paths in it are relative to the folder of `path`.
    ///
    /// # Errors
    /// All problems found.
    pub fn parse(text: &str, path: &Path, others: &[&'static str]) -> Result<Self, ConfigError> {
        let problems = Problems::default();
        let parsed = parse_yaml(text).unwrap_or_else(|error| {
            problems.add("", error);
            Value::Null
        });
        let folder = path.parent().unwrap_or(Path::new(""));
        let config = read_file(&parsed, folder, others, &problems);
        let problems = problems.into_vec();
        if problems.is_empty() {
            return Ok(config);
        }
        Err(ConfigError {
            path: path.to_owned(),
            problems,
        })
    }
}

/// YAML as a JSON value; JSON is YAML too.
///
/// `y`, `no` and `007` stay texts, as they do where Prometheus reads them into strings.
pub(crate) fn parse_yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("not valid YAML: {error}"))
}

fn read_file(value: &Value, folder: &Path, others: &[&'static str], problems: &Problems) -> Config {
    let mut top = Section::new("", value, problems);
    let sections = others
        .iter()
        .filter_map(|name| Some((*name, top.value(name)?.clone())))
        .collect();
    let mut warnings = Vec::new();
    let defaults = jobs::read_global(&mut top);
    let scrape_configs: Vec<ScrapeConfig> = top
        .list("scrape_configs")
        .into_iter()
        .map(|(place, value)| {
            let section = Section::new(place, value, problems);
            jobs::read_job(section, &defaults, folder, &mut warnings)
        })
        .collect();
    for (index, job) in scrape_configs.iter().enumerate() {
        if scrape_configs[..index]
            .iter()
            .any(|other| other.job_name == job.job_name)
        {
            problems.add(
                &format!("scrape_configs[{index}].job_name"),
                format!(
                    "{:?} stands twice; every job needs its own name",
                    job.job_name
                ),
            );
        }
    }
    top.finish(later_top);
    Config {
        scrape_configs,
        sections,
        warnings,
    }
}

fn later_top(key: &str) -> Option<String> {
    let known = matches!(
        key,
        "rule_files"
            | "scrape_config_files"
            | "alerting"
            | "remote_write"
            | "remote_read"
            | "storage"
            | "tracing"
            | "otlp"
            | "runtime"
            | "object_storage"
    );
    known.then(|| "Prometheus' key, not supported yet; remove it here".to_owned())
}
