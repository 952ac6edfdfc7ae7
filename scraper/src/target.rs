//! From an address to a target: Prometheus' label pipeline.
//!
//! Order (`scrape/target.go`, PopulateLabels): the target's own labels over its group's; then job, interval, timeout,
//! scheme and `__param_*` where unset; then the job's rules; then the address, interval and timeout are checked;
//! `__meta_*` goes; `instance` defaults to the address; names that begin with `__` never reach the series.

use crate::Labels;
use crate::config::{Group, Profile, ScrapeConfig, format_duration, parse_duration};
use crate::phase;
use pilotlight_labels::{Action, Outcome, Rule, relabel};
use pilotlight_wire::Url;
use std::collections::BTreeMap;
use std::time::Duration;

/// One profile of one address: what a loop works on. Nothing of it changes while the loop runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The job's name.
    pub job: String,
    /// Labels of the series that are pushed.
    pub labels: Labels,
    /// Labels before any rule.
    pub discovered: Labels,
    /// Which profile.
    pub profile: Profile,
    /// With all parameters.
    pub url: Url,
    /// Time between two scrapes.
    pub interval: Duration,
    /// Time beyond the profile's seconds.
    pub timeout: Duration,
    /// Hash over labels and URL; equal targets of a job are one.
    pub identity: u64,
    /// Why every scrape of it fails before it begins, such as a label limit.
    pub refused: Option<String>,
}

/// An address that became no target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The job's name.
    pub job: String,
    /// What was known of it.
    pub discovered: Labels,
    /// Why.
    pub reason: String,
    /// A rule of the job wanted it so.
    pub by_rule: bool,
}

/// All targets of these groups: every address times every profile of the job, equal ones once, a bad one alone.
pub fn targets<'g>(
    job: &ScrapeConfig,
    groups: impl IntoIterator<Item = &'g Group>,
) -> (Vec<Target>, Vec<Rejected>) {
    let mut good: BTreeMap<u64, Target> = BTreeMap::new();
    let mut bad = Vec::new();
    for group in groups {
        for address in &group.targets {
            for profile in &job.profiles {
                match target(job, group, address, profile) {
                    Ok(target) => {
                        good.entry(target.identity).or_insert(target);
                    }
                    Err(rejected) => bad.push(rejected),
                }
            }
        }
    }
    let mut good: Vec<Target> = good.into_values().collect();
    if job.target_limit > 0 && good.len() as u64 > job.target_limit {
        let reason = format!(
            "target_limit exceeded: {} targets, limit {}",
            good.len(),
            job.target_limit
        );
        for target in &mut good {
            target.refused = Some(reason.clone());
        }
    }
    (good, bad)
}

/// One target.
///
/// # Errors
/// Bad address, interval or timeout, or a rule that drops it.
pub fn target(
    job: &ScrapeConfig,
    group: &Group,
    address: &str,
    profile: &Profile,
) -> Result<Target, Rejected> {
    let discovered = discovered_labels(job, group, address, profile);
    let rejected = |reason: String, by_rule: bool| Rejected {
        job: job.job_name.clone(),
        discovered: discovered.clone(),
        reason,
        by_rule,
    };
    let mut labels = discovered.clone();
    if let Outcome::Dropped(index) = relabel(&job.relabel_configs, &mut labels) {
        let action = job.relabel_configs.get(index).map(Rule::action);
        let action = action.map_or("", Action::name);
        let reason = format!("relabel_configs[{index}] ({action}) drops it");
        return Err(rejected(reason, true));
    }
    let built = build(job, &discovered, &labels, profile);
    built.map_err(|reason| rejected(reason, false))
}

fn discovered_labels(
    job: &ScrapeConfig,
    group: &Group,
    address: &str,
    profile: &Profile,
) -> Labels {
    let mut labels = Labels::from_iter([("__address__", address)]);
    for (name, value) in group.labels.iter() {
        labels.set_default(name, value);
    }
    labels.set_default("job", job.job_name.as_str());
    labels.set_default("__scrape_interval__", format_duration(job.scrape_interval));
    labels.set_default("__scrape_timeout__", format_duration(job.scrape_timeout));
    labels.set_default("__scheme__", if job.secure { "https" } else { "http" });
    labels.set_default("__profile_path__", profile.path.as_str());
    labels.set("__profile_name__", profile.name.as_str());
    for (name, values) in &job.params {
        if let Some(first) = values.first() {
            labels.set_default(&format!("__param_{name}"), first.as_str());
        }
    }
    labels
}

