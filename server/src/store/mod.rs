//! Segments at rest: files, their list, the rebuildable index over it, and the decoded cache.

pub mod cache;
pub mod catalog;
pub mod disk;
pub mod load;
pub mod maintain;
pub mod metastore;
pub mod recover;
