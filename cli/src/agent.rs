//! `pilotlight agent`: every process of this host, from outside.

use crate::agent_http::Listener;
use crate::api::Api;
use crate::args;
use crate::beside::SAMPLING;
use crate::config::agent::{self, More};
use crate::fail::Failure;
use crate::stop::{LIMIT, Stop};
use crate::text;
use pilotlight_host_agent::confine::{self, Confinement};
use pilotlight_host_agent::{Agent, Error, Options};
use pilotlight_wire::Url;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::time::Duration;

pub async fn run(arguments: args::Agent) -> Result<(), Failure> {
    let mut stop = Stop::new();
    let server = arguments.remote.server.clone();
    let mut options = Options::new(Api::new(&arguments.remote)?.base().clone());
    options.authorization = arguments.remote.authorization();
    let mut more = More::default();
    if let Some(file) = &arguments.config {
        more = agent::read(file, &mut options)?;
    }
    if let Some(frequency_hz) = arguments.frequency_hz {
        options.sampler.frequency_hz = frequency_hz;
    }
    if let Some(event) = arguments.event {
        options.sampler.event = event;
    }
    if arguments.off_cpu.is_some() {
        options.sampler.off_cpu_threshold_ns = arguments.off_cpu;
    }
    if let Some(verify) = arguments.verify {
        options.sampler.verify = verify;
    }
    options.sampler.pids.extend(&arguments.pid);
    for variable in &arguments.label_env {
        let label = agent::label_env(variable).map_err(|reason| {
            let text = format!("--label-env {variable}: {reason}");
            Failure::new(text, "pilotlight agent --label-env POD_NAME=pod").usage()
        })?;
        options.label_env.push(label);
    }
    options.no_bpf |= arguments.no_bpf;
    let frequency_hz = options.sampler.frequency_hz;
    let _alone = match options.sampler.pids.is_empty() {
        true => Some(alone(&options.server).await?),
        false => None,
    };
    let listener = match arguments.listen.or(more.listen) {
        Some(address) => Some(Listener::bind(address).await?),
        None => None,
    };
    let java = options.java_perf_map;
    let agent = Agent::start(options).map_err(|error| refused(&error))?;
    text::data(&format!("server      {server}"));
    text::data(&format!(
        "{SAMPLING}by {}, {}",
        agent.sampler(),
        agent.event().how_often(frequency_hz)
    ));
    if let Some(instead) = agent.instead() {
        let (wanted, taken) = (instead.wanted.word(), agent.event().word());
        let reason = &instead.reason;
        text::news(&format!(
            "event {wanted}: {reason}; {taken} is sampled instead"
        ));
    }
    if more.confine {
        confine(java);
    }
    let agent = Arc::new(agent);
    let listening = listener.map(|listener| {
        text::data(&format!(
            "metrics     http://{}/metrics",
            listener.address()
        ));
        tokio::spawn(listener.run(Arc::downgrade(&agent)))
    });
    let reporter = report_trouble(Arc::clone(&agent));
    tokio::select! {
        () = stop.wait() => {}
        () = stdin_ends(), if arguments.until_stdin_ends => {}
    }
    // Each may hold the agent for a moment.
    for task in listening.into_iter().chain([reporter]) {
        task.abort();
        let _ = task.await;
    }
    if let Some(agent) = Arc::into_inner(agent) {
        agent.stop(LIMIT / 2).await;
    }
    Ok(())
}

/// Samples walked twice, below which nothing is said of them.
const ENOUGH_WALKS: u64 = 300;

/// Two agents would count this host's processes twice in one server. The name goes with the process that holds it.
async fn alone(server: &Url) -> Result<UnixListener, Failure> {
    let taken = || {
        let text = format!("another pilotlight agent on this host sends to {server}");
        Failure::new(
            text,
            "pilotlight agent --server of another server, or --pid",
        )
    };
    let name = format!("pilotlight-agent {server}");
    let address = SocketAddr::from_abstract_name(name.as_bytes()).map_err(|_| taken())?;
    // The one of an `up` that was just ended may take a moment to go.
    for _ in 0..30 {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(listener),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    Err(taken())
}

/// Returns once nobody holds the other end of standard input.
async fn stdin_ends() {
    let (ended, wait) = tokio::sync::oneshot::channel();
    let read = move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    };
    // A thread of its own: the runtime would wait for one of its pool.
    let thread = std::thread::Builder::new().spawn(read);
    if thread.is_err() || wait.await.is_err() {
        std::future::pending().await
    }
}

/// Keeps the capabilities that sampling needs, before there are threads.
pub fn give_away() -> Result<(), Failure> {
    pilotlight_host_agent::privileges::give_away().map_err(|error| {
        let text = format!("capabilities cannot be given away: {error}");
        Failure::new(text, "pilotlight doctor").permission()
    })
}

/// Everything it needs is open: from here on it reads, and sends.
fn confine(java: bool) {
    if let Err(error) = confine::enter(Confinement { java }) {
        text::news(&format!("system calls are not limited: {error}"));
    }
}

/// Why it cannot work, with an exit code of its own where a permission is missing.
pub fn refused(error: &Error) -> Failure {
    let failure = Failure::new(error.to_string(), "pilotlight doctor");
    match error {
        Error::Perf { .. } => failure.permission(),
        _ => failure,
    }
}

/// Says when profiles do not reach the server, pods are not known, or walks differ, once per kind of trouble.
fn report_trouble(agent: Arc<Agent>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut said = [None, None, None];
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            // The numbers change; the trouble does not.
            let differs = walks_that_differ(&agent).filter(|_| said[2].is_none());
            let errors = [
                agent.counters().push_error(),
                agent.pods_error(),
                differs.or_else(|| said[2].clone()),
            ];
            for (index, what) in ["push", "pods", "verify"].into_iter().enumerate() {
                let error = &errors[index];
                if let Some(text) = error.as_deref().filter(|_| *error != said[index]) {
                    text::news(&format!("{what}: {text}"));
                    said[index].clone_from(error);
                }
            }
        }
    })
}

/// More than one of a hundred samples that were walked twice led elsewhere the second time.
fn walks_that_differ(agent: &Agent) -> Option<String> {
    let (all, different) = agent.counters().verified();
    (all >= ENOUGH_WALKS && different * 100 > all).then(|| {
        format!(
            "{different} of {all} stacks are others when they are walked a second time: please report it with \
             what runs here; `--no-bpf` does without walks in the kernel"
        )
    })
}
