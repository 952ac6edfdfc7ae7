//! `pilotlight push`: a file to a server.

use crate::api::Api;
use crate::args;
use crate::fail::Failure;
use crate::text;
use pilotlight_scraper::Labels;
use pilotlight_wire::Bytes;

pub async fn run(arguments: args::Push) -> Result<(), Failure> {
    let api = Api::new(&arguments.remote)?;
    let file = arguments.file.display();
    let body = std::fs::read(&arguments.file).map_err(|error| {
        Failure::new(format!("{file}: {error}"), format!("ls -l {file}")).usage()
    })?;
    let series = Labels::from_iter([("service_name", arguments.service.as_str())]).selector();
    let pairs = [
        ("series", series.as_str()),
        ("name", arguments.name.as_str()),
    ];
    let answer = api.post("/api/v1/push", &pairs, Bytes::from(body)).await?;
    text::data(&answer.to_string());
    Ok(())
}
