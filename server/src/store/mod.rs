//! Segments and blocks at rest: files, their list, the rebuildable index over it, and the decoded cache.

pub mod age;
pub mod cache;
pub mod catalog;
pub mod compact;
pub mod disk;
pub mod identities;
pub mod lease;
pub mod load;
pub mod maintain;
pub mod metastore;
#[cfg(feature = "s3")]
pub mod objects;
#[cfg(test)]
mod power_cut;
pub mod recover;
pub mod retention;
pub mod sharing;
pub mod steps;
