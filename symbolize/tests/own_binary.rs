//! The test binary resolves its own functions.
// Helpers may fail a test.
#![allow(clippy::expect_used)]

use pilotlight_symbolize::Object;
use std::hint::black_box;

#[inline(always)]
fn innermost(x: u64) -> usize {
    let here: usize;
    // SAFETY: reads the instruction pointer.
    unsafe { std::arch::asm!("lea {}, [rip]", "nop", out(reg) here) };
    here + black_box(x) as usize
}

#[inline(always)]
fn middle(x: u64) -> usize {
    innermost(x)
}

#[inline(never)]
fn outermost(x: u64) -> usize {
    middle(x)
}

/// Address of `address` in the file: the load bias is where the file's first page is mapped.
fn svma(address: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is mounted");
    let exe = std::env::current_exe().expect("a running test has an executable");
    let line = maps
        .lines()
        .find(|l| l.ends_with(exe.to_str().expect("a plain path")));
    let start = line
        .expect("the executable is mapped")
        .split('-')
        .next()
        .unwrap_or_default();
    address as u64 - u64::from_str_radix(start, 16).expect("maps holds hex")
}

#[test]
fn inlined_functions_have_names_and_lines_innermost_first() {
    let object = Object::parse(std::fs::read("/proc/self/exe").unwrap()).unwrap();
    assert!(object.has_debug_info());
    let frames = object.frames(svma(outermost(0)));
    // Needs `debug = 1`: line tables alone name inlined functions without their path.
    let names: Vec<&str> = frames.iter().map(|f| f.function.as_str()).collect();
    let paths = [
        "own_binary::innermost",
        "own_binary::middle",
        "own_binary::outermost",
    ];
    assert_eq!(names, paths);
    let lines: Vec<Option<u32>> = frames.iter().map(|f| f.line).collect();
    assert_eq!(lines, [Some(12), Some(18), Some(23)]);
    for frame in &frames {
        assert!(
            frame
                .file
                .as_ref()
                .unwrap()
                .ends_with("symbolize/tests/own_binary.rs")
        );
    }
}
