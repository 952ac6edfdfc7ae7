//! Profiles by the interval.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use pilotlight_profile::Profile;

use super::queue::{Parcel, Queue};
use super::send::random;
use super::url::encode;
use super::{Protocol, Push};
use crate::stats::COUNTERS;
use crate::types::{self, Ask, Delta, Kind, Running, Source, State};

pub(super) struct Taker {
    push: Push,
    service: String,
    queue: Arc<Queue>,
    /// Differences go on where the last one ended: nothing falls between two.
    deltas: HashMap<&'static str, Delta>,
    /// Of request ids.
    prefix: u64,
    next_id: u64,
}

impl Taker {
    pub(super) fn new(service: &str, push: Push, queue: Arc<Queue>) -> Taker {
        Taker {
            push,
            service: service.to_string(),
            queue,
            deltas: HashMap::new(),
            prefix: random(),
            next_id: 0,
        }
    }

    pub(super) fn run(mut self) {
        let mut next = Instant::now();
        let mut ends = false;
        while !ends {
            next += self.push.interval;
            let running = self.begin();
            ends = self
                .queue
                .pause(next.saturating_duration_since(Instant::now()));
            self.finish(running);
            // After a time of being stopped, no interval is made up for.
            next = next.max(Instant::now() - self.push.interval);
        }
    }

    /// Begins what is sampled; what is counted already has begun.
    fn begin(&mut self) -> Vec<(&'static dyn Source, Box<dyn Running>)> {
        let mut running = Vec::new();
        for source in self.sources() {
            let ask = Ask::default();
            match source.kind() {
                Kind::Window => match source.begin(&ask) {
                    Ok(begun) => running.push((source, begun)),
                    Err(_) => COUNTERS.push_lost_taking.add(1),
                },
                Kind::Cumulative { .. } if !self.deltas.contains_key(source.name()) => {
                    if let Ok(delta) = Delta::new(source, &ask) {
                        self.deltas.insert(source.name(), delta);
                    }
                }
                _ => {}
            }
        }
        running
    }

    fn finish(&mut self, running: Vec<(&'static dyn Source, Box<dyn Running>)>) {
        for (source, running) in running {
            self.add(source.name(), running.finish());
        }
        for source in self.sources() {
            let profile = match source.kind() {
                Kind::Level => source.take(&Ask::default()),
                Kind::Cumulative { .. } => match self.deltas.get_mut(source.name()) {
                    Some(delta) => delta.advance(),
                    None => continue,
                },
                _ => continue,
            };
            if profile.is_err() {
                self.deltas.remove(source.name());
            }
            self.add(source.name(), profile);
        }
    }

    /// What is on and wanted.
    fn sources(&self) -> Vec<&'static dyn Source> {
        let mut sources = types::all();
        sources.retain(|source| self.wants(*source) && source.state() == State::On);
        sources
    }

    fn wants(&self, source: &dyn Source) -> bool {
        let name = source.name();
        match (self.push.types.is_empty(), source.kind()) {
            (_, Kind::Text) => false,
            (false, _) => self.push.types.iter().any(|wanted| wanted == name),
            // `allocs` is `heap` with another column in front.
            (true, Kind::Cumulative { .. }) => name != "allocs",
            (true, _) => name == "profile",
        }
    }

    fn add(&mut self, name: &str, profile: Result<Profile, String>) {
        match profile {
            Ok(profile) if profile.samples.is_empty() => {}
            Ok(profile) => {
                let parcel = self.parcel(name, &profile);
                self.queue.add(parcel);
            }
            Err(_) => COUNTERS.push_lost_taking.add(1),
        }
    }

    fn parcel(&mut self, name: &str, profile: &Profile) -> Parcel {
        match self.push.protocol {
            Protocol::Pprof => self.pprof(name, profile),
            Protocol::Otlp => self.otlp(profile),
        }
    }

    fn pprof(&mut self, name: &str, profile: &Profile) -> Parcel {
        self.next_id += 1;
        let id = format!("{:016x}-{}", self.prefix, self.next_id);
        let mut series = format!("{{service_name={}", quoted(&self.service));
        for (name, value) in &self.push.labels {
            series.push_str(&format!(",{name}={}", quoted(value)));
        }
        series.push('}');
        Parcel {
            query: format!(
                "series={}&name={}",
                encode(&series),
                encode(series_name(name))
            ),
            headers: vec![
                ("Content-Type", "application/octet-stream".into()),
                ("X-Pilotlight-Request-Id", id),
            ],
            body: profile.to_pprof_gz(),
        }
    }

    fn otlp(&self, profile: &Profile) -> Parcel {
        let mut resource = vec![
            ("service.name", self.service.as_str()),
            ("telemetry.sdk.name", "pilotlight"),
            ("telemetry.sdk.language", "rust"),
        ];
        let labels = self.push.labels.iter();
        resource.extend(labels.map(|(name, value)| (name.as_str(), value.as_str())));
        Parcel {
            query: String::new(),
            headers: vec![
                ("Content-Type", "application/x-protobuf".into()),
                ("Content-Encoding", "gzip".into()),
            ],
            body: profile.to_otlp_gz(&resource),
        }
    }
}

/// As scrapers name what they get from the same path, so that both land in one series.
fn series_name(name: &str) -> &str {
    match name {
        "profile" => "process_cpu",
        "heap" => "memory",
        other => other,
    }
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}
