//! Payment: where tasks of this service wait without using a core.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pilotlight::SpanExt;

/// One order in so many is looked at by the bank.
const LOOKED_AT: u64 = 10;

/// Orders so far.
static ORDERS: AtomicU64 = AtomicU64::new(0);

/// Pays; the profile `await` shows the bank under `pay`.
pub async fn pay() {
    let order = ORDERS.fetch_add(1, Ordering::Relaxed);
    let bank = async {
        if order.is_multiple_of(LOOKED_AT) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    bank.span("bank").await;
}
