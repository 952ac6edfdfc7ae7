//! Readable forms of names, bounded: a name is input.

use std::fmt::Write;

/// Longer names stay as they are.
const NAME_BYTES: usize = 16 << 10;
/// What a readable form is cut at.
const READABLE_BYTES: usize = 64 << 10;

/// What compilers append to a function's clones and parts. They change from build to build, so
/// the readable form goes without.
const CLONES: [&str; 8] = [
    "isra",
    "constprop",
    "part",
    "cold",
    "llvm",
    "lto_priv",
    "localalias",
    "clone",
];

/// The readable form of a Rust (legacy or v0), C++ (Itanium) or C name; `None` when it has no
/// other.
pub(crate) fn readable(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name)
        .ok()
        .filter(|n| n.len() <= NAME_BYTES)?;
    let plain = without_clones(name);
    // What C++ and Rust begin with.
    let mangled = ["_Z", "_R", "__Z"]
        .iter()
        .any(|prefix| plain.starts_with(prefix));
    let readable = if mangled { demangled(plain) } else { None };
    readable.or_else(|| (plain.len() < name.len()).then(|| plain.to_owned()))
}

fn demangled(name: &str) -> Option<String> {
    let mut out = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // What fits is kept.
        let _ = write!(out, "{rust:#}");
    } else {
        let symbol = cpp_demangle::Symbol::new(name).ok()?;
        let options = cpp_demangle::DemangleOptions::default();
        symbol.structured_demangle(&mut out, &options).ok()?;
    }
    Some(out.0).filter(|readable| readable != name)
}

/// The name before the suffixes of clones: `f.part.0.cold` is `f`.
fn without_clones(name: &str) -> &str {
    let mut plain = name;
    while let Some((before, last)) = plain.rsplit_once('.') {
        let number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
        let (before, kind) = match before.rsplit_once('.') {
            Some((before, kind)) if number => (before, kind),
            _ => (before, last),
        };
        if before.is_empty() || !CLONES.contains(&kind) {
            break;
        }
        plain = before;
    }
    plain
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > READABLE_BYTES {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn rust_and_cpp_names_become_readable() {
        let cases = [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvCsbmNqQUJIY6D_4core4main", "core::main"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("_Z3fooi.constprop.0", "foo(int)"),
            ("deflate.part.0.cold", "deflate"),
            (
                "_ZN4core3fmt5write17h0123456789abcdefE.llvm.6358398396995944546",
                "core::fmt::write",
            ),
            ("_ZdlPv", "operator delete(void*)"),
        ];
        for (name, expected) in cases {
            assert_eq!(
                readable(name.as_bytes()).as_deref(),
                Some(expected),
                "{name}"
            );
        }
        for name in ["malloc", "main.cold", "runtime.part.f", ".part.0", "a.0"] {
            let expected = (name == "main.cold").then_some("main");
            assert_eq!(readable(name.as_bytes()).as_deref(), expected, "{name}");
        }
        assert_eq!(readable(b"_Znonsense"), None);
        assert_eq!(readable(b"_Z\xff"), None);
    }

    #[test]
    fn a_name_that_grows_without_end_is_left() {
        // Each substitution doubles the text before it.
        let mut name = String::from("_Z1fSt4pairIiiE");
        for _ in 0..64 {
            name.push_str("S_IS_S_E");
        }
        let grown = readable(name.as_bytes());
        assert!(grown.is_none_or(|text| text.len() <= super::READABLE_BYTES));
    }
}
