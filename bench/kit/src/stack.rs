//! Stacks of known depth: one recursive function, or a random walk over 2,048 distinct ones.

use std::hint::black_box;

/// Number of distinct call sites that [`at_sites`] can walk over.
pub const SITES: usize = 2_048;

/// Calls `leaf` under `depth` frames of one recursive function.
#[inline(never)]
pub fn at_depth(depth: usize, leaf: &mut dyn FnMut()) -> u64 {
    if depth <= 1 {
        leaf();
        return 1;
    }
    // Used after the call, so that it is no tail call.
    at_depth(black_box(depth - 1), leaf).wrapping_add(black_box(depth as u64))
}

/// Calls `leaf` under one frame for each entry of `path`; an entry chooses the function.
pub fn at_sites(path: &[u16], leaf: &mut dyn FnMut()) -> u64 {
    match path {
        [] => {
            leaf();
            1
        }
        [first, rest @ ..] => TABLE[usize::from(*first) % SITES](rest, leaf),
    }
}

/// A fixed amount of arithmetic that the optimiser cannot remove; about 1 ns a round.
#[inline(never)]
pub fn work(rounds: u64) -> u64 {
    let mut x = black_box(88_172_645_463_325_252u64);
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x)
}

type Site = fn(&[u16], &mut dyn FnMut()) -> u64;

/// One function per `N`, with one of four frame sizes, so that they have different unwind rows.
#[inline(never)]
fn site<const N: usize>(path: &[u16], leaf: &mut dyn FnMut()) -> u64 {
    match N % 4 {
        0 => framed::<N, 1>(path, leaf),
        1 => framed::<N, 3>(path, leaf),
        2 => framed::<N, 8>(path, leaf),
        _ => framed::<N, 17>(path, leaf),
    }
}

#[inline(always)]
fn framed<const N: usize, const WORDS: usize>(path: &[u16], leaf: &mut dyn FnMut()) -> u64 {
    let local = black_box([N as u64; WORDS]);
    let below = match path {
        [] => {
            leaf();
            1
        }
        [first, rest @ ..] => TABLE[usize::from(*first) % SITES](rest, leaf),
    };
    below
        .wrapping_mul(N as u64 | 1)
        .wrapping_add(black_box(local)[0])
}

macro_rules! sites {
    ($table:ident; $($high:literal)*) => {
        $( sites!(@row $table, $high, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15); )*
    };
    (@row $table:ident, $high:literal, $($low:literal)*) => {
        $( $table[$high * 16 + $low] = site::<{ $high * 16 + $low }>; )*
    };
}

static TABLE: [Site; SITES] = {
    let mut table: [Site; SITES] = [site::<0>; SITES];
    sites!(table;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61
        62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91
        92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115
        116 117 118 119 120 121 122 123 124 125 126 127);
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_site_is_a_function_of_its_own() {
        let addresses: HashSet<usize> = TABLE.iter().map(|f| *f as usize).collect();
        assert_eq!(addresses.len(), SITES);
    }

    #[test]
    fn the_leaf_runs_once_below_the_asked_frames() {
        let mut runs = 0;
        at_depth(30, &mut || runs += 1);
        at_sites(&[5, 2_047, 5], &mut || runs += 1);
        assert_eq!(runs, 2);
    }
}
