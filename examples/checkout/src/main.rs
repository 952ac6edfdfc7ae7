//! checkout
fn main() {}
