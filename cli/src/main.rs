//! The `pilotlight` binary.
fn main() {}
