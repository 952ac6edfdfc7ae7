//! The snapshot that handlers read while it is replaced.

use pilotlight_loom::swap_models as models;

#[test]
fn a_snapshot_is_freed_when_nobody_reads_it() {
    models::a_snapshot_is_freed_when_nobody_reads_it();
}

#[test]
fn a_snapshot_that_is_held_too_long_is_never_freed() {
    models::a_snapshot_that_is_held_too_long_is_never_freed();
}

#[test]
fn nobody_shares_a_claim() {
    models::nobody_shares_a_claim();
}

#[test]
fn nothing_is_written_after_the_end() {
    models::nothing_is_written_after_the_end();
}
