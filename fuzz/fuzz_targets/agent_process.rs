//! Any bytes as what `/proc` and perf say of a process.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pilotlight_host_agent::hostile::process(data));
