//! The receipt: text, its hash, its compressed form.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::basket::{Basket, Price};

/// Plain text, one line an item, in order of value.
#[inline(never)]
pub fn render(basket: &Basket, price: &Price) -> String {
    let mut items: Vec<_> = basket.items.iter().collect();
    items.sort_by_key(|item| {
        std::cmp::Reverse(u64::from(item.quantity) * u64::from(item.unit_cents))
    });
    let mut text = format!("Receipt for {}\n", basket.customer);
    for item in items {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:>4} x {:<20} {:>10} cents",
            item.quantity, item.sku, item.unit_cents
        );
    }
    let _ = writeln!(
        text,
        "{} cents instead of {}",
        price.best_cents, price.full_cents
    );
    text
}

/// Stretched FNV-1a, which is no protection; it stands for a service's hashing.
#[inline(never)]
pub fn hash(bytes: &[u8]) -> u64 {
    (0..8_u64).fold(0xcbf2_9ce4_8422_2325, |seed, round| {
        bytes.iter().fold(seed ^ round, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    })
}

/// gzip, as for an archive.
#[inline(never)]
pub fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to a Vec cannot fail; an empty archive would be the harmless answer.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
