//! A bare server for tests and measurements: `serve DATA_DIR [--listen ADDR]
//! [--max-age-days N] [--rebuild-index] [--no-maintenance]`.
//! Prints its address, runs until killed. Debug information is read in a process of its own, as
//! `pilotlight server` does.

use std::process::ExitCode;

use pilotlight_sandbox::Parser;
use pilotlight_server::{Config, Server};

fn main() -> ExitCode {
    // It gives up its rights before there are threads.
    if std::env::args().nth(1).as_deref() == Some("parse-debuginfo") {
        return pilotlight_sandbox::child();
    }
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut config = Config::new(args.next().ok_or("usage: serve DATA_DIR [--listen ADDR]")?);
    config.listen = ([127, 0, 0, 1], 0).into();
    config.debuginfo.parser = Some(Parser::new("/proc/self/exe", &["parse-debuginfo"]));
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--listen" => {
                config.listen = args.next().ok_or("--listen wants an address")?.parse()?
            }
            "--max-age-days" => {
                let days: u64 = args
                    .next()
                    .ok_or("--max-age-days wants a number")?
                    .parse()?;
                if let Some(rules) = &mut config.maintenance {
                    rules.max_age = Some(std::time::Duration::from_secs(days * 86_400));
                }
            }
            "--no-maintenance" => config.maintenance = None,
            "--rebuild-index" => config.rebuild_index = true,
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let running = Server::start(config).await?;
    println!("{}", running.local_addr());
    std::future::pending::<()>().await;
    Ok(())
}
