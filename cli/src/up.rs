//! `pilotlight up`: server, page, scraper, a profile of all that by itself, and the host agent where it may sample.
//!
//! The page should show something true within ten seconds. So short captures fill the time before the first tick of the
//! self-profile, and its rate is higher than a service's: this process uses some milliseconds of CPU a second, and CPU
//! timers only expire where CPU is used. Nothing is burnt to have something to show.

use crate::api::Api;
use crate::args;
use crate::beside::HostAgent;
use crate::config::{Settings, settings};
use crate::fail::Failure;
use crate::query::percent;
use crate::scrape::{describe, report_push_errors, start};
use crate::stop::{LIMIT, Stop};
use crate::{server, text, token};
use pilotlight_scraper::{Handle, ScrapeConfig, Url};
use pilotlight_server::{AccessRules, DEFAULT_TENANT, Rights, Scope, Token, token_hash};
use pilotlight_wire::{Authorization, Clock, SystemClock};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const SELF: &str = "pilotlight";
const SELF_INTERVAL: Duration = Duration::from_secs(5);
/// Prime, and five times a service's default: the whole process uses a few milliseconds of CPU a second.
const SELF_HZ: u32 = 499;
const DEBUG_FOLDER: &str = "/usr/lib/debug";
const FIRST_CAPTURES: Duration = Duration::from_secs(1);
/// The top five are printed when there are five that have names, or when this time is over.
const TOP_WITHIN: Duration = Duration::from_secs(8);

pub async fn run(arguments: args::Up) -> Result<(), Failure> {
    let mut stop = Stop::new();
    let start_ns = SystemClock::new().unix_ns();
    let settings = settings(arguments.config.as_deref(), arguments.place)?;
    let profiled = profile_self();
    let scraper: Arc<OnceLock<Arc<Handle>>> = Arc::default();
    let mut config = server_config(&settings, &scraper);
    let folders = &mut config.debuginfo.sources.folders;
    // Where this machine's own packages put theirs.
    if folders.is_empty() && Path::new(DEBUG_FOLDER).is_dir() {
        folders.push(DEBUG_FOLDER.into());
    }
    let token = own_token(&mut config.access)?;
    let own = token.clone().map(Authorization::bearer);
    // The scraper speaks no TLS; it is in this process.
    config.inner_port = config.tls.is_some();
    let running = server::start(config, "up").await?;
    let (address, inner) = (running.local_addr(), running.inner_addr());
    let base = base(inner)?;

    let mut jobs = settings.jobs.clone();
    if profiled.is_some() {
        let mut job = self_job(inner, &jobs);
        job.authorization.clone_from(&own);
        jobs.push(job);
    }
    announce(&settings, address, &jobs, arguments.config.is_none());
    let handle = start(jobs, base.clone(), own.clone());
    let _ = scraper.set(Arc::clone(&handle));
    let reporter = report_push_errors(Arc::clone(&handle));
    let agent = match arguments.no_agent {
        true => None,
        false => HostAgent::start(
            &base.to_string(),
            arguments.config.as_deref(),
            token.as_deref(),
        ),
    };
    let first = tokio::spawn(first_functions(Api::at(base, own), start_ns));

    stop.wait().await;
    first.abort();
    reporter.abort();
    let agent = async {
        if let Some(agent) = agent {
            agent.stop(LIMIT / 2).await;
        }
    };
    tokio::join!(agent, handle.stop(LIMIT / 3));
    // not dropped: ending the sampler waits for its captures, and the process ends anyway
    std::mem::forget(profiled);
    server::end(running).await;
    Ok(())
}

/// A token for the scraper of this process and the host agent, where tokens are needed; nobody else ever sees it.
fn own_token(access: &mut AccessRules) -> Result<Option<String>, Failure> {
    if access.is_open() {
        return Ok(None);
    }
    let token = token::fresh()
        .map_err(|error| Failure::new(format!("no random bytes: {error}"), "ls -l /dev/urandom"))?;
    access.tokens.push(Token {
        name: "pilotlight up".to_owned(),
        sha256: token_hash(&token),
        rights: Rights {
            scopes: Scope::ALL.to_vec(),
            tenant: Some(DEFAULT_TENANT.to_owned()),
        },
    });
    Ok(Some(token))
}

