//! From the object to attached programs.

use crate::{Error, Options, layout, sys};
use aya::maps::{Map, MapData, RingBuf};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy};
use aya::programs::{BtfTracePoint, PerfEvent};
use aya::{Btf, Ebpf, EbpfLoader};
use std::os::fd::{AsFd, OwnedFd};

/// Built by `cargo xtask bpf` from `c/`, byte for byte.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../objects/agent.bpf.o"));

/// Loaded programs and the descriptors of their maps.
pub struct Loaded {
    /// Keeps programs and links alive.
    pub ebpf: Ebpf,
    pub shards: OwnedFd,
    pub files: OwnedFd,
    pub rules: OwnedFd,
    pub processes: OwnedFd,
    pub runtimes: OwnedFd,
    pub control: OwnedFd,
    pub counters: OwnedFd,
    /// Even, odd.
    pub counts: [OwnedFd; 2],
    pub seen: OwnedFd,
    pub ring: RingBuf<MapData>,
}

impl Loaded {
    /// Verifies and loads; nothing runs before [`Loaded::attach`].
    pub fn new(options: &Options) -> Result<Loaded, Error> {
        // Before all else: aya makes maps to find out what the kernel can.
        sys::raise_locked_memory();
        let btf = Btf::from_sys_fs()?;
        let mut ebpf = load_object(options, &btf)?;
        let loaded = Loaded {
            shards: map(&ebpf, "shards")?,
            files: map(&ebpf, "files")?,
            rules: map(&ebpf, "rules")?,
            processes: map(&ebpf, "processes")?,
            runtimes: map(&ebpf, "runtimes")?,
            control: map(&ebpf, "control")?,
            counters: map(&ebpf, "counters")?,
            counts: [map(&ebpf, "counts_even")?, map(&ebpf, "counts_odd")?],
            seen: map(&ebpf, "seen")?,
            ring: ring(&mut ebpf)?,
            ebpf,
        };
        loaded.with_programs(options, &btf)
    }

    fn with_programs(mut self, options: &Options, btf: &Btf) -> Result<Loaded, Error> {
        self.tick()?.load().map_err(program("on_tick"))?;
        for (name, tracepoint) in tracepoints(options) {
            let switch: &mut BtfTracePoint = self.program(name)?;
            switch.load(tracepoint, btf).map_err(program(name))?;
        }
        Ok(self)
    }

    /// Begins sampling on every CPU that is on.
    pub fn attach(&mut self, options: &Options) -> Result<(), Error> {
        let event = PerfEventConfig::Pmu {
            pmu_type: options.event.kind,
            config: options.event.config,
        };
        let period = SamplePolicy::Period(options.event.period);
        let cpus =
            aya::util::online_cpus().map_err(|(what, e)| Error::Cpus(format!("{what}: {e}")))?;
        for cpu in cpus {
            let scope = PerfEventScope::AllProcessesOneCpu { cpu };
            let tick = self.tick()?;
            tick.attach(event, scope, period, false)
                .map_err(program("on_tick"))?;
        }
        for (name, _) in tracepoints(options) {
            let switch: &mut BtfTracePoint = self.program(name)?;
            switch.attach().map_err(program(name))?;
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<&mut PerfEvent, Error> {
        self.program("on_tick")
    }

    fn program<'a, P>(&'a mut self, name: &'static str) -> Result<&'a mut P, Error>
    where
        &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = aya::programs::ProgramError>,
    {
        let found = self.ebpf.program_mut(name).ok_or(Error::Missing(name))?;
        found.try_into().map_err(program(name))
    }
}

fn tracepoints(options: &Options) -> impl Iterator<Item = (&'static str, &'static str)> {
    let always = [
        ("on_exec", "sched_process_exec"),
        ("on_exit", "sched_process_exit"),
    ];
    let switch = options
        .off_cpu
        .is_some()
        .then_some(("on_switch", "sched_switch"));
    always.into_iter().chain(switch)
}

fn program(program: &'static str) -> impl Fn(aya::programs::ProgramError) -> Error {
    move |source| Error::Program { program, source }
}

fn load_object(options: &Options, btf: &Btf) -> Result<Ebpf, Error> {
    let off_cpu = options.off_cpu.unwrap_or_default();
    let chance = chance_of(off_cpu.chance);
    let waits = if options.off_cpu.is_some() {
        layout::COUNTS as u32
    } else {
        1
    };
    let level = crate::namespace::own_pid_level();
    let flag = |on: bool| u32::from(on);
    let loaded = EbpfLoader::new()
        .btf(Some(btf))
        .override_global("pid_level", &level, true)
        .override_global("only_pid", &options.only_pid.unwrap_or(0), true)
        .override_global("with_idle", &flag(options.idle), true)
        .override_global("with_kernel", &flag(options.kernel), true)
        .override_global("by_thread", &flag(options.by_thread), true)
        .override_global("verify_chance", &chance_of(options.verify), true)
        .override_global("offcpu_min_ns", &off_cpu.min_ns, true)
        .override_global("offcpu_chance", &chance, true)
        .map_max_entries("waits", waits)
        .map_max_entries("ring", ring_bytes())
        .map_max_entries("recents", recent_rules())
        .load(&OBJECT.0)?;
    Ok(loaded)
}

/// A share out of 2^32.
fn chance_of(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32
}

fn recent_rules() -> u32 {
    let cpus = aya::util::nr_cpus().unwrap_or(1) as u32;
    cpus.saturating_mul(layout::RECENT_RULES)
}

/// One ring, as large as there are CPUs to write to it: stacks that are new and raw samples only.
fn ring_bytes() -> u32 {
    let cpus = aya::util::nr_cpus().unwrap_or(1) as u32;
    // Up to 16 KiB a raw sample: a hundred new processes while the reader has no CPU.
    (cpus.saturating_mul(2 << 20))
        .next_power_of_two()
        .clamp(4 << 20, 1 << 26)
}

fn map(ebpf: &Ebpf, name: &'static str) -> Result<OwnedFd, Error> {
    let data = match ebpf.map(name) {
        Some(
            Map::Array(d)
            | Map::ArrayOfMaps(d)
            | Map::HashMap(d)
            | Map::LruHashMap(d)
            | Map::PerCpuArray(d),
        ) => d,
        _ => return Err(Error::Missing(name)),
    };
    data.fd()
        .as_fd()
        .try_clone_to_owned()
        .map_err(Error::map(name))
}

fn ring(ebpf: &mut Ebpf) -> Result<RingBuf<MapData>, Error> {
    let ring = ebpf.take_map("ring").ok_or(Error::Missing("ring"))?;
    RingBuf::try_from(ring).map_err(|_| Error::Missing("ring"))
}
