#[pilotlight_macros::span]
pub const fn price(item: u32) -> u32 {
    item * 3
}
