//! The basket and its price: the hot part of the service.

use serde::{Deserialize, Serialize};

/// What a client sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Basket {
    /// Who buys.
    pub customer: String,
    /// What, in any order.
    pub items: Vec<Item>,
}

/// One line of the basket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Item {
    /// Stock keeping unit.
    pub sku: String,
    /// Pieces.
    pub quantity: u32,
    /// Price of one piece in cents.
    pub unit_cents: u32,
}

/// The best price found.
#[derive(Debug, Clone, Serialize)]
pub struct Price {
    /// Sum before coupons.
    pub full_cents: u64,
    /// Sum after the best set of coupons.
    pub best_cents: u64,
    /// Bit set of the coupons used.
    pub coupons: u32,
}

const COUPONS: u32 = 8;

/// Tries every set of coupons, as an honest shop would. Never inlined, so that a profile shows it
/// under this name.
#[inline(never)]
pub fn price_basket(basket: &Basket) -> Price {
    let full_cents = sum(basket, 0);
    let sets = 1..1_u32 << COUPONS;
    let (best_cents, coupons) = sets
        .map(|set| (sum(basket, set), set))
        .min()
        .unwrap_or((full_cents, 0));
    Price {
        full_cents,
        best_cents,
        coupons,
    }
}

/// Always inlined: a profile shows it as an inlined frame inside `price_basket`.
#[inline(always)]
fn sum(basket: &Basket, coupons: u32) -> u64 {
    basket
        .items
        .iter()
        .map(|item| discounted(item, coupons))
        .sum()
}

/// Price of one line. Each coupon takes its own share off what the earlier ones left, and costs a
/// fee on small lines, so that more coupons are not always better.
#[inline(always)]
fn discounted(item: &Item, coupons: u32) -> u64 {
    let mut cents = u64::from(item.quantity) * u64::from(item.unit_cents);
    for coupon in (0..COUPONS).filter(|coupon| coupons >> coupon & 1 == 1) {
        let share = u64::from(coupon) + 1;
        cents = cents - cents * share / 100 + 7_000 / (cents + share);
    }
    cents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basket(unit_cents: u32) -> Basket {
        let item = Item {
            sku: "a".into(),
            quantity: 2,
            unit_cents,
        };
        Basket {
            customer: "c".into(),
            items: vec![item],
        }
    }

    #[test]
    fn every_coupon_pays_on_large_lines() {
        let price = price_basket(&basket(1_000_000));
        assert_eq!((price.full_cents, price.coupons), (2_000_000, 255));
        assert!(price.best_cents < 1_400_000);
    }

    #[test]
    fn empty_baskets_are_free() {
        let price = price_basket(&Basket {
            customer: String::new(),
            items: vec![],
        });
        assert_eq!((price.full_cents, price.best_cents), (0, 0));
    }
}
