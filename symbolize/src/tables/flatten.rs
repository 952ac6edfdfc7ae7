//! Nested and overlapping ranges of scopes as one list.

use std::collections::BinaryHeap;

/// A range of addresses that belongs to a scope; a later one in the file lies on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub start: u32,
    pub end: u32,
    pub scope: u32,
}

/// What is on top at each address, by address. Scopes are numbered in the order of the file,
/// so an inlined function has a higher number than the one around it.
pub(crate) fn flatten(pieces: &mut [Piece]) -> Vec<Piece> {
    pieces.sort_unstable_by_key(|p| (p.start, p.scope));
    let mut flat: Vec<Piece> = Vec::with_capacity(pieces.len() * 2);
    // (scope, end) of pieces that began; ended ones leave when they come to the top.
    let mut open: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let mut at = 0;
    let mut emit = |start: u32, end: u32, scope: u32| match flat.last_mut() {
        Some(last) if last.end == start && last.scope == scope => last.end = end,
        _ => flat.push(Piece { start, end, scope }),
    };
    let mut until = |to: u32, at: &mut u32, open: &mut BinaryHeap<(u32, u32)>| {
        while *at < to {
            let Some(&(scope, end)) = open.peek() else {
                break;
            };
            if end <= *at {
                open.pop();
                continue;
            }
            let stop = end.min(to);
            emit(*at, stop, scope);
            *at = stop;
        }
        *at = to;
    };
    for piece in pieces.iter() {
        until(piece.start, &mut at, &mut open);
        open.push((piece.scope, piece.end));
    }
    until(u32::MAX, &mut at, &mut open);
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u32, end: u32, scope: u32) -> Piece {
        Piece { start, end, scope }
    }

    #[test]
    fn inner_ranges_cut_outer_ones() {
        let mut pieces = [
            piece(20, 30, 1),
            piece(10, 50, 0),
            piece(22, 25, 2),
            piece(60, 70, 3),
        ];
        let expected = [
            piece(10, 20, 0),
            piece(20, 22, 1),
            piece(22, 25, 2),
            piece(25, 30, 1),
            piece(30, 50, 0),
            piece(60, 70, 3),
        ];
        assert_eq!(flatten(&mut pieces), expected);
    }

    #[test]
    fn it_paints_as_a_painter_does() {
        let mut random = 7u32;
        for _ in 0..500 {
            let mut pieces = Vec::new();
            let mut canvas = [u32::MAX; 64];
            for scope in 0..8 {
                random = random.wrapping_mul(1664525).wrapping_add(1013904223);
                let (start, length) = ((random >> 8) % 50, 1 + (random >> 20) % 14);
                pieces.push(piece(start, start + length, scope));
                canvas[start as usize..(start + length) as usize].fill(scope);
            }
            let mut painted = [u32::MAX; 64];
            for p in flatten(&mut pieces) {
                painted[p.start as usize..p.end as usize].fill(p.scope);
            }
            assert_eq!(painted, canvas);
        }
    }
}
