//! Any bytes as messages of Parca's clients, and as descriptions of debug information.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| pilotlight_server::fuzz::messages(body));
