//! Settings of a server, and why one does not start.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_profile::Limits;
use pilotlight_wire::serve::tls::TlsFiles;

use crate::access::AccessRules;
use crate::env::{Env, SystemEnv};
use crate::ingest::policy::IngestRules;
use crate::query::engine::QueryLimits;
use crate::store::disk::Disk;
use crate::store::maintain::Maintenance;

/// Text made at each request, e.g. by the scraper.
pub type Provider = Arc<dyn Fn() -> String + Send + Sync>;

/// Settings of a server. [`Config::new`] gives the defaults.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// Address to listen on; port 0 takes a free one. Default 127.0.0.1:4040.
    pub listen: SocketAddr,
    /// Folder of all data. One server at a time.
    pub data_dir: PathBuf,
    /// Allows an address that other machines reach though everybody may do everything.
    pub allow_public: bool,
    /// Who may do what.
    pub access: AccessRules,
    /// Tenants besides [`crate::DEFAULT_TENANT`]: each has a store of its own, in `tenants/NAME`, and an equal
    /// part of `head_bytes` and `cache_bytes`.
    pub tenants: Vec<String>,
    /// TLS on the port.
    pub tls: Option<TlsFiles>,
    /// Listens on a free port of loopback too, always without TLS: for the program's own scraper.
    pub inner_port: bool,
    /// Sets the index aside and builds it from the segments.
    pub rebuild_index: bool,
    /// Routes added to the server's own, e.g. `/debug/pprof`.
    pub extra_router: Option<axum::Router>,
    /// Body of `/api/v1/targets`: Prometheus' JSON.
    pub targets: Option<Provider>,
    /// Prometheus text appended to `/metrics`.
    pub extra_metrics: Option<Provider>,
    /// What a pushed profile may hold.
    pub limits: Limits,
    /// Rates, windows of time and sampling of what is pushed.
    pub ingest: IngestRules,
    /// How long the first push of a segment waits for others. Default 10 ms, at most 500 ms.
    pub linger: Duration,
    /// Bytes of bodies and open segment held at a time; above that pushes wait, then get 429.
    pub head_bytes: usize,
    /// Bytes of decoded segments kept for queries.
    pub cache_bytes: usize,
    /// What one query may take.
    pub query: QueryLimits,
    /// Identities of pushes remembered, so that a retry is counted once.
    pub remembered_pushes: usize,
    /// Merging and retention; `None` switches both off.
    pub maintenance: Option<Maintenance>,
    /// What debug information may take.
    pub debuginfo: crate::debuginfo::Settings,
    /// Clock and randomness.
    pub env: Arc<dyn Env>,
    /// Files; `None` = the folder `data_dir`.
    pub disk: Option<Arc<dyn Disk>>,
    /// Keeps segments on an object store; `data_dir` then holds the index only.
    #[cfg(feature = "s3")]
    pub s3: Option<crate::store::objects::S3>,
}

impl Config {
    /// Defaults, with data in `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 4040).into(),
            data_dir: data_dir.into(),
            allow_public: false,
            access: AccessRules::default(),
            tenants: Vec::new(),
            tls: None,
            inner_port: false,
            rebuild_index: false,
            extra_router: None,
            targets: None,
            extra_metrics: None,
            limits: Limits::default(),
            ingest: IngestRules::default(),
            linger: Duration::from_millis(10),
            head_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            query: QueryLimits::default(),
            remembered_pushes: 500_000,
            maintenance: Some(Maintenance::default()),
            debuginfo: crate::debuginfo::Settings::default(),
            env: Arc::new(SystemEnv),
            disk: None,
            #[cfg(feature = "s3")]
            s3: None,
        }
    }
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is open to other machines.
    #[error(
        "{0} can be reached from other machines, and nobody needs a token: make some (pilotlight token), \
         listen on 127.0.0.1, or allow it expressly (allow_public) behind a proxy or firewall of yours"
    )]
    PublicAddress(SocketAddr),
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {cause}; choose another address or stop what uses it")]
    Listen {
        /// Address asked for.
        address: SocketAddr,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The data folder cannot be used.
    #[error("cannot use the data folder {}: {cause}", folder.display())]
    DataDir {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The object store cannot be used.
    #[error(
        "cannot use the object store {place}: {cause}; check bucket, endpoint, region and the AWS_… variables"
    )]
    ObjectStore {
        /// Bucket and prefix.
        place: String,
        /// What it said.
        cause: std::io::Error,
    },
    /// Not the name of a folder, or given twice.
    #[error(
        "{0:?} cannot be a tenant: a name is 1 to 64 letters, digits, '-', '_' or '.', each once, and not \"default\""
    )]
    Tenant(String),
    /// Certificate or key.
    #[error(transparent)]
    Tls(#[from] pilotlight_wire::serve::tls::TlsError),
    /// The issuer of tokens.
    #[error("server.access.oidc: {0}")]
    Oidc(String),
    /// The file for the audit.
    #[error("cannot write the audit file {}: {cause}", file.display())]
    Audit {
        /// The file.
        file: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Another process has it.
    #[error("the data folder {} is in use by another pilotlight; stop it or use another folder", .0.display())]
    InUse(PathBuf),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
