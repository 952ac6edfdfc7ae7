//! Any text as a selector or a label set.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| pilotlight_server::fuzz::selector(text));
