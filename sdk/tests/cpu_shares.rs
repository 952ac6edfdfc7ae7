//! Threads get the shares of CPU time that they used.

mod common;

use common::{burn, expiries, profile_of, start};

#[inline(never)]
fn one_part() {
    burn(std::hint::black_box(1_500_000_000));
}

#[inline(never)]
fn two_parts() {
    burn(std::hint::black_box(3_000_000_001));
}

#[inline(never)]
fn four_parts() {
    burn(std::hint::black_box(6_000_000_002));
}

#[test]
fn three_threads_have_shares_of_1_to_2_to_4() {
    let _guard = start(97);
    let profile = profile_of(|| {
        let threads = [one_part as fn(), two_parts, four_parts].map(std::thread::spawn);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let names = ["one_part", "two_parts", "four_parts"];
    let seen = names.map(|name| expiries(&profile, name) as f64);
    let all: f64 = seen.iter().sum();
    for (share, seen) in [1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0].iter().zip(seen) {
        let sigma = (share * (1.0 - share) / all).sqrt();
        assert!(
            (seen / all - share).abs() <= 3.0 * sigma,
            "{seen} of {all}, expected {share}"
        );
    }
    assert!(
        (all - 10.5 * 97.0).abs() < 3.0 * all.sqrt(),
        "{all} expiries"
    );
}
