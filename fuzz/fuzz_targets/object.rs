//! Any bytes as an ELF file and as a lookup table, and a real program with bytes of the input in
//! it: what was read answers any address.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pilotlight_symbolize::Object;
use pilotlight_symbolize::tables::{Limits, Sources, Table, build, inspect};

/// This program is too large to be built anew for each input; a part of its head will do.
const TAKEN: usize = 64 << 10;

fuzz_target!(|data: &[u8]| {
    ask_table(data);
    read(data);
    // Two bytes say where, the rest is what stands there.
    if let [high, low, rest @ ..] = data {
        let mut real = program().to_vec();
        let at = usize::from(u16::from_be_bytes([*high, *low])) % real.len();
        let len = rest.len().min(real.len() - at);
        real[at..at + len].copy_from_slice(&rest[..len]);
        read(&real);
    }
});

fn program() -> &'static [u8] {
    static PROGRAM: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut bytes = std::fs::read("/bin/true").unwrap_or_default();
        bytes.truncate(TAKEN);
        bytes.resize(bytes.len().max(64), 0);
        bytes
    })
}

fn read(bytes: &[u8]) {
    let _ = inspect(bytes);
    if let Ok(object) = Object::parse(bytes.to_vec()) {
        let starts = object.segments().iter().map(|segment| segment.svma);
        for svma in starts.take(4).chain([0, u64::MAX]) {
            let _ = (object.symbol(svma), object.frames(svma));
            let _ = object.file_offset_to_svma(svma);
        }
    }
    let mut table = Vec::new();
    let limits = Limits {
        table_bytes: 8 << 20,
        inflated_bytes: 8 << 20,
        ..Limits::default()
    };
    if build(&Sources::of(bytes), &limits, &mut table).is_ok() {
        assert!(ask_table(&table), "a table that was built cannot be opened");
    }
}

fn ask_table(bytes: &[u8]) -> bool {
    let Ok(table) = Table::open(bytes) else {
        return false;
    };
    let code = table.code();
    for svma in [
        code.start,
        code.start / 2 + code.end / 2,
        code.end,
        0,
        u64::MAX,
    ] {
        let _ = table.frames(svma);
        let _ = table.file_offset_to_svma(svma);
    }
    let _ = (table.quality(), table.function_count());
    true
}
