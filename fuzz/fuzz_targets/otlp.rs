//! Any bytes as the body of an OTLP export, protobuf or JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| pilotlight_server::fuzz::otlp(body));
