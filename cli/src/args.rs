//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use pilotlight_wire::Authorization;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Continuous profiling that is never switched off.
#[derive(Debug, Parser)]
#[command(name = "pilotlight", version, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Start everything: server, page, scraper, a profile of itself, and the host agent where that is permitted
    Up(Up),
    /// Start the server alone
    Server(Server),
    /// Start the scraper alone, pushing to a server elsewhere
    Scrape(Scrape),
    /// Profile every process of this host, from outside
    Agent(Agent),
    /// What this host permits the agent, what is lost without it, and the line that grants it
    Doctor,
    /// Ask a server, in text
    Query(Query),
    /// Send a pprof file to a server
    Push(Push),
    /// Make a token, and the entry for the configuration that lets it in
    Token(Token),
    /// Reads all data once and names what is damaged; the server must not run
    Verify(Verify),
    /// Send files that name addresses, or list what is missing
    Debuginfo(Debuginfo),
    /// Reads an object from standard input in a sandbox, writes its symbol table; for the server.
    #[command(hide = true)]
    ParseDebuginfo,
}

#[derive(Debug, Args)]
pub struct Debuginfo {
    #[command(subcommand)]
    pub verb: DebuginfoVerb,
}

#[derive(Debug, Subcommand)]
pub enum DebuginfoVerb {
    /// Send executables, libraries or debug files; those that the server has as good are left out
    Upload(DebuginfoUpload),
    /// Binaries without names in stored profiles, and the files that are stored
    List(DebuginfoList),
}

#[derive(Debug, Args)]
pub struct DebuginfoUpload {
    /// Files, or folders to look through
    #[arg(required = true, value_name = "FILE|FOLDER")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
}

#[derive(Debug, Args)]
pub struct DebuginfoList {
    #[command(flatten)]
    pub remote: Remote,
    /// Selector, such as '{service_name="checkout"}'
    #[arg(long, short, default_value = "{}")]
    pub q: String,
    /// Start: now-15m, a unix time, or RFC 3339
    #[arg(long, default_value = "now-1h")]
    pub from: String,
    /// End
    #[arg(long, default_value = "now")]
    pub until: String,
    /// The server's JSON as it is
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Up {
    /// Targets and settings, see pilotlight.example.yaml; without it, nothing is scraped but pilotlight itself
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Do not profile this host's processes from outside, though that may be permitted
    #[arg(long)]
    pub no_agent: bool,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Args)]
pub struct Server {
    /// Only its section `server` is used
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub place: Place,
    /// Set the index aside and build it again from the segments
    #[arg(long)]
    pub rebuild_index: bool,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// Only its section `server` is used
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Args)]
pub struct Place {
    /// Address of page and API [default: 127.0.0.1:4040]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<SocketAddr>,
    /// Folder of all data [default: ./pilotlight-data]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Allow an address that other machines reach though nobody needs a token
    #[arg(long)]
    pub allow_public: bool,
}

#[derive(Debug, Args)]
pub struct Scrape {
    /// Targets, see pilotlight.example.yaml
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,
    #[command(flatten)]
    pub remote: Remote,
}

#[derive(Debug, Args)]
pub struct Agent {
    /// Only its section `agent` is used
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub remote: Remote,
    /// Samples a second of each CPU, 1 to 997 [default: 19]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=997))]
    pub frequency_hz: Option<u32>,
    /// What is sampled: cpu-clock, task-clock, page-faults, minor-faults, major-faults, context-switches, cpu-migrations,
    /// or the processor's cycles, instructions, cache-references, cache-misses, branches, branch-misses, ref-cycles;
    /// one sample in so many: page-faults@1 [default: cpu-clock]
    #[arg(long, value_name = "EVENT[@N]", value_parser = pilotlight_host_agent::Event::parse)]
    pub event: Option<pilotlight_host_agent::Event>,
    /// Waits of threads that last so long or longer are profiled too, such as 1ms; by BPF only [default: none]
    #[arg(long, value_name = "DURATION", value_parser = crate::config::agent::wait)]
    pub off_cpu: Option<u64>,
    /// Only this process; may stand several times
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Perf events alone, BPF is not tried
    #[arg(long)]
    pub no_bpf: bool,
    /// The share of samples that is walked a second time, as a check of the first, such as 1%; 0% for none [default: 1%]
    #[arg(long, value_name = "SHARE", value_parser = crate::config::agent::share)]
    pub verify: Option<f64>,
    /// An environment variable of processes as a label of theirs; may stand several times
    #[arg(long, value_name = "VARIABLE[=LABEL]")]
    pub label_env: Vec<String>,
    /// Answer /metrics here and, on loopback, /debug/pprof/ [default: nowhere]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<SocketAddr>,
    /// Ends when standard input does; `up` holds the other end.
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

#[derive(Debug, Args)]
pub struct Remote {
    /// Base URL of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4040")]
    pub server: String,
    /// File with the token to show; otherwise the variable PILOTLIGHT_TOKEN, if it is set
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Authorities (PEM) that an https server's certificate may come from, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

impl Remote {
    /// What the server is shown.
    pub fn authorization(&self) -> Option<Authorization> {
        match &self.token_file {
            Some(file) => Some(Authorization::file("Bearer", file)),
            None => std::env::var("PILOTLIGHT_TOKEN")
                .ok()
                .map(Authorization::bearer),
        }
    }
}

#[derive(Debug, Args)]
pub struct Token {
    /// What it is called in errors and in the audit
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// What it is for: ingest, read, debuginfo, admin; may stand several times
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    pub scopes: Vec<String>,
    /// The only tenant that it opens; '*' lets the request choose
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub tenant: String,
}

#[derive(Debug, Args)]
pub struct Query {
    /// What to show
    pub view: View,
    #[command(flatten)]
    pub remote: Remote,
    /// Profile type, as in the page's address
    #[arg(long = "type", value_name = "TYPE", default_value = "cpu")]
    pub kind: String,
    /// Selector, such as '{service_name="checkout"}'
    #[arg(long, short, default_value = "{}")]
    pub q: String,
    /// Start: now-15m, a unix time, or RFC 3339
    #[arg(long, default_value = "now-1h")]
    pub from: String,
    /// End
    #[arg(long, default_value = "now")]
    pub until: String,
    /// diff: selector of the base, such as '{version="1"}'
    #[arg(long, default_value = "")]
    pub base_q: String,
    /// diff: start of the base
    #[arg(long, default_value = "")]
    pub base_from: String,
    /// diff: end of the base
    #[arg(long, default_value = "")]
    pub base_until: String,
    /// Rows of top and diff
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// tree: leave out what is below this share, in percent
    #[arg(long, default_value_t = 1.0)]
    pub min_percent: f64,
    /// The server's JSON as it is
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// Functions by their own time
    Top,
    /// The call tree
    Tree,
    /// Functions whose share changed against the base; `*` marks what is more than chance
    Diff,
}

#[derive(Debug, Args)]
pub struct Push {
    /// pprof: gzip, zstd or plain
    pub file: PathBuf,
    /// The service that it came from
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// The first part of the profile type
    #[arg(long, default_value = "process_cpu")]
    pub name: String,
    #[command(flatten)]
    pub remote: Remote,
}