fn build(
    job: &ScrapeConfig,
    discovered: &Labels,
    labels: &Labels,
    profile: &Profile,
) -> Result<Target, String> {
    let address = labels.get("__address__").ok_or("no address")?;
    if address.contains('/') {
        return Err(format!(
            "{address:?} is not an address; write host:port, without http:// and path"
        ));
    }
    let (interval, timeout) = times(labels)?;
    let scheme = labels.get("__scheme__").unwrap_or("http");
    let path = labels.get("__profile_path__").unwrap_or("/");
    let base = Url::parse(&format!("{scheme}://{address}/")).map_err(|error| error.to_string())?;
    let profile = profile_within(profile, path, interval);
    let params = params(job, labels, profile.seconds);
    let pairs = params.iter().flat_map(|(name, values)| {
        values
            .iter()
            .map(move |value| (name.as_str(), value.as_str()))
    });
    let url = base.with_path_and_query(path, pairs);
    let series = series_labels(labels, address, &job.job_name);
    Ok(Target {
        identity: phase::identity(&series, &url.to_string()),
        refused: over_limit(job, &series),
        job: job.job_name.clone(),
        discovered: discovered.clone(),
        labels: series,
        profile,
        url,
        interval,
        timeout,
    })
}

fn times(labels: &Labels) -> Result<(Duration, Duration), String> {
    let read = |name: &str| {
        let text = labels.get(name).unwrap_or_default();
        let duration = parse_duration(text).map_err(|error| format!("{name}: {error}"))?;
        if duration.is_zero() {
            return Err(format!("{name} is 0"));
        }
        Ok(duration)
    };
    let interval = read("__scrape_interval__")?;
    let timeout = read("__scrape_timeout__")?;
    if timeout > interval {
        return Err(format!(
            "__scrape_timeout__ ({timeout:?}) is longer than __scrape_interval__ ({interval:?})"
        ));
    }
    Ok((interval, timeout))
}

/// A target whose own interval is shorter than the job's captures for a second less than that.
fn profile_within(profile: &Profile, path: &str, interval: Duration) -> Profile {
    let longest = interval.as_secs().max(1);
    let seconds = profile.seconds.map(|seconds| {
        if seconds > longest {
            longest.saturating_sub(1).max(1)
        } else {
            seconds
        }
    });
    Profile {
        path: path.to_owned(),
        seconds,
        ..profile.clone()
    }
}

/// A fresh map for every target: `seconds` stands in it once, and only where this profile wants it.
fn params(
    job: &ScrapeConfig,
    labels: &Labels,
    seconds: Option<u64>,
) -> BTreeMap<String, Vec<String>> {
    let mut params = job.params.clone();
    for (name, value) in labels.iter() {
        if let Some(name) = name.strip_prefix("__param_") {
            let values = params.entry(name.to_owned()).or_default();
            match values.first_mut() {
                Some(first) => value.clone_into(first),
                None => values.push(value.to_owned()),
            }
        }
    }
    params.remove("seconds");
    if let Some(seconds) = seconds {
        params.insert("seconds".to_owned(), vec![seconds.to_string()]);
    }
    params
}

fn series_labels(labels: &Labels, address: &str, job: &str) -> Labels {
    let mut labels = labels.clone();
    labels.set_default("instance", address);
    labels.retain(|name| !name.starts_with("__"));
    labels.set_default("service_name", job);
    labels
}

fn over_limit(job: &ScrapeConfig, labels: &Labels) -> Option<String> {
    let over = |limit: u64, size: usize| limit > 0 && size as u64 > limit;
    if over(job.label_limit, labels.len()) {
        return Some(format!(
            "label_limit exceeded: {} labels, limit {}",
            labels.len(),
            job.label_limit
        ));
    }
    for (name, value) in labels.iter() {
        if over(job.label_name_length_limit, name.len()) {
            return Some(format!(
                "label_name_length_limit exceeded by {name:?}: {} bytes",
                name.len()
            ));
        }
        if over(job.label_value_length_limit, value.len()) {
            return Some(format!(
                "label_value_length_limit exceeded by {name:?}: {} bytes",
                value.len()
            ));
        }
    }
    None
}
