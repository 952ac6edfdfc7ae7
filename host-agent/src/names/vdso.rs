//! Functions of the vdso, which no file has: the kernel maps one and the same into every process, so ours tells.

use pilotlight_symbolize::Object;
use std::sync::OnceLock;

/// The name of the function `offset` bytes into the vdso; `None` for its nameless ones.
#[must_use]
pub fn find(offset: u64) -> Option<String> {
    static VDSO: OnceLock<Option<Object>> = OnceLock::new();
    let object = VDSO.get_or_init(own).as_ref()?;
    let symbol = object.symbol(object.file_offset_to_svma(offset)?)?;
    Some(String::from_utf8_lossy(symbol.name).into_owned())
}

fn own() -> Option<Object> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, rest) = line.split_once('-')?;
    let end = rest.split(' ').next()?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    // SAFETY: the kernel mapped this range for as long as the process lives, readable and never written.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, end.checked_sub(start)?) };
    Object::parse(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn functions_of_the_clock_are_found() {
        let names: HashSet<String> = (0..16 << 10).filter_map(find).collect();
        for wanted in ["clock_gettime", "gettimeofday", "getcpu"] {
            let is = |name: &&String| name.trim_start_matches("__vdso_") == wanted;
            assert!(names.iter().any(|name| is(&name)), "{wanted}: {names:?}");
        }
        assert_eq!(find(0), None, "the header");
        assert_eq!(find(1 << 30), None);
    }
}
