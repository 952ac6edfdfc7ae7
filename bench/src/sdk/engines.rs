//! CPU time that is hard to see: bursts and short threads; and the budget with 64 busy threads.

use std::path::Path;

use super::{Subjects, print};
use crate::{
    child::{Outcome, readings},
    figure::{Goal, Short},
};

impl Subjects {
    pub(super) fn engines(&self) -> Outcome<()> {
        for (load, least) in [("bursts", 0.97), ("short", 0.98)] {
            // A few hundred samples are off by some percent by chance alone.
            self.share(load, 97, Goal::None)?;
            self.share(load, 1_000, Goal::AtLeast(least))?;
        }
        self.budget()
    }

    /// CPU time in the profile over what the kernel charged.
    fn share(&self, load: &str, hz: u32, goal: Goal) -> Outcome<()> {
        let mut shares = Vec::new();
        for subject in &self.0 {
            let run = readings(&subject.program, &[load, &hz.to_string()])?;
            shares.push(run.get("claimed_ns")? / run.get("spent_ns")?);
        }
        let peer = self.peers(|at| Short(shares[at]).to_string());
        let name = format!("{load}_{hz}hz_seen");
        print(&name, shares[0], "", goal, &peer);
        Ok(())
    }

    /// 64 busy threads, 10 kHz asked for, half a percent allowed.
    fn budget(&self) -> Outcome<()> {
        let program = self.0[0].program.to_string_lossy().into_owned();
        let args = [
            "PILOTLIGHT_BUDGET_CPU_PERCENT=0.5",
            &program,
            "overhead",
            "10000",
            "64",
            "60",
            "40",
        ];
        let run = readings(Path::new("/usr/bin/env"), &args)?;
        let peer = format!(
            "allowed:0.5%,standard_error:{}%,cpu_time_seen:{}",
            Short(run.get("standard_error_percent")?),
            Short(run.get("seen")?)
        );
        print(
            "budget_64threads_10khz_overhead",
            run.get("overhead_percent")?,
            "%",
            Goal::AtMost(0.6),
            &peer,
        );
        Ok(())
    }
}
