//! What of a chunk's events counts, and as what.

use std::collections::HashMap;

use pilotlight_profile::{Limits, LocationId, Profile};

use super::super::kind::{self, Kind};
use super::super::stacks::{Numbers, PERIOD_NS, Stacks};
use super::labels::Labels;
use super::read::{Chunk, Value};
use crate::query::time;

/// An event that counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Execution,
    Wall,
    InNewTlab,
    OutsideTlab,
    Sampled,
    Live,
    Monitor,
    Park,
}

fn event(name: &str) -> Option<Event> {
    Some(match name {
        "jdk.ExecutionSample" | "jdk.NativeMethodSample" => Event::Execution,
        "profiler.WallClockSample" => Event::Wall,
        "jdk.ObjectAllocationInNewTLAB" => Event::InNewTlab,
        "jdk.ObjectAllocationOutsideTLAB" => Event::OutsideTlab,
        "jdk.ObjectAllocationSample" => Event::Sampled,
        "profiler.LiveObject" => Event::Live,
        "jdk.JavaMonitorEnter" => Event::Monitor,
        "jdk.ThreadPark" => Event::Park,
        _ => return None,
    })
}

const IN_NEW: [Kind; 2] = [
    kind::memory(("alloc_in_new_tlab_objects", "count")),
    kind::memory(("alloc_in_new_tlab_bytes", "bytes")),
];
const OUTSIDE: [Kind; 2] = [
    kind::memory(("alloc_outside_tlab_objects", "count")),
    kind::memory(("alloc_outside_tlab_bytes", "bytes")),
];
const SAMPLED: [Kind; 2] = [
    kind::memory(("alloc_sample_objects", "count")),
    kind::memory(("alloc_sample_bytes", "bytes")),
];
const LIVE: [Kind; 2] = [
    kind::memory(("live_objects", "count")),
    kind::memory(("live_bytes", "bytes")),
];

/// Profiles in the making.
pub struct Taken<'a> {
    /// As the sender says, else as the recording does.
    period_ns: Option<i64>,
    /// Between two samples by the clock, where both kinds are recorded.
    wall_ns: Option<i64>,
    labels: &'a Labels,
    limits: &'a Limits,
    made: Vec<(Kind, Stacks<'a>)>,
    /// Samples of `jdk.ExecutionSample` are by the clock: async-profiler's `event=wall`.
    is_wall: bool,
    start_ns: i64,
    duration_ns: i64,
}

impl<'a> Taken<'a> {
    /// Nothing yet.
    pub fn new(sample_rate: Option<i64>, labels: &'a Labels, limits: &'a Limits) -> Self {
        Taken {
            period_ns: sample_rate.map(|rate| 1_000_000_000 / rate.max(1)),
            wall_ns: None,
            labels,
            limits,
            made: Vec::new(),
            is_wall: false,
            start_ns: 0,
            duration_ns: 0,
        }
    }

    /// Takes the events of a chunk.
    ///
    /// # Errors
    /// With the place, or of a limit.
    pub fn all(&mut self, mut chunk: Chunk) -> Result<(), String> {
        (self.start_ns, self.duration_ns) = (chunk.start_ns, chunk.duration_ns);
        let mut wanted = HashMap::new();
        let mut setting = None;
        for (&id, ty) in &chunk.types {
            if let Some(event) = event(&ty.name) {
                wanted.insert(id, event);
            }
            if ty.name == "jdk.ActiveSetting" {
                setting = Some(id);
            }
        }
        chunk.events(|chunk, ty, mut bytes| {
            if setting == Some(ty) {
                let value = chunk.value(&mut bytes, ty, 0)?;
                let of = chunk
                    .number(ty, &value, "id")
                    .and_then(|id| wanted.get(&id));
                let text = |name| chunk.text(ty, &value, name).unwrap_or("");
                self.setting(of.copied(), text("name"), text("value"));
            }
            Ok(())
        })?;
        let mut paths: HashMap<(i64, usize), Vec<LocationId>> = HashMap::new();
        chunk.events(|chunk, ty, mut bytes| {
            let Some(&event) = wanted.get(&ty) else {
                return Ok(());
            };
            let value = chunk.value(&mut bytes, ty, 0)?;
            self.one(chunk, event, (ty, &value), &mut paths)
        })
    }

    fn setting(&mut self, of: Option<Event>, name: &str, value: &str) {
        let period_ns = match name {
            "event" => {
                self.is_wall |= value == "wall";
                None
            }
            // The JDK's, and async-profiler's in nanoseconds.
            "period" => time::duration(&value.replace(' ', "")),
            "interval" => value.parse().ok(),
            // Beside `event=cpu` it has an interval of its own.
            "wall" => {
                self.wall_ns = value.parse().ok().filter(|&ns| ns > 0).or(self.wall_ns);
                None
            }
            _ => None,
        };
        let period_ns = period_ns.filter(|&ns| ns > 0 && of == Some(Event::Execution));
        self.period_ns = self.period_ns.or(period_ns);
    }

