#[pilotlight_macros::span(7)]
pub fn price(item: u32) -> u32 {
    item * 3
}
