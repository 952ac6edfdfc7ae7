//! OTLP profiles: messages, their JSON form, and what they mean as profiles of ours.

mod convert;
mod json;
pub mod proto;

pub use convert::{Converted, Rejected, convert};
pub use json::from_json;

#[cfg(test)]
mod host_profiler_tests;
#[cfg(test)]
mod tests;
