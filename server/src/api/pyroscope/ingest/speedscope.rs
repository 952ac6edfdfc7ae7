//! [speedscope](https://www.speedscope.app/file-format-schema.json)'s JSON, `evented` and `sampled`.

use pilotlight_profile::{LocationId, Profile};
use serde::Deserialize;

use super::kind::{self, Kind};
use super::stacks::{Numbers, Stacks};

#[derive(Deserialize)]
struct File {
    shared: Shared,
    profiles: Vec<Part>,
}

#[derive(Deserialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    name: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<f64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Part {
    Evented {
        unit: String,
        events: Vec<Event>,
    },
    Sampled {
        unit: String,
        samples: Vec<Vec<usize>>,
        weights: Vec<f64>,
    },
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    what: What,
    at: f64,
    frame: usize,
}

#[derive(Deserialize, PartialEq, Eq)]
enum What {
    #[serde(rename = "O")]
    Open,
    #[serde(rename = "C")]
    Close,
}

/// Nanoseconds of a unit of time; `None` for counts and bytes.
fn ns(unit: &str) -> Result<Option<f64>, String> {
    Ok(match unit {
        "none" | "bytes" => None,
        "nanoseconds" => Some(1.0),
        "microseconds" => Some(1e3),
        "milliseconds" => Some(1e6),
        "seconds" => Some(1e9),
        other => return Err(format!("unit {other:?} is none of speedscope's")),
    })
}

/// All profiles of the file as one; they must have one unit. The kind comes from that where the
/// request does not say it.
///
/// # Errors
/// When it is no such file, or of a limit.
pub fn profile(
    text: &[u8],
    told: Option<Kind>,
    numbers: Numbers,
) -> Result<(Kind, Profile), String> {
    let file: File = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut units = file.profiles.iter().map(|part| match part {
        Part::Evented { unit, .. } | Part::Sampled { unit, .. } => unit.as_str(),
    });
    let unit = units.next().ok_or("the file has no profiles")?.to_owned();
    if let Some(other) = units.find(|other| *other != unit) {
        return Err(format!("profiles of {unit} and of {other} in one file"));
    }
    let scale = ns(&unit)?;
    let kind = told.unwrap_or(match &*unit {
        "bytes" => kind::memory(("alloc_space", "bytes")),
        _ => kind::CPU,
    });
    let mut out = Stacks::new(&Numbers { kind, ..numbers });
    let frames = file.shared.frames.iter().map(|frame| {
        let file = frame.file.as_deref().unwrap_or("");
        out.frame(
            frame.name.as_bytes(),
            file.as_bytes(),
            frame.line.unwrap_or(0.0) as i64,
        )
    });
    let frames: Vec<LocationId> = frames.collect();
    let mut all = Walk {
        out,
        frames,
        scale,
        path: Vec::new(),
    };
    for part in &file.profiles {
        match part {
            Part::Evented { events, .. } => all.evented(events)?,
            Part::Sampled {
                samples, weights, ..
            } => all.sampled(samples, weights)?,
        }
    }
    Ok((kind, all.out.finish()))
}

struct Walk<'a> {
    out: Stacks<'a>,
    frames: Vec<LocationId>,
    scale: Option<f64>,
    path: Vec<LocationId>,
}

