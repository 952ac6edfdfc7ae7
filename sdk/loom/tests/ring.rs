//! The ring of samples.

use pilotlight_loom::models;

#[test]
fn a_small_ring_wraps_and_refuses() {
    models::a_small_ring_wraps_and_refuses();
}

#[test]
fn a_ring_with_room_loses_nothing() {
    models::a_ring_with_room_loses_nothing();
}
