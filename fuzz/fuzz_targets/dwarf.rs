//! The debug sections of a small program, and the file that it shares DWARF with, with bytes of the
//! input in them: a table is built or refused, and a table that was built can be opened.

#![no_main]

use std::process::Command;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use pilotlight_symbolize::tables::{Limits, Sources, Table, build};

const SOURCE: &str = "
struct common { int first_field; long second_field; struct common *next; };
static inline __attribute__((always_inline)) int shared_square(struct common *it, int n) {
    it->first_field += n;
    return n * n + it->first_field;
}
__attribute__((noinline)) int leaf_NAME(struct common *it, int n) { return shared_square(it, n) + 1; }
int main(int c, char **v) { struct common it = {0}; return leaf_NAME(&it, c) + it.first_field; }
";

fuzz_target!(|data: &[u8]| {
    let [which, high, low, rest @ ..] = data else {
        return;
    };
    let (object, shared) = files();
    let at = usize::from(u16::from_be_bytes([*high, *low]));
    let (mut object, mut shared) = (object.clone(), shared.clone());
    let file = if which & 1 == 0 || shared.is_empty() {
        &mut object
    } else {
        &mut shared
    };
    let at = at % file.len();
    let len = rest.len().min(file.len() - at);
    file[at..at + len].copy_from_slice(&rest[..len]);
    let sources = Sources {
        supplementary: (!shared.is_empty()).then_some(&shared),
        ..Sources::of(&object)
    };
    let limits = Limits {
        table_bytes: 8 << 20,
        inflated_bytes: 8 << 20,
        ..Limits::default()
    };
    let mut table = Vec::new();
    if build(&sources, &limits, &mut table).is_ok() {
        let table = Table::open(&table).expect("a table that was built opens");
        let code = table.code();
        for svma in (code.start..code.end).step_by(16).take(256) {
            let _ = table.frames(svma);
        }
    }
});

/// The program without its code, and what it shares: empty where there is no dwz.
fn files() -> &'static (Vec<u8>, Vec<u8>) {
    static FILES: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("pilotlight-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the program");
        for name in ["one", "two"] {
            let source = folder.join(format!("{name}.c"));
            std::fs::write(&source, SOURCE.replace("NAME", name)).expect("the source");
            let out = folder.join(name);
            run(Command::new("cc")
                .args(["-g", "-O2", "-o"])
                .arg(&out)
                .arg(&source));
            run(Command::new("objcopy").arg("--only-keep-debug").arg(&out));
        }
        let shared = folder.join("shared");
        let dwz = Command::new("dwz")
            .arg("-m")
            .arg(&shared)
            .args(["one", "two"].map(|of| folder.join(of)))
            .status();
        let shared = dwz.ok().and_then(|_| std::fs::read(shared).ok());
        let object = std::fs::read(folder.join("one")).expect("the program");
        let _ = std::fs::remove_dir_all(&folder);
        (object, shared.unwrap_or_default())
    })
}

fn run(command: &mut Command) {
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?}");
}
