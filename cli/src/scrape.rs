//! `pilotlight scrape`: the scraper alone.

use crate::api::Api;
use crate::args;
use crate::config::read;
use crate::fail::Failure;
use crate::stop::{LIMIT, Stop};
use crate::text;
use pilotlight_scraper::{Handle, Options, ScrapeConfig, Scraper, Url};
use pilotlight_wire::Authorization;
use std::sync::Arc;
use std::time::Duration;

pub async fn run(arguments: args::Scrape) -> Result<(), Failure> {
    let mut stop = Stop::new();
    let config = read(&arguments.config)?;
    if config.scrape_configs.is_empty() {
        let text = format!("{}: scrape_configs is empty", arguments.config.display());
        return Err(Failure::new(text, "add a job, as in pilotlight.example.yaml").usage());
    }
    let server = Api::new(&arguments.remote)?.base().clone();
    let authorization = arguments.remote.authorization();
    text::data(&format!("server      {server}"));
    for job in &config.scrape_configs {
        text::data(&format!("profiling   {}", describe(job)));
    }
    let handle = start(config.scrape_configs, server, authorization);
    let reporter = report_push_errors(handle.clone());
    stop.wait().await;
    reporter.abort();
    handle.stop(LIMIT / 2).await;
    Ok(())
}

/// Starts the loops; news of targets go to standard error.
pub fn start(
    jobs: Vec<ScrapeConfig>,
    server: Url,
    authorization: Option<Authorization>,
) -> Arc<Handle> {
    let mut options = Options::new(server);
    options.authorization = authorization;
    options.log = Arc::new(text::news);
    Arc::new(Scraper::start(jobs, options))
}

/// A job in one line.
pub fn describe(job: &ScrapeConfig) -> String {
    let every = pilotlight_scraper::config::format_duration(job.scrape_interval);
    let mut addresses: Vec<&str> = job
        .static_configs
        .iter()
        .flat_map(|group| group.targets.iter().map(String::as_str))
        .collect();
    let files = job.file_sd_configs.iter().flat_map(|files| &files.files);
    let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
    addresses.extend(files.iter().map(String::as_str));
    const SHOWN: usize = 4;
    let more = addresses.len().saturating_sub(SHOWN);
    addresses.truncate(SHOWN);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "{} every {every}: {}{more}",
        job.job_name,
        addresses.join(", ")
    )
}

/// Says when profiles do not reach the server, once per kind of trouble.
pub fn report_push_errors(handle: Arc<Handle>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut said = None;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let error = handle.counters().push_error();
            if error.is_some() && error != said {
                text::news(&format!("push: {}", error.as_deref().unwrap_or_default()));
                said = error;
            }
        }
    })
}
