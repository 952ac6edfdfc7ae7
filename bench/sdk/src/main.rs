//! pilotlight under the workloads of `pilotlight-bench-kit`.

use std::{error::Error, process::ExitCode, thread, time::Duration};

use pilotlight::{Capture, Config, Guard, Profile};
use pilotlight_bench_kit::{Report, Sender, Subject, run_subject, send_queued_to_self};

/// The background thread drains the ring every 20 ms.
const DRAIN: Duration = Duration::from_millis(45);

struct Pilotlight {
    /// All begun at the start, so that each report covers everything.
    captures: Vec<Capture>,
    _guard: Guard,
}

impl Subject for Pilotlight {
    fn start(frequency_hz: u32, reports: usize) -> Result<Self, Box<dyn Error>> {
        let guard = Config::new("bench")
            .no_listener()
            .frequency_hz(frequency_hz)
            // 12,000 stacks without a common part are more than the default keeps.
            .budget_bytes(64 << 20)
            .start()?;
        let captures = (0..reports)
            .map(|_| Capture::begin())
            .collect::<Result<_, _>>()?;
        Ok(Pilotlight {
            captures,
            _guard: guard,
        })
    }

    fn signal(&self) -> i32 {
        libc::SIGPROF
    }

    fn sender(&self) -> Sender {
        let value = pilotlight::testing::signal_value() as usize;
        Box::new(move || send_queued_to_self(libc::SIGPROF, value))
    }

    fn settle(&self) {
        thread::sleep(DRAIN);
    }

    fn report(&mut self) -> Result<Report, Box<dyn Error>> {
        let capture = self
            .captures
            .pop()
            .ok_or("more reports than were announced")?;
        let profile = capture.finish();
        let bytes = profile.to_pprof().len() as u64;
        Ok(Report {
            bytes,
            stacks: profile.samples.stack.len() as u64,
            samples: total(&profile, "samples")?,
            deepest: deepest(&profile),
            cpu_ns: total(&profile, "cpu")?,
            lost: Some(pilotlight::stats().dropped()),
        })
    }
}

fn total(profile: &Profile, column: &str) -> Result<u64, Box<dyn Error>> {
    let index = profile
        .value_index(Some(column))
        .ok_or("a column is missing")?;
    Ok(u64::try_from(profile.total(index))?)
}

fn deepest(profile: &Profile) -> u64 {
    let lengths = profile
        .stacks
        .offsets
        .windows(2)
        .map(|pair| pair[1] - pair[0]);
    lengths.max().unwrap_or(0).into()
}

fn main() -> ExitCode {
    run_subject::<Pilotlight>()
}
