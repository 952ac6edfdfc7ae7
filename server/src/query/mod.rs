//! From a selection to trees, tables, lines over time and pprof.

pub mod choose;
pub mod depth;
pub mod diff;
pub mod engine;
pub mod labels;
pub mod merge;
pub mod pprof;
pub mod read;
pub mod selector;
pub mod series;
pub mod time;
pub mod top;
pub mod tree;
pub mod unresolved;
