//! Captures: several at once share one stream of samples.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pilotlight_profile::{FunctionId, LocationId, Mapping, MappingId, Profile, ProfileBuilder};
use pilotlight_unwind::Module;

use crate::aggregate::{Aggregate, Budget, Frame, FrameId};
use crate::engine::{self, Engine};
use crate::kind::Sampled;
use crate::stats::{Stats, stats};
use crate::{Error, symbols};

/// A capture in progress; dropped without [`Capture::finish`], it is thrown away.
///
/// ```no_run
/// let capture = pilotlight::Capture::begin()?;
/// // … what is to be measured …
/// let profile = capture.finish();
/// # Ok::<(), pilotlight::Error>(())
/// ```
#[derive(Debug)]
pub struct Capture {
    sampled: Sampled,
    engine: Arc<Engine>,
    id: Option<u64>,
    began: Instant,
    stats_at_start: Stats,
    began_at: SystemTime,
}

impl Capture {
    /// Begins a capture of CPU time; returns when all threads have timers.
    ///
    /// # Errors
    /// When pilotlight does not run in this process.
    pub fn begin() -> Result<Capture, Error> {
        Capture::of(Sampled::Cpu)
    }

    /// Begins a capture of what all threads do, whether they run or wait; returns when each was
    /// looked at once.
    ///
    /// # Errors
    /// When pilotlight does not run in this process.
    pub fn begin_wall() -> Result<Capture, Error> {
        Capture::of(Sampled::Wall)
    }

    /// Begins a capture of what threads wait for; returns when each was looked at once.
    ///
    /// # Errors
    /// When pilotlight does not run in this process.
    pub fn begin_off_cpu() -> Result<Capture, Error> {
        Capture::of(Sampled::OffCpu)
    }

    pub(crate) fn of(sampled: Sampled) -> Result<Capture, Error> {
        let engine = engine::current()?;
        let id = engine.begin(sampled)?;
        Ok(Capture {
            sampled,
            engine,
            id: Some(id),
            began: Instant::now(),
            stats_at_start: stats(),
            began_at: SystemTime::now(),
        })
    }

    /// Ends the capture: samples/count, and cpu, wall or offcpu/nanoseconds, with names and lines on every location.
    #[must_use]
    pub fn finish(mut self) -> Profile {
        let duration = self.began.elapsed();
        let aggregate = match self.id.take() {
            Some(id) => self.engine.end(id),
            None => Aggregate::new(Budget::default()),
        };
        symbols::on_own_thread(|| profile_of(&aggregate, &self, duration))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.engine.end(id);
        }
    }
}

/// Captures CPU time for `duration`, and returns the profile: samples/count and cpu/nanoseconds.
///
/// # Errors
/// When pilotlight does not run in this process.
pub fn capture(duration: Duration) -> Result<Profile, Error> {
    let capture = Capture::begin()?;
    std::thread::sleep(duration);
    Ok(capture.finish())
}

/// A function of pilotlight's that stands before libc's: where it is innermost, its caller is what the
/// program does.
pub(crate) fn is_own_leaf(name: &str) -> bool {
    name.starts_with("pilotlight::locks::")
}

/// Innermost frames that are not the program's.
fn own_leaves(aggregate: &Aggregate) -> HashSet<FrameId> {
    let mut leaves = HashSet::new();
    aggregate.each_stack(|frames, _, _, _| leaves.extend(frames.first()));
    leaves.retain(|&leaf| match aggregate.frames()[leaf as usize] {
        Frame::Code { module, address } => {
            let names = symbols::frames(&aggregate.modules()[module as usize], address);
            names.iter().any(|name| is_own_leaf(&name.function))
        }
        _ => false,
    });
    leaves
}

/// The function at an address of this process.
pub(crate) fn resolve_symbol(address: u64) -> Option<String> {
    let module = module_at(address)?;
    symbols::frames(&module, address)
        .into_iter()
        .next()
        .map(|frame| frame.function)
}

/// What is known of a place in the code.
#[derive(Default)]
pub(crate) struct Place {
    /// Inlined functions first; empty without a name.
    pub(crate) frames: Vec<symbols::Frame>,
    /// Path of the module, empty when there is none.
    pub(crate) module: String,
    /// Within the module.
    pub(crate) offset: u64,
}

