//! "Also bought": scores the catalogue against the basket and sorts it.

use crate::basket::Basket;

const CATALOGUE: u64 = 4_000;

/// The three best matches.
#[inline(never)]
pub fn also_bought(basket: &Basket) -> Vec<String> {
    let mut scored: Vec<(u64, u64)> = (0..CATALOGUE)
        .map(|product| (score(basket, product), product))
        .collect();
    scored.sort_unstable_by(|a, b| b.cmp(a));
    scored
        .iter()
        .take(3)
        .map(|(_, product)| format!("sku-{product:05}"))
        .collect()
}

fn score(basket: &Basket, product: u64) -> u64 {
    let mut state = product.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ basket.customer.len() as u64;
    for item in basket.items.iter().take(4) {
        state = (state ^ u64::from(item.unit_cents))
            .rotate_left(23)
            .wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    state >> 40
}
