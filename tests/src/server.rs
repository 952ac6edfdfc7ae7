//! `pilotlight server` as a user would start it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::process::{Program, built};
use crate::{free_port, http, wait_for};

/// Starts a server with its data in `folder/name` and waits until it is ready; `prepare` may add to
/// its command line.
///
/// # Panics
/// When it does not become ready.
#[must_use]
pub fn start(folder: &Path, name: &str, prepare: impl FnOnce(&mut Command)) -> (Program, u16) {
    let port = free_port();
    let mut command = Command::new(built("pilotlight"));
    command.args(["server", "--listen", &format!("127.0.0.1:{port}"), "--data"]);
    command.arg(folder.join(name));
    prepare(&mut command);
    let program = Program::start(name, folder, &mut command);
    wait_for(
        "the server",
        Duration::from_secs(20),
        || match http::get_within(port, "/ready", Duration::from_secs(5))?.status {
            200 => Ok(()),
            status => Err(format!("/ready: {status}")),
        },
    );
    (program, port)
}
