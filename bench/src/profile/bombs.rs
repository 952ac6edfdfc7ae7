//! The four hostile files of the corpus, each in a process of its own.

use std::{fs, path::Path};

use pilotlight_bench_kit::{peak_rss_kib, process_cpu_ns, reset_peak_rss, rss_kib};
use pilotlight_profile::{Limits, Mode, decode};

use super::corpus;
use crate::{
    child::{Outcome, readings},
    figure::{Figure, Goal},
};

pub fn run() -> Outcome<()> {
    let Some(folder) = corpus::folder()? else {
        return Ok(());
    };
    let this = std::env::current_exe()?;
    let mut paths = fs::read_dir(folder.join("bombs"))?
        .map(|e| Ok(e?.path()))
        .collect::<Outcome<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let child = readings(&this, &["bomb".as_ref(), path.as_os_str()])?;
        let refused = if child.get("refused")? == 1.0 {
            "refused"
        } else {
            "accepted"
        };
        let figures = [
            ("cpu", child.get("cpu_ms")?, "ms", 200.0),
            ("growth", child.get("growth_mb")?, "MB", 32.0),
        ];
        for (what, value, unit, bound) in figures {
            let name = format!("profile/bomb_{name}_{what}");
            // An accepted bomb has not met the goal, whatever it cost.
            let value = if refused == "refused" {
                value
            } else {
                f64::INFINITY
            };
            let goal = Goal::AtMost(bound);
            Figure {
                name: &name,
                value,
                unit,
                goal,
                peer: refused,
            }
            .print();
        }
    }
    Ok(())
}

/// The measuring process: decodes one file and prints what that took.
pub fn measure(path: &Path) -> Outcome<()> {
    let bytes = fs::read(path)?;
    let rss = rss_kib()?;
    reset_peak_rss()?;
    let before = process_cpu_ns();
    let refused = decode(&bytes, Mode::Tolerant, &Limits::default()).is_err();
    println!("cpu_ms {}", (process_cpu_ns() - before) as f64 / 1e6);
    println!(
        "growth_mb {}",
        peak_rss_kib()?.saturating_sub(rss) as f64 / 1024.0
    );
    println!("refused {}", u8::from(refused));
    Ok(())
}
