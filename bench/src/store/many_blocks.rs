//! A start over 100,000 blocks: with a good index, and without one.

use std::{fs, process::Command};

use super::figure;
use crate::{
    child::{Outcome, build, scratch},
    figure::Goal,
    server::process::{Server, example},
};

const BLOCKS: &str = "100000";

/// Prints how long the server takes until it is ready.
pub fn run() -> Outcome<()> {
    let data = scratch("server-many")?;
    fs::remove_dir_all(&data)?;
    build(Command::new(example("many_blocks")?).arg(&data).arg(BLOCKS))?;
    // The first start has no index and writes it; a stop by a signal loses at most its last part.
    let mut server = Server::over_data(data.clone())?;
    let without = server.ready_seconds;
    server.wait_for_index()?;
    server.kill_and_restart()?;
    let ready = server.ready_seconds;
    let goal = Goal::AtMost(2.0);
    figure("ready_100000_blocks", ready, "s", goal, "");
    figure("ready_100000_blocks_no_index", without, "s", Goal::None, "");
    let peak = server.peak_rss_mib()?;
    figure("rss_100000_blocks", peak, "MiB", Goal::None, "");
    drop(server);
    fs::remove_dir_all(&data)?;
    Ok(())
}