/// Starts the sampler of this process; without it everything else still works.
fn profile_self() -> Option<pilotlight::Guard> {
    match pilotlight::Config::new(SELF)
        .version(env!("CARGO_PKG_VERSION"))
        .no_listener()
        .frequency_hz(SELF_HZ)
        .start()
    {
        Ok(guard) => Some(guard),
        Err(error) => {
            text::news(&format!("no profile of pilotlight itself: {error}"));
            None
        }
    }
}

fn server_config(
    settings: &Settings,
    scraper: &Arc<OnceLock<Arc<Handle>>>,
) -> pilotlight_server::Config {
    let mut config = server::config(settings);
    config.extra_router = Some(pilotlight::axum::router());
    let targets = Arc::clone(scraper);
    config.targets = Some(Arc::new(move || match targets.get() {
        Some(handle) => handle.targets_json().to_string(),
        None => {
            r#"{"status":"success","data":{"activeTargets":[],"droppedTargets":[]}}"#.to_owned()
        }
    }));
    let metrics = Arc::clone(scraper);
    config.extra_metrics = Some(Arc::new(move || {
        metrics
            .get()
            .map(|handle| handle.metrics_text())
            .unwrap_or_default()
    }));
    config
}

fn base(address: SocketAddr) -> Result<Url, Failure> {
    let ip = if address.ip().is_unspecified() {
        "127.0.0.1".to_owned()
    } else {
        address.ip().to_string()
    };
    let host = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip
    };
    Url::parse(&format!("http://{host}:{}", address.port()))
        .map_err(|error| Failure::new(error.to_string(), "pilotlight up --listen 127.0.0.1:4040"))
}

fn self_job(address: SocketAddr, others: &[ScrapeConfig]) -> ScrapeConfig {
    let taken = others.iter().any(|job| job.job_name == SELF);
    let name = if taken { "pilotlight-self" } else { SELF };
    let port = address.port();
    let mut job = ScrapeConfig::new(name, &[&format!("127.0.0.1:{port}")]).every(SELF_INTERVAL);
    for group in &mut job.static_configs {
        group.labels.set("service_name", SELF);
    }
    job.first_captures = Some(FIRST_CAPTURES);
    job
}

fn announce(settings: &Settings, address: SocketAddr, jobs: &[ScrapeConfig], alone: bool) {
    let scheme = match settings.server.tls {
        Some(_) => "https",
        None => "http",
    };
    let link = text::paint(text::BOLD, &format!("{scheme}://{address}"));
    text::data(&format!("page        {link}"));
    text::data(&format!("data        {}", settings.data.display()));
    for job in jobs {
        text::data(&format!("profiling   {}", describe(job)));
    }
    if alone {
        text::data(
            "to add a service, put this into pilotlight.yaml and run: pilotlight up --config pilotlight.yaml",
        );
        text::data("    scrape_configs:");
        text::data("      - job_name: my-service");
        text::data("        static_configs: [{targets: [\"127.0.0.1:6060\"]}]");
    }
    text::news("waiting for the first profile; Ctrl-C ends it");
}

/// Prints the top five of what came in since the start, then nothing more.
async fn first_functions(api: Api, start_ns: i64) {
    let from = start_ns.to_string();
    let pairs = [
        ("type", "process_cpu:cpu:nanoseconds:cpu:nanoseconds"),
        ("from", from.as_str()),
        ("limit", "5"),
    ];
    let started = std::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // an error is no news: the type is not known before the first profile
        let Ok(answer) = api.get("/api/v1/top", &pairs).await else {
            continue;
        };
        let rows = own_time(&answer);
        let is_named = |(name, _): &(&str, f64)| !pilotlight_server::has_reason(name.as_bytes());
        let are_named = rows.iter().take(5).all(is_named);
        let is_time = started.elapsed() >= TOP_WITHIN;
        if rows.len() >= 5 && are_named || !rows.is_empty() && is_time {
            print_top(&answer, &rows);
            return;
        }
    }
}

/// Functions that used time themselves, with that time.
fn own_time(answer: &Value) -> Vec<(&str, f64)> {
    let rows = answer["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| Some((row["name"].as_str()?, row["self"].as_f64()?)))
        .filter(|(_, own)| *own > 0.0)
        .collect()
}

fn print_top(answer: &Value, rows: &[(&str, f64)]) {
    let total = answer["total"].as_f64().unwrap_or(0.0);
    let unit = answer["unit"].as_str().unwrap_or_default();
    text::data(&format!(
        "so far      {} of CPU time; by the functions themselves:",
        text::value(total, unit)
    ));
    for (name, own) in rows {
        text::data(&format!("  {}  {name}", percent(*own, total)));
    }
}
