//! The `pilotlight` binary: thin verbs over the libraries.
//!
//! Data goes to standard output, progress and news to standard error. Exit codes: 0 done, 1 failed, 2 usage or
//! configuration, 4 not permitted. Every error ends with what to run next.

mod agent;
mod agent_http;
mod api;
mod args;
mod beside;
mod config;
mod debuginfo;
mod doctor;
mod fail;
mod push;
mod query;
mod scrape;
mod server;
mod stop;
mod text;
mod token;
mod up;
mod verify;

use args::{Arguments, Verb};
use clap::Parser;
use fail::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // It gives up its rights before there are threads.
    if matches!(arguments.verb, Verb::ParseDebuginfo) {
        return pilotlight_sandbox::child();
    }
    if let Verb::Agent(_) = &arguments.verb
        && let Err(failure) = agent::give_away()
    {
        return failure.report();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return Failure::new(format!("no threads: {error}"), "ulimit -u").report(),
    };
    let done = runtime.block_on(run(arguments.verb));
    // a request that is still being served must not hold up the end: what was acknowledged is on disk
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Up(arguments) => up::run(arguments).await,
        Verb::Server(arguments) => server::run(arguments).await,
        Verb::Scrape(arguments) => scrape::run(arguments).await,
        Verb::Agent(arguments) => agent::run(arguments).await,
        Verb::Doctor => doctor::run(),
        Verb::Query(arguments) => query::run(arguments).await,
        Verb::Push(arguments) => push::run(arguments).await,
        Verb::Token(arguments) => token::run(&arguments),
        Verb::Verify(arguments) => verify::run(arguments).await,
        Verb::Debuginfo(arguments) => debuginfo::run(arguments).await,
        // Done in `main`.
        Verb::ParseDebuginfo => Ok(()),
    }
}