/// The functions at an address of this process.
pub(crate) fn place_at(address: u64) -> Place {
    let Some(module) = module_at(address) else {
        return Place {
            offset: address,
            ..Place::default()
        };
    };
    Place {
        frames: symbols::frames(&module, address),
        module: String::from_utf8_lossy(&module.path).into_owned(),
        offset: address.wrapping_sub(module.base_avma),
    }
}

fn module_at(address: u64) -> Option<Arc<Module>> {
    let modules = crate::modules::current();
    let holds = |module: &&Arc<Module>| {
        let inside =
            |s: &pilotlight_unwind::Segment| s.executable && (s.start..s.limit).contains(&address);
        module.segments.iter().any(inside)
    };
    modules.iter().find(holds).cloned()
}

/// Names the columns; returns nanoseconds of one unit of weight where the first column counts those.
fn columns(builder: &mut ProfileBuilder, sampled: Sampled, engine: &Engine) -> Option<i64> {
    let (name, period, ns_each) = match sampled {
        Sampled::Cpu => {
            let period_ns = engine.period.as_nanos() as i64;
            ("cpu", period_ns, Some(period_ns))
        }
        Sampled::Wall => ("wall", engine.wall.period().as_nanos() as i64, None),
        Sampled::OffCpu | Sampled::Stacks => {
            ("offcpu", engine.wall.period().as_nanos() as i64, None)
        }
    };
    builder.sample_type("samples", "count");
    builder.sample_type(name, "nanoseconds");
    builder.period(name, "nanoseconds", period);
    ns_each
}

/// The rate that came out, beside the one that was asked for.
fn achieved(engine: &Engine, before: &Stats) -> String {
    let now = stats();
    let cpu_ns = now.sampled_cpu_ns - before.sampled_cpu_ns;
    format!(
        "pilotlight: {} Hz asked, {} Hz within the budget, {:.1} Hz achieved in {:.2} s of CPU \
         time; signals by perf {}, thread timers {}, process timer {}",
        engine.asked_hz(),
        now.held_hz,
        (now.cpu_samples - before.cpu_samples) as f64 * 1e9 / cpu_ns.max(1) as f64,
        cpu_ns as f64 / 1e9,
        now.by_perf - before.by_perf,
        now.by_timer - before.by_timer,
        now.by_process_timer - before.by_process_timer,
    )
}

fn profile_of(aggregate: &Aggregate, capture: &Capture, duration: Duration) -> Profile {
    let mut profile = ProfileBuilder::new();
    let ns_each = columns(&mut profile, capture.sampled, &capture.engine);
    let since_epoch = capture
        .began_at
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    profile.time(since_epoch.as_nanos() as i64, duration.as_nanos() as i64);
    if capture.sampled == Sampled::Cpu {
        profile.comment(&achieved(&capture.engine, &capture.stats_at_start));
    }
    fill(profile, aggregate, ns_each)
}

/// Puts all stacks in. Weights are nanoseconds, or so many of them each.
fn fill(mut builder: ProfileBuilder, aggregate: &Aggregate, ns_each: Option<i64>) -> Profile {
    let labels = aggregate.tags().label_sets(&mut builder);
    let mut names = Names::new(&mut builder, aggregate.modules());
    let locations: Vec<LocationId> = aggregate
        .frames()
        .iter()
        .map(|frame| names.location(frame))
        .collect();
    let mut stack = Vec::new();
    let own = own_leaves(aggregate);
    aggregate.each_stack(|frames, tag, samples, weight| {
        stack.clear();
        let frames = match frames {
            [leaf, callers @ ..] if !callers.is_empty() && own.contains(leaf) => callers,
            _ => frames,
        };
        stack.extend(frames.iter().map(|&frame| locations[frame as usize]));
        let stack = builder.stack(&stack);
        let values = match ns_each {
            Some(ns) => [weight as i64, weight as i64 * ns],
            None => [samples as i64, weight as i64],
        };
        builder.sample(stack, labels[tag as usize], &values);
    });
    builder.finish()
}

