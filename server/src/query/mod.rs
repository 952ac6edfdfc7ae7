//! From a selection to trees, tables, lines over time and pprof.

pub mod bounds;
pub mod choose;
pub mod depth;
pub mod diff;
pub mod engine;
pub mod exemplars;
pub mod heatmap;
pub mod labels;
pub mod merge;
mod open;
pub mod over_time;
pub mod pprof;
pub mod read;
pub mod rows;
pub mod sample_labels;
pub mod scan;
pub mod selector;
pub mod series;
pub mod sources;
pub mod time;
pub mod top;
pub mod touched;
pub mod tree;
pub mod types;
pub mod unresolved;
