#[pilotlight_macros::span]
pub struct Order {
    pub item: u32,
}
