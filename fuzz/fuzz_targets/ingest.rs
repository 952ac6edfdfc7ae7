//! Any bytes as a body of Pyroscope's older push: recordings, trees, tries, folded text, speedscope,
//! forms. The first byte says the format.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: write_seeds(),
    |body: &[u8]| pilotlight_server::fuzz::ingest(body)
);

/// A whole recording, packed: the engine finds none by itself.
fn write_seeds() {
    const RECORDING: &[u8] = include_bytes!("../../server/tests/fixtures/jfr/hot.jfr.gz");
    const JFR: u8 = 5;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/ingest");
    if std::fs::create_dir_all(&folder).is_ok() {
        let _ = std::fs::write(folder.join("recording"), [&[JFR], RECORDING].concat());
    }
}
