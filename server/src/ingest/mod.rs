//! From a request's body to a durable segment.

pub mod epoch;
pub mod ids;
pub mod policy;
pub mod series;
mod ticket;
pub mod writer;
