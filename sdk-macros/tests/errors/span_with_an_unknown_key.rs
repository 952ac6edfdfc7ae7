#[pilotlight_macros::span(level = "info")]
pub async fn price(item: u32) -> u32 {
    item * 3
}
