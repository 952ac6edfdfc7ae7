//! `/proc/kallsyms`: functions of the kernel, its modules, and BPF programs.

use crate::limits;
use std::io::Read;
use std::ops::Range;

/// Functions by address.
#[derive(Debug, Default)]
pub struct Kallsyms {
    /// Address and place of its name, ascending.
    functions: Vec<(u64, u32)>,
    /// Names, each ended by a newline.
    names: Vec<u8>,
    /// The kernel's own code.
    text: Range<u64>,
}

impl Kallsyms {
    /// Reads the running kernel's; empty where addresses are hidden (`kernel.kptr_restrict`, no CAP_SYSLOG).
    pub fn read() -> Kallsyms {
        let mut text = Vec::new();
        let file = std::fs::File::open("/proc/kallsyms");
        if let Ok(file) = file {
            let _ = file.take(limits::KALLSYMS_BYTES).read_to_end(&mut text);
        }
        Kallsyms::parse(&text)
    }

    /// Reads lines of `address type name`, with `[module]` behind the name of what is in a module.
    pub fn parse(text: &[u8]) -> Kallsyms {
        let mut found = Kallsyms::default();
        for line in text.split(|&byte| byte == b'\n') {
            let Some((address, name)) = function(line) else {
                continue;
            };
            let Ok(place) = u32::try_from(found.names.len()) else {
                break;
            };
            found.functions.push((address, place));
            match name {
                b"_stext" => found.text.start = address,
                b"_etext" => found.text.end = address,
                _ => {}
            }
            let name = name.get(..limits::NAME_BYTES).unwrap_or(name);
            let spaced = name
                .iter()
                .map(|&byte| if byte == b'\t' { b' ' } else { byte });
            found.names.extend(spaced);
            found.names.push(b'\n');
        }
        // Stable: of several names at one address the first one is shown.
        found.functions.sort_by_key(|(address, _)| *address);
        found.functions.dedup_by_key(|(address, _)| *address);
        found.functions.shrink_to_fit();
        found.names.shrink_to_fit();
        found
    }

    /// The function that holds `address`: the last one that begins at or below it. A name of a module is followed by
    /// ` [module]`.
    pub fn find(&self, address: u64) -> Option<&str> {
        let above = self
            .functions
            .partition_point(|(start, _)| *start <= address);
        let (_, place) = self.functions.get(above.checked_sub(1)?)?;
        let rest = self.names.get(*place as usize..)?;
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        std::str::from_utf8(rest.get(..end)?).ok()
    }

    /// Whether the name of `address` stays while the kernel runs: it is the kernel's own code, and not that of a module or a
    /// BPF program.
    pub fn is_fixed(&self, address: u64) -> bool {
        self.text.contains(&address)
    }

    /// No address is known.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.functions.len()
    }
}

/// Address and name of a line that is a function; hidden addresses are 0.
fn function(line: &[u8]) -> Option<(u64, &[u8])> {
    let (address, rest) = line.split_at_checked(16)?;
    let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
    let name = match rest {
        [b' ', b't' | b'T' | b'w' | b'W', b' ', name @ ..] => name,
        _ => return None,
    };
    (address != 0 && !name.is_empty()).then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_kernel_modules_and_bpf_are_found_and_hidden_ones_are_not() {
        let text = b"ffffffff81000000 T _stext\nffffffff81000000 T startup_64\nffffffff81000200 t do_one\n\
            ffffffff81000300 d data\nffffffffc0001000 t nf_hook\t[nf_tables]\nffffffffc0002000 t bpf_prog_ab_name\t[bpf]\n\
            ffffffff81000800 T _etext\nbroken\n0000000000000000 T hidden\n";
        let all = Kallsyms::parse(text);
        assert_eq!(all.len(), 5);
        let fixed = [
            0xffffffff80ffffff,
            0xffffffff81000000,
            0xffffffff810007ff,
            0xffffffffc0001004,
        ];
        assert_eq!(
            fixed.map(|address| all.is_fixed(address)),
            [false, true, true, false]
        );
        assert!(!Kallsyms::default().is_fixed(0));
        assert_eq!(all.find(0xffffffff81000000), Some("_stext"));
        assert_eq!(all.find(0xffffffff81000310), Some("do_one"));
        assert_eq!(all.find(0xffffffffc0001004), Some("nf_hook [nf_tables]"));
        assert_eq!(all.find(0xffffffffc0002004), Some("bpf_prog_ab_name [bpf]"));
        assert_eq!(all.find(0x1000), None);
        assert!(Kallsyms::parse(b"0000000000000000 T _stext\n").is_empty());
    }
}
