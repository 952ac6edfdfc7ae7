//! Continuous profiling of a Rust service: one dependency, one line, /debug/pprof.
