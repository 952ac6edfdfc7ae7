//! Walks of this very process, from inside a real signal handler.

mod common;

use common::{Capture, capture, own_modules};
use pilotlight_unwind::{Cache, End};

#[inline(never)]
fn recurse(n: usize, capture_at_bottom: &mut dyn FnMut()) -> usize {
    if n == 0 {
        capture_at_bottom();
        return 0;
    }
    // Not a tail call: the result is used.
    std::hint::black_box(recurse(n - 1, capture_at_bottom)) + 1
}

#[test]
fn a_recursion_of_500_reaches_the_root_with_every_frame() {
    let modules = own_modules();
    let cache = Cache::new(&modules);
    let at = |depth| {
        let mut found = Capture::default();
        recurse(depth, &mut || found = capture(&modules, &cache));
        found
    };
    let (shallow, deep) = (at(0), at(500));
    assert_eq!(shallow.end, Some(End::Root), "{:x?}", shallow.frames);
    assert_eq!(deep.end, Some(End::Root));
    assert_eq!(deep.frames.len(), shallow.frames.len() + 500);
}
