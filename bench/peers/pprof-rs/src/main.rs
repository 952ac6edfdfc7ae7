//! pprof-rs under the workloads of `pilotlight-bench-kit`.

use std::{error::Error, process::ExitCode};

use pilotlight_bench_kit::{Report, Sender, Subject, run_subject, send_to_self};
use pprof::{ProfilerGuard, ProfilerGuardBuilder, protos::Message};

const SIGPROF: i32 = 27;

struct PprofRs {
    guard: ProfilerGuard<'static>,
    period_ns: u64,
}

impl Subject for PprofRs {
    fn start(frequency_hz: u32, _reports: usize) -> Result<Self, Box<dyn Error>> {
        let frequency = i32::try_from(frequency_hz)?;
        let guard = ProfilerGuardBuilder::default()
            .frequency(frequency)
            .build()?;
        Ok(PprofRs {
            guard,
            period_ns: 1_000_000_000 / u64::from(frequency_hz),
        })
    }

    fn signal(&self) -> i32 {
        SIGPROF
    }

    fn sender(&self) -> Sender {
        Box::new(|| send_to_self(SIGPROF))
    }

    fn settle(&self) {}

    fn report(&mut self) -> Result<Report, Box<dyn Error>> {
        let report = self.guard.report().build()?;
        let stacks = report.data.len() as u64;
        let samples = report.data.values().map(|n| *n as u64).sum::<u64>();
        let frames = report
            .data
            .keys()
            .map(|key| key.frames.len() as u64)
            .max()
            .unwrap_or(0);
        let pprof = report.pprof()?.encode_to_vec();
        Ok(Report {
            bytes: pprof.len() as u64,
            stacks,
            samples,
            deepest: frames,
            cpu_ns: samples * self.period_ns,
            lost: None,
        })
    }
}

fn main() -> ExitCode {
    run_subject::<PprofRs>()
}
