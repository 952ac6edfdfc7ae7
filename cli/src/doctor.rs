//! `pilotlight doctor`: permissions of the agent on this host, and the runtimes that there are.

use crate::fail::Failure;
use crate::text;
use pilotlight_host_agent::doctor::{Check, checks};
use pilotlight_host_agent::runtimes::{Seen, survey};

pub fn run() -> Result<(), Failure> {
    let checks = checks();
    for line in checks.iter().flat_map(lines) {
        text::data(&line);
    }
    for runtime in survey() {
        text::data(&of_runtime(&runtime));
    }
    let missing = checks.iter().filter(|check| !check.granted).count();
    text::news(&match missing {
        0 => "everything that the agent can use is there".to_owned(),
        _ => format!(
            "{missing} of {} are missing; the agent does without",
            checks.len()
        ),
    });
    Ok(())
}

fn of_runtime(seen: &Seen) -> String {
    let state = if seen.supported { "ok     " } else { "missing" };
    let processes = if seen.processes == 1 {
        "process"
    } else {
        "processes"
    };
    format!(
        "{state}  scripts of {}  ({} {processes}): {}",
        seen.runtime, seen.processes, seen.scripts
    )
}

fn lines(check: &Check) -> Vec<String> {
    let state = if check.granted { "ok     " } else { "missing" };
    let mut lines = vec![format!("{state}  {}  ({})", check.what, check.found)];
    if !check.granted {
        lines.push(format!("         lost:  {}", check.lost));
        lines.push(format!("         grant: {}", check.grant));
    }
    lines
}