/// Turns frames into locations with names and mappings.
pub(crate) struct Names<'a> {
    builder: &'a mut ProfileBuilder,
    modules: &'a [Arc<Module>],
    /// By module and segment.
    mappings: HashMap<(u32, usize), MappingId>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(builder: &'a mut ProfileBuilder, modules: &'a [Arc<Module>]) -> Names<'a> {
        let mut names = Names {
            builder,
            modules,
            mappings: HashMap::new(),
        };
        // Readers take the first mapping for the program itself.
        let exe = std::env::current_exe().unwrap_or_default();
        let own = modules
            .iter()
            .position(|m| m.path == exe.as_os_str().as_encoded_bytes());
        if let Some(own) = own {
            let code = modules[own]
                .segments
                .iter()
                .position(|segment| segment.executable);
            names.mapping(own as u32, code.unwrap_or(0));
        }
        names
    }

    pub(crate) fn location(&mut self, frame: &Frame) -> LocationId {
        match *frame {
            Frame::Code { module, address } => self.code(module, address),
            Frame::Unknown { address } => self.named("[unknown]", address),
            Frame::Truncated => self.named("[truncated]", 0),
            Frame::BetweenTicks => self.named("[ended between two ticks]", 0),
            Frame::Unseen => self.named("[threads that ended unsampled]", 0),
            Frame::Brief => self.named("[ran too briefly to be sampled]", 0),
            Frame::Dropped => self.named("[dropped samples]", 0),
            Frame::Blocked => self.named("[threads that block SIGPROF]", 0),
            Frame::OverBudget => self.named("[over the memory budget]", 0),
        }
    }

    fn code(&mut self, id: u32, address: u64) -> LocationId {
        let module = &self.modules[id as usize];
        let holds = |s: &pilotlight_unwind::Segment| (s.start..s.limit).contains(&address);
        let segment = module.segments.iter().position(holds).unwrap_or(0);
        let mapping = self.mapping(id, segment);
        let frames = symbols::frames(module, address);
        let mut lines: Vec<(FunctionId, i64)> = frames
            .iter()
            .map(|frame| (self.function(frame), frame.line.unwrap_or(0).into()))
            .collect();
        if lines.is_empty() && symbols::is_on() {
            let path = String::from_utf8_lossy(&module.path);
            let binary = path.rsplit('/').next().unwrap_or(&path);
            let offset = address.wrapping_sub(module.base_avma);
            lines.push((self.plain(&format!("{binary}+{offset:#x}")), 0));
        }
        self.builder.location(Some(mapping), address, &lines)
    }

    fn mapping(&mut self, id: u32, segment: usize) -> MappingId {
        if let Some(&mapping) = self.mappings.get(&(id, segment)) {
            return mapping;
        }
        let module = &self.modules[id as usize];
        let build_id: String = module
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let place = module.segments.get(segment);
        let mapping = Mapping {
            start: place.map_or(module.start_avma, |segment| segment.start),
            limit: place.map_or(module.end_avma, |segment| segment.limit),
            offset: place.map_or(0, |segment| segment.file_offset),
            file: self.builder.string(&module.path),
            build_id: self.builder.string(build_id.as_bytes()),
            // Every location gets a line then; what has no name gets the binary and the offset.
            // Otherwise the reader is to look for names.
            has_functions: symbols::is_on(),
            ..Mapping::default()
        };
        let mapping = self.builder.mapping(mapping);
        self.mappings.insert((id, segment), mapping);
        mapping
    }

    fn function(&mut self, frame: &symbols::Frame) -> FunctionId {
        let name = self.builder.string(frame.function.as_bytes());
        let system_name = self.builder.string(frame.system_name.as_bytes());
        let file = self
            .builder
            .string(frame.file.as_deref().unwrap_or_default().as_bytes());
        self.builder.function(name, system_name, file, 0)
    }

    fn plain(&mut self, name: &str) -> FunctionId {
        let name = self.builder.string(name.as_bytes());
        self.builder.function(name, name, Default::default(), 0)
    }

    /// A location that is no place in code.
    pub(crate) fn named(&mut self, name: &str, address: u64) -> LocationId {
        let function = self.plain(name);
        self.builder.location(None, address, &[(function, 0)])
    }
}
