pub trait Shop {
    #[pilotlight_macros::span]
    fn price(&self, item: u32) -> u32;
}
