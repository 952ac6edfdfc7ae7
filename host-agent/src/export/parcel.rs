//! One profile on its way, in the words of each receiver, and as a record on disk.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pilotlight_labels::Labels;
use pilotlight_profile::Profile;
use pilotlight_wire::{Bytes, Call, HeaderValue, Url};
use serde_json::{Value, json};

/// What the receiver speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// pilotlight's own `/api/v1/push`.
    #[default]
    Pilotlight,
    /// OTLP profiles (`v1development`) over HTTP: OpenTelemetry Collector and what takes the same.
    Otlp,
    /// Pyroscope's `push.v1`.
    Pyroscope,
    /// Parca's `WriteRaw`, as JSON through its gateway.
    Parca,
}

impl Protocol {
    const ALL: [(Protocol, &'static str); 4] = [
        (Protocol::Pilotlight, "pilotlight"),
        (Protocol::Otlp, "otlp"),
        (Protocol::Pyroscope, "pyroscope"),
        (Protocol::Parca, "parca"),
    ];

    /// From the word in configurations: `pilotlight`, `otlp`, `pyroscope`, `parca`.
    pub fn parse(word: &str) -> Option<Protocol> {
        let found = Protocol::ALL.iter().find(|(_, of)| *of == word);
        found.map(|(protocol, _)| *protocol)
    }

    fn word(self) -> &'static str {
        let found = Protocol::ALL.iter().find(|(of, _)| *of == self);
        found.map_or("", |(_, word)| word)
    }
}

/// Names of labels that OpenTelemetry has words of its own for.
const ATTRIBUTES: [(&str, &str); 4] = [
    ("service_name", "service.name"),
    ("container_id", "container.id"),
    ("host", "host.name"),
    ("exe", "process.executable.path"),
];

/// One profile on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub protocol: Protocol,
    pub labels: Vec<(String, String)>,
    /// `process_cpu` or `offcpu`.
    pub name: String,
    /// Gzipped: pprof, or an OTLP request.
    pub body: Bytes,
}

impl Parcel {
    pub fn new(protocol: Protocol, labels: &Labels, name: &str, profile: &Profile) -> Parcel {
        let body = match protocol {
            Protocol::Otlp => profile.to_otlp_gz(&attributes(labels)),
            Protocol::Pilotlight | Protocol::Pyroscope | Protocol::Parca => profile.to_pprof_gz(),
        };
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Parcel {
            protocol,
            labels: labels.iter().map(own).collect(),
            name: name.to_owned(),
            body: body.into(),
        }
    }

    /// The request; `id` lets the receiver know a second try.
    pub fn call(&self, server: &Url, id: &str) -> Call {
        match self.protocol {
            Protocol::Pilotlight => {
                let series = self.series();
                let pairs = [("series", series.as_str()), ("name", self.name.as_str())];
                let url = server.with_path_and_query("/api/v1/push", pairs);
                let call = Call::post(url, self.body.clone());
                match HeaderValue::from_str(id) {
                    Ok(id) => call.header("x-pilotlight-request-id", id),
                    Err(_) => call,
                }
            }
            Protocol::Otlp => post(server, "/v1development/profiles", self.body.clone())
                .header(
                    "content-type",
                    HeaderValue::from_static("application/x-protobuf"),
                )
                .header("content-encoding", HeaderValue::from_static("gzip")),
            Protocol::Pyroscope => {
                let body = self.push_v1(id).into();
                post(server, "/push.v1.PusherService/Push", body).header(
                    "content-type",
                    HeaderValue::from_static("application/proto"),
                )
            }
            Protocol::Parca => {
                let body = self.write_raw().to_string().into_bytes().into();
                post(server, "/api/profiles/writeraw", body)
                    .header("content-type", HeaderValue::from_static("application/json"))
            }
        }
    }

    /// `{service_name="…",…}`.
    fn series(&self) -> String {
        let mut labels = Labels::default();
        for (name, value) in &self.labels {
            labels.set(name, value.as_str());
        }
        labels.selector()
    }

    /// `PushRequest`: one series of one profile.
    fn push_v1(&self, id: &str) -> Vec<u8> {
        let mut series = Vec::new();
        let name = [("__name__", self.name.as_str())];
        let labels = self
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in name.into_iter().chain(labels) {
            let mut pair = Vec::new();
            put(&mut pair, 1, name.as_bytes());
            put(&mut pair, 2, value.as_bytes());
            put(&mut series, 1, &pair);
        }
        let mut sample = Vec::with_capacity(self.body.len() + 64);
        put(&mut sample, 1, &self.body);
        put(&mut sample, 2, id.as_bytes());
        put(&mut series, 2, &sample);
        let mut request = Vec::with_capacity(series.len() + 8);
        put(&mut request, 1, &series);
        request
    }

    /// `WriteRawRequest`: one series of one profile, whose addresses are those of the process.
    fn write_raw(&self) -> Value {
        let name = ("__name__", self.name.as_str());
        let own = self
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let labels = std::iter::once(name).chain(own);
        let labels: Vec<Value> = labels
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        let profile = BASE64_STANDARD.encode(&self.body);
        json!({
            "series": [{"labels": {"labels": labels}, "samples": [{"rawProfile": profile}]}],
            "normalized": false,
        })
    }

    /// Everything but the body, for a record on disk.
    pub fn head(&self) -> Vec<u8> {
        json!({"protocol": self.protocol.word(), "name": self.name, "labels": self.labels})
            .to_string()
            .into_bytes()
    }

    /// From a record on disk; `None` when it is not one that this version writes.
    pub fn of(head: &[u8], body: Vec<u8>) -> Option<Parcel> {
        let head: Value = serde_json::from_slice(head).ok()?;
        let pair =
            |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
        Some(Parcel {
            protocol: Protocol::parse(head["protocol"].as_str()?)?,
            labels: head["labels"]
                .as_array()?
                .iter()
                .map(pair)
                .collect::<Option<_>>()?,
            name: head["name"].as_str()?.to_owned(),
            body: body.into(),
        })
    }
}

fn attributes(labels: &Labels) -> Vec<(&str, &str)> {
    let renamed = |(name, value)| {
        let found = ATTRIBUTES.iter().find(|(label, _)| *label == name);
        (found.map_or(name, |(_, attribute)| *attribute), value)
    };
    labels.iter().map(renamed).collect()
}

fn post(server: &Url, path: &str, body: Bytes) -> Call {
    Call::post(server.with_path_and_query(path, []), body)
}

/// A length-delimited field.
fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}
