//! `pilotlight server`, and starting a server for `up`.

use crate::args;
use crate::config::{Settings, settings};
use crate::fail::Failure;
use crate::stop::{LIMIT, Stop};
use crate::text;
use pilotlight_sandbox::Parser;
use pilotlight_server::{Config, Error, Running, Server};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// Each put costs a request, and a store far away answers later than a disk.
#[cfg(feature = "s3")]
const OBJECT_LINGER: std::time::Duration = std::time::Duration::from_millis(250);

pub async fn run(arguments: args::Server) -> Result<(), Failure> {
    let mut stop = Stop::new();
    let settings = settings(arguments.config.as_deref(), arguments.place)?;
    let mut config = config(&settings);
    config.rebuild_index = arguments.rebuild_index;
    let running = start(config, "server").await?;
    text::data(&format!("page        http://{}", running.local_addr()));
    text::data(&format!("data        {}", settings.data.display()));
    stop.wait().await;
    end(running).await;
    Ok(())
}

/// The server's settings.
pub fn config(settings: &Settings) -> Config {
    let mut config = Config::new(&settings.data);
    config.listen = settings.listen;
    config.allow_public = settings.allow_public;
    config.access = settings.server.access.clone();
    config.tenants = settings.server.tenants.clone();
    config.tls = settings.server.tls.clone();
    config.limits = settings.server.limits.clone();
    config.ingest = settings.server.ingest.clone();
    config.debuginfo = settings.server.debuginfo.clone();
    // Files that others send are read by this very program, with nothing but the file.
    config.debuginfo.parser = Some(Parser::new("/proc/self/exe", &["parse-debuginfo"]));
    config.query = settings.server.query.clone();
    config.maintenance = Some(settings.server.retention.clone());
    #[cfg(feature = "s3")]
    if let Some(storage) = settings.server.storage.clone() {
        config.linger = OBJECT_LINGER;
        config.s3 = Some(pilotlight_server::S3 {
            bucket: storage.bucket,
            prefix: storage.prefix,
            endpoint: storage.endpoint,
            region: storage.region,
        });
    }
    config
}

/// Starts it; errors name the next command, which repeats `verb`.
pub async fn start(config: Config, verb: &str) -> Result<Running, Failure> {
    let (listen, data) = (config.listen, config.data_dir.display().to_string());
    Server::start(config).await.map_err(|error| {
        let text = error.to_string();
        match error {
            Error::PublicAddress(address) => {
                let next = format!("pilotlight {verb} --listen 127.0.0.1:{}", address.port());
                Failure::new(text, next).usage()
            }
            Error::Listen { cause, .. } => listen_failure(verb, listen, &cause),
            Error::InUse(_) => Failure::new(
                text,
                format!("pilotlight {verb} --data {data}-2 --listen 127.0.0.1:0"),
            ),
            Error::DataDir { cause, .. } if cause.kind() == ErrorKind::PermissionDenied => {
                Failure::new(text, format!("pilotlight {verb} --data ~/pilotlight-data"))
                    .permission()
            }
            _ => Failure::new(
                text,
                format!("df -h . && pilotlight {verb} --data /another/folder"),
            ),
        }
    })
}

fn listen_failure(verb: &str, listen: SocketAddr, cause: &std::io::Error) -> Failure {
    let text = format!("cannot listen on {listen}: {cause}");
    match cause.kind() {
        ErrorKind::AddrInUse => {
            let other = SocketAddr::new(listen.ip(), listen.port().wrapping_add(1).max(1024));
            let text = format!(
                "{text}; another program has this port, see: ss -ltnp 'sport = :{}'",
                listen.port()
            );
            Failure::new(text, format!("pilotlight {verb} --listen {other}"))
        }
        ErrorKind::PermissionDenied => {
            Failure::new(text, format!("pilotlight {verb} --listen 127.0.0.1:4040")).permission()
        }
        _ => Failure::new(text, format!("pilotlight {verb} --listen 127.0.0.1:4040")),
    }
}

/// Ends it within the limit; what it acknowledged is on disk whatever happens here.
pub async fn end(running: Running) {
    if tokio::time::timeout(LIMIT / 2, running.shutdown())
        .await
        .is_err()
    {
        text::news("a request was still being answered; it was cut off");
    }
}