impl Walk<'_> {
    fn frame(&self, index: usize) -> Result<LocationId, String> {
        let known = self.frames.get(index).copied();
        known.ok_or_else(|| format!("frame {index} of {}", self.frames.len()))
    }

    fn add(&mut self, value: f64) -> Result<(), String> {
        if self.path.is_empty() || value <= 0.0 {
            return Ok(());
        }
        match self.scale {
            Some(scale) => self.out.add_ns(&self.path, (value * scale).round() as i64),
            None => self.out.add(&self.path, value.round() as i64),
        }
    }

    fn sampled(&mut self, samples: &[Vec<usize>], weights: &[f64]) -> Result<(), String> {
        if samples.len() != weights.len() {
            let (samples, weights) = (samples.len(), weights.len());
            return Err(format!("{samples} samples with {weights} weights"));
        }
        for (stack, &weight) in samples.iter().zip(weights) {
            self.path.clear();
            for &index in stack {
                self.path.push(self.frame(index)?);
            }
            self.add(weight)?;
        }
        Ok(())
    }

    /// What passes between two events belongs to the stack that is open then.
    fn evented(&mut self, events: &[Event]) -> Result<(), String> {
        self.path.clear();
        let mut last = None;
        for (number, event) in events.iter().enumerate() {
            let passed = event.at - last.unwrap_or(event.at);
            if !passed.is_finite() || passed < 0.0 {
                return Err(format!("event {number} is before the one before it"));
            }
            self.add(passed)?;
            last = Some(event.at);
            let frame = self.frame(event.frame)?;
            if event.what == What::Open {
                self.path.push(frame);
            } else if self.path.pop() != Some(frame) {
                return Err(format!("event {number} closes a frame that is not on top"));
            }
        }
        match self.path.len() {
            0 => Ok(()),
            open => Err(format!("{open} frames are never closed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stacks::PERIOD_NS;
    use super::*;
    use pilotlight_profile::{Limits, to_collapsed};

    fn read(text: &str, told: Option<Kind>) -> Result<(Kind, String), String> {
        let limits = Limits::default();
        let numbers = Numbers {
            kind: kind::CPU,
            period_ns: PERIOD_NS,
            limits: &limits,
        };
        let (kind, profile) = profile(text.as_bytes(), told, numbers)?;
        let mut out = Vec::new();
        let last = profile.sample_types.len() - 1;
        to_collapsed(&profile, last, &mut out).unwrap();
        Ok((kind, String::from_utf8(out).unwrap()))
    }

    const FRAMES: &str =
        r#""shared":{"frames":[{"name":"a"},{"name":"b","file":"b.js","line":3}]}"#;

    #[test]
    fn time_between_events_belongs_to_the_open_stack() {
        let text = format!(
            r#"{{{FRAMES},"profiles":[{{"type":"evented","name":"t","unit":"milliseconds",
            "startValue":0,"endValue":9,"events":[{{"type":"O","frame":0,"at":0}},
            {{"type":"O","frame":1,"at":2}},{{"type":"C","frame":1,"at":5}},
            {{"type":"C","frame":0,"at":9}}]}}]}}"#
        );
        let (kind, stacks) = read(&text, None).unwrap();
        assert_eq!(kind, kind::CPU);
        assert_eq!(stacks, "a 6000000\na;b 3000000\n");
    }

    #[test]
    fn weights_of_samples_count_in_their_unit() {
        let part = |unit| {
            format!(
                r#"{{{FRAMES},"profiles":[{{"type":"sampled","name":"t","unit":"{unit}",
                "startValue":0,"endValue":9,"samples":[[0,1],[0],[0,1]],"weights":[1,2,3]}}]}}"#
            )
        };
        let (kind, stacks) = read(&part("bytes"), None).unwrap();
        assert_eq!(kind.value, ("alloc_space", "bytes"));
        assert_eq!(stacks, "a 2\na;b 4\n");
        // 100 samples a second.
        let (_, stacks) = read(&part("none"), None).unwrap();
        assert_eq!(stacks, "a 20000000\na;b 40000000\n");
        let (kind, stacks) = read(&part("seconds"), Some(kind::WALL)).unwrap();
        assert_eq!(
            (kind, &*stacks),
            (kind::WALL, "a 2000000000\na;b 4000000000\n")
        );
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let evented = |events: &str| {
            format!(
                r#"{{{FRAMES},"profiles":[{{"type":"evented","unit":"none","events":[{events}]}}]}}"#
            )
        };
        let open = r#"{"type":"O","frame":0,"at":5}"#;
        let cases = [
            (evented(open), "1 frames are never closed"),
            (
                evented(&format!(r#"{open},{{"type":"C","frame":1,"at":6}}"#)),
                "event 1 closes a frame that is not on top",
            ),
            (
                evented(&format!(r#"{open},{{"type":"C","frame":0,"at":4}}"#)),
                "event 1 is before the one before it",
            ),
            (evented(r#"{"type":"O","frame":7,"at":5}"#), "frame 7 of 2"),
            ("{}".to_owned(), "missing field"),
            (
                r#"{"shared":{"frames":[]},"profiles":[]}"#.to_owned(),
                "the file has no profiles",
            ),
        ];
        for (text, wanted) in cases {
            let error = read(&text, None).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
