//! `pilotlight verify`: every byte of the data, once.

use crate::args;
use crate::config::settings;
use crate::fail::Failure;
use crate::server;
use crate::text;

pub async fn run(arguments: args::Verify) -> Result<(), Failure> {
    let settings = settings(arguments.config.as_deref(), arguments.place)?;
    let data = settings.data.display().to_string();
    let verified = pilotlight_server::verify(&server::config(&settings))
        .await
        .map_err(|error| Failure::new(error.to_string(), format!("ls -l {data}")))?;
    text::data(&format!(
        "sound       {} segments and blocks, {}, {} profiles, {} samples",
        verified.sound,
        text::value(verified.bytes as f64, "bytes"),
        verified.profiles,
        verified.samples
    ));
    for (name, reason) in &verified.damaged {
        text::data(&format!("damaged     {name}: {reason}"));
    }
    if verified.damaged.is_empty() {
        return Ok(());
    }
    let count = verified.damaged.len();
    Err(Failure::new(
        format!("{count} files are damaged; answers leave them out and say so"),
        format!("mv the files named above out of {data} once you need nothing of them"),
    ))
}
