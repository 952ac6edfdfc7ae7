//! `bench sdk`: our SDK beside pprof-rs with each of its unwinders, the same workloads in processes
//! of their own (`pilotlight-bench-kit`'s `subject`).

mod engines;
mod heap;
mod locks;
mod tasks;
mod wall;

use std::path::PathBuf;

use crate::{
    child::{CargoBuild, Outcome, Readings, readings},
    figure::{Figure, Goal, Short},
};

const PASSES: usize = 5;

/// A profiler's measuring program.
struct Subject {
    name: &'static str,
    program: PathBuf,
}

/// Ours first; then the peers.
struct Subjects(Vec<Subject>);

/// Prints the figures of the part, or of the named `groups` of it.
pub fn run(groups: &[&str]) -> Outcome<()> {
    const ALL: [&str; 6] = [
        "handler", "start", "report", "overhead", "accuracy", "engines",
    ];
    /// Measured by programs of their own.
    const APART: [Apart; 4] = [
        ("await", tasks::run),
        ("heap", heap::run),
        ("wall", wall::run),
        ("locks", locks::run),
    ];
    type Apart = (&'static str, fn() -> Outcome<()>);
    let is_known =
        |group: &str| ALL.contains(&group) || APART.iter().any(|(name, _)| *name == group);
    if let Some(unknown) = groups.iter().find(|group| !is_known(group)) {
        return Err(format!(
            "no group {unknown:?} in {ALL:?} and {:?}",
            APART.map(|a| a.0)
        )
        .into());
    }
    for (_, run) in APART
        .iter()
        .filter(|(name, _)| groups.is_empty() || groups.contains(name))
    {
        run()?;
    }
    if !groups.is_empty() && !groups.iter().any(|group| ALL.contains(group)) {
        return Ok(());
    }
    let subjects = Subjects::build()?;
    for group in ALL {
        if groups.is_empty() || groups.contains(&group) {
            subjects.group(group)?;
        }
    }
    Ok(())
}

impl Subjects {
    fn build() -> Outcome<Self> {
        let ours = CargoBuild {
            folder: "bench/sdk",
            variant: "sdk",
            args: &[],
            frame_pointers: false,
        };
        let mut subjects = vec![Subject {
            name: "pilotlight",
            program: ours.run()?.join("pilotlight-bench-sdk"),
        }];
        for (name, feature, frame_pointers) in [
            ("pprof-rs", "libgcc", false),
            ("pprof-rs/framehop", "framehop", false),
            ("pprof-rs/frame-pointer", "frame-pointer", true),
        ] {
            let variant = format!("pprof-rs-{feature}");
            let args = ["--features", feature];
            let folder = "bench/peers/pprof-rs";
            let built = CargoBuild {
                folder,
                variant: &variant,
                args: &args,
                frame_pointers,
            }
            .run()?;
            subjects.push(Subject {
                name,
                program: built.join("pilotlight-bench-pprof-rs"),
            });
        }
        Ok(Subjects(subjects))
    }

    fn group(&self, group: &str) -> Outcome<()> {
        match group {
            "handler" => {
                self.handler(30, 1.5)?;
                self.handler(108, 2.0)
            }
            "start" => self.start(),
            "report" => self.report(),
            "engines" => self.engines(),
            "overhead" => [97, 1_000].into_iter().try_for_each(|hz| self.overhead(hz)),
            _ => [97, 250, 1_000]
                .into_iter()
                .flat_map(|hz| [(hz, 1), (hz, 8)])
                .try_for_each(|(hz, threads)| self.accuracy(hz, threads)),
        }
    }

    /// One value a subject: the smallest of several passes that take turns.
    fn smallest<const N: usize>(
        &self,
        passes: usize,
        args: &[&str],
        of: impl Fn(&Readings) -> Outcome<[f64; N]>,
    ) -> Outcome<Vec<[f64; N]>> {
        let mut best = vec![[f64::INFINITY; N]; self.0.len()];
        for _ in 0..passes {
            for (subject, best) in self.0.iter().zip(&mut best) {
                let values = of(&readings(&subject.program, args)?)?;
                for (best, value) in best.iter_mut().zip(values) {
                    *best = best.min(value);
                }
            }
        }
        Ok(best)
    }

    /// `name:value` of the peers.
    fn peers(&self, values: impl Fn(usize) -> String) -> String {
        let named = self.0.iter().enumerate().skip(1);
        named
            .map(|(at, subject)| format!("{}:{}", subject.name, values(at)))
            .collect::<Vec<_>>()
            .join(",")
    }

    fn handler(&self, depth: u32, goal: f64) -> Outcome<()> {
        let args = ["handler", &depth.to_string()];
        let costs = self.smallest(PASSES, &args, |run| {
            // A handler that drops the sample is no measurement.
            let taken = run.get("taken")?;
            if taken < 0.98 {
                return Err(format!("only {taken} of the signals became samples").into());
            }
            Ok([
                run.get("handler_min_ns")?,
                run.get("empty_min_ns")?,
                -run.get("deepest")?,
            ])
        })?;
        let ratio = |at: usize| costs[at][0] / costs[at][1];
        let [own, empty, depth_seen] = costs[0];
        let peer = format!(
            "{},ours:{}us,empty:{}us,frames:{}",
            self.peers(|at| format!("{}x", Short(ratio(at)))),
            Short(own / 1e3),
            Short(empty / 1e3),
            -depth_seen
        );
        print(
            &format!("handler_{depth}_over_empty"),
            ratio(0),
            "x",
            Goal::AtMost(goal),
            &peer,
        );
        Ok(())
    }

    fn start(&self) -> Outcome<()> {
        let starts = self.smallest(PASSES, &["start"], |run| {
            Ok([run.get("rss_kib")? / 1024.0, run.get("cpu_ns")? / 1e6])
        })?;
        let peer = self.peers(|at| format!("{}MiB", Short(starts[at][0])));
        print("start_rss", starts[0][0], "MiB", Goal::AtMost(8.0), &peer);
        let peer = self.peers(|at| format!("{}ms", Short(starts[at][1])));
        print("start_cpu", starts[0][1], "ms", Goal::AtMost(10.0), &peer);
        Ok(())
    }

    fn report(&self) -> Outcome<()> {
        const STACKS: f64 = 12_000.0;
        let reports = self.smallest(3, &["report", "12000"], |run| {
            if run.get("stacks")? < STACKS {
                return Err(format!("a report of {} stacks", run.get("stacks")?).into());
            }
            let growth = run.get("report_growth_kib")? / 1024.0;
            let lost = run.get("sent_meanwhile")? - run.get("recorded_meanwhile")?;
            let bytes = run.get("pprof_bytes")? / STACKS;
            // The largest loss counts, not the smallest.
            Ok([run.get("report_cpu_ns")? / 1e6, -lost, growth, bytes])
        })?;
        let peer = |at: usize, unit: &str| {
            self.peers(|subject| format!("{}{unit}", Short(reports[subject][at].abs())))
        };
        print(
            "report_12000_cpu",
            reports[0][0],
            "ms",
            Goal::AtMost(50.0),
            &peer(0, "ms"),
        );
        let lost = -reports[0][1];
        print(
            "report_12000_lost_samples",
            lost,
            "",
            Goal::AtMost(0.0),
            &peer(1, ""),
        );
        print(
            "report_12000_growth",
            reports[0][2],
            "MiB",
            Goal::None,
            &peer(2, "MiB"),
        );
        print(
            "report_bytes_per_stack",
            reports[0][3],
            "B",
            Goal::None,
            &peer(3, "B"),
        );
        let records = self.smallest(3, &["record", "12000"], |run| {
            Ok([run.get("record_cpu_ns")? / 1e6])
        })?;
        let peer = self.peers(|at| format!("{}ms", Short(records[at][0])));
        print("record_12000_cpu", records[0][0], "ms", Goal::None, &peer);
        Ok(())
    }

    /// Percent of CPU time that a fixed amount of work takes more under a profiler.
    fn overhead(&self, frequency: u32) -> Outcome<()> {
        let args = [
            "overhead".to_owned(),
            frequency.to_string(),
            "1".to_owned(),
            "100".to_owned(),
            "80".to_owned(),
        ];
        let mut percents = Vec::new();
        for subject in &self.0 {
            let run = readings(&subject.program, &args)?;
            percents.push((
                run.get("overhead_percent")?,
                run.get("standard_error_percent")?,
            ));
        }
        let peer = self.peers(|at| format!("{}%", Short(percents[at].0)));
        print(
            &format!("overhead_{frequency}hz"),
            percents[0].0,
            "%",
            match frequency {
                97 => Goal::AtMost(0.15),
                _ => Goal::None,
            },
            &format!("{peer},standard_error:{}%", Short(percents[0].1)),
        );
        Ok(())
    }

    /// CPU time in the profile beside the kernel's count of the same threads.
    fn accuracy(&self, frequency: u32, threads: u32) -> Outcome<()> {
        let millis = if threads == 1 { 2_000 } else { 500 };
        let args = [
            "accuracy".to_owned(),
            frequency.to_string(),
            threads.to_string(),
            millis.to_string(),
        ];
        let mut shares = Vec::new();
        for subject in &self.0 {
            let run = readings(&subject.program, &args)?;
            shares.push((
                run.get("claimed_ns")? / run.get("spent_ns")?,
                run.get("spent_ns")?,
            ));
        }
        let (share, spent) = shares[0];
        let expected = spent / 1e9 * f64::from(frequency);
        // 1 % + √n, as a share of n.
        let bound = (0.01 + 1.0 / expected.sqrt()) * 100.0;
        let peer = self.peers(|at| format!("{}%", Short((shares[at].0 - 1.0) * 100.0)));
        let peer = format!("{peer},ours:{}%", Short((share - 1.0) * 100.0));
        let name = format!("cpu_error_{frequency}hz_{threads}threads");
        print(
            &name,
            (share - 1.0).abs() * 100.0,
            "%",
            Goal::AtMost(bound),
            &peer,
        );
        Ok(())
    }
}

fn print(name: &str, value: f64, unit: &str, goal: Goal, peer: &str) {
    Figure::print_of("sdk", name, value, unit, goal, peer);
}
