#[pilotlight_macros::main]
pub fn serve() {}
