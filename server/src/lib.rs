//! Ingest, storage, query and HTTP API of profiles.
//!
//! ```no_run
//! # async fn run() -> Result<(), pilotlight_server::Error> {
//! use pilotlight_server::{Config, Server};
//!
//! let running = Server::start(Config::new("pilotlight-data")).await?;
//! println!("http://{}", running.local_addr());
//! running.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Who is responsible for what
//!
//! This crate:
//! - acknowledges a push only after the segment that holds it is durable, and counts a retry once;
//! - answers from every segment that it can read, and names those that it cannot;
//! - keeps nothing that the segment files do not say: the index may be deleted at any time;
//! - bounds what a request may take: bytes, ratio, elements, nodes, regexes.
//!
//! The caller:
//! - decides where to listen (loopback, unless there are tokens or [`Config::allow_public`] is set) and where data lives;
//! - adds its own routes ([`Config::extra_router`]) and the scraper's targets.
//!
//! # Map
//!
//! [`Server`] wires the parts together. `api` has one file an endpoint; `ingest` takes a decoded
//! profile into the open segment and commits groups of them; `segment` and [`block`] are the file
//! formats; `debuginfo` keeps files that name addresses; `store` holds files, their list, the rebuildable index, recovery, merging and retention;
//! `query` goes from a selection to trees, tables, lines and pprof.

#![forbid(unsafe_code)]

mod access;
mod api;
mod arrow;
pub mod block;
mod config;
mod debuginfo;
mod env;
#[doc(hidden)]
pub mod fuzz;
mod hash;
mod ingest;
mod log;
mod metrics;
mod otlp;
mod query;
pub mod segment;
mod server;
mod store;
mod verify;

pub use access::{
    AccessRules, DEFAULT_TENANT, Oidc, Rights, Scope, Token, hash as token_hash, is_tenant_name,
};
pub use config::{Config, Error};
pub use pilotlight_profile::Limits;
pub use pilotlight_wire::serve::tls::TlsFiles;

pub use debuginfo::{
    Announced, Network, Quality, Settings as DebuginfoSettings, Sources as DebuginfoSources,
    describe, has_reason,
};
pub use env::{Env, SystemEnv};
pub use ingest::policy::{IngestRules, Keep, Rule, SAMPLED_LABEL};
pub use ingest::series::LabelLimits;
pub use query::bounds::QueryLimits;
pub use query::selector::SelectorError;
pub use server::{Running, Server};
pub use store::disk::{Disk, LocalDisk};
pub use store::load::LoadError;
pub use store::maintain::Maintenance;
#[cfg(feature = "s3")]
pub use store::objects::{ObjectDisk, S3};
pub use store::retention::RetentionRule;
pub use store::steps::{Step, Watch};
pub use verify::{Verified, verify};
