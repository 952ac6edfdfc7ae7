//! The only build helper.
fn main() {}