    fn one(
        &mut self,
        chunk: &Chunk,
        event: Event,
        (ty, value): (i64, &Value),
        paths: &mut HashMap<(i64, usize), Vec<LocationId>>,
    ) -> Result<(), String> {
        let number = |name| chunk.number(ty, value, name);
        let delay_ns = || {
            let ticks = i128::from(number("duration").unwrap_or(0).max(0));
            (ticks * 1_000_000_000 / i128::from(chunk.ticks_per_second)) as i64
        };
        let runs = || match chunk.text(ty, value, "state") {
            Some(state) => matches!(state, "STATE_RUNNABLE" | "STATE_DEFAULT"),
            None => true,
        };
        let size = |name| number(name).unwrap_or(0);
        let counts: [Option<(Kind, i64)>; 2] = match event {
            Event::Execution if self.is_wall => {
                [Some((kind::WALL, 1)), runs().then_some((kind::CPU, 1))]
            }
            Event::Execution => [runs().then_some((kind::CPU, 1)), None],
            // One event may stand for several equal samples.
            Event::Wall => [Some((kind::WALL, number("samples").unwrap_or(1))), None],
            Event::InNewTlab => pair(IN_NEW, size("tlabSize")),
            Event::OutsideTlab => pair(OUTSIDE, size("allocationSize")),
            Event::Sampled => pair(SAMPLED, size("weight")),
            Event::Live => pair(LIVE, size("allocationSize")),
            Event::Monitor => [
                Some((kind::MUTEX_COUNT, 1)),
                Some((kind::MUTEX_DELAY, delay_ns())),
            ],
            Event::Park => [
                Some((kind::BLOCK_COUNT, 1)),
                Some((kind::BLOCK_DELAY, delay_ns())),
            ],
        };
        let Some(stack) = stack_number(chunk, ty, value) else {
            return Ok(());
        };
        let labels = self.labels.of(number("contextId").unwrap_or(0));
        for (kind, count) in counts.into_iter().flatten() {
            let at = self.stacks(
                kind,
                (event == Event::Wall).then_some(self.wall_ns).flatten(),
            );
            let (_, stacks) = &mut self.made[at];
            let path = match paths.entry((stack, at)) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(new) => {
                    new.insert(frames(chunk, ty, value, stacks))
                }
            };
            let set = stacks.labels(&labels);
            stacks.add_labelled(path, set, count)?;
        }
        Ok(())
    }

    fn stacks(&mut self, kind: Kind, own_ns: Option<i64>) -> usize {
        if let Some(at) = self.made.iter().position(|(made, _)| *made == kind) {
            return at;
        }
        let numbers = Numbers {
            kind,
            period_ns: own_ns.or(self.period_ns).unwrap_or(PERIOD_NS),
            limits: self.limits,
        };
        self.made.push((kind, Stacks::new(&numbers)));
        self.made.len() - 1
    }

    /// What was made.
    pub fn finish(self) -> Vec<(Kind, Profile)> {
        let done = self.made.into_iter().map(|(kind, stacks)| {
            let mut profile = stacks.finish();
            (profile.time_ns, profile.duration_ns) = (self.start_ns, self.duration_ns);
            (kind, profile)
        });
        done.collect()
    }
}

const fn pair([objects, bytes]: [Kind; 2], size: i64) -> [Option<(Kind, i64)>; 2] {
    [Some((objects, 1)), Some((bytes, size))]
}

/// Under which number the stack of an event stands.
fn stack_number(chunk: &Chunk, ty: i64, event: &Value) -> Option<i64> {
    let Value::Fields(values) = event else {
        return None;
    };
    let fields = &chunk.types.get(&ty)?.fields;
    let at = fields.iter().position(|field| field.name == "stackTrace")?;
    match values.get(at)? {
        Value::Pooled(number) if *number != 0 => Some(*number),
        _ => None,
    }
}

/// Frames of an event's stack, root first.
fn frames(chunk: &Chunk, ty: i64, event: &Value, out: &mut Stacks) -> Vec<LocationId> {
    let Some((stack_type, stack)) = chunk.get(ty, event, "stackTrace") else {
        return Vec::new();
    };
    let Some((frame_type, Value::List(list))) = chunk.get(stack_type, stack, "frames") else {
        return Vec::new();
    };
    let mut path: Vec<LocationId> = list
        .iter()
        .map(|frame| {
            let line = chunk.number(frame_type, frame, "lineNumber").unwrap_or(0);
            out.frame(method(chunk, frame_type, frame).as_bytes(), b"", line)
        })
        .collect();
    path.reverse();
    path
}

/// `java/util/HashMap.put`; a frame of native code has no class.
fn method(chunk: &Chunk, ty: i64, frame: &Value) -> String {
    let Some((ty, method)) = chunk.get(ty, frame, "method") else {
        return "(unknown)".to_owned();
    };
    let name = chunk.text(ty, method, "name").unwrap_or("(unknown)");
    let class = chunk.get(ty, method, "type");
    let class = class.and_then(|(ty, class)| chunk.text(ty, class, "name"));
    match class.filter(|class| !class.is_empty()) {
        Some(class) => format!("{class}.{name}"),
        None => name.to_owned(),
    }
}
