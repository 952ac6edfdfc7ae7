//! Any bytes as an interpreter's file, memory, lines and stack.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pilotlight_host_agent::hostile::scripts(data).expect("a file in memory"));
