//! Any bytes as what names code of a process: perf map, jitdump, kallsyms, V8, HotSpot's answer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pilotlight_host_agent::hostile::names(data));
