//! Every reader of what a process may forge, for a fuzzer (`fuzz/fuzz_targets/agent_*.rs`) and for the tests below, which
//! damage good input in each place. Not an interface.

use crate::{labels, names, perf, process, runtimes};

/// Names of code: perf map, jitdump, kallsyms, what V8 writes, and what HotSpot answers.
pub fn names(input: &[u8]) {
    let mut ranges = names::Ranges::default();
    let read = names::perfmap::read(input, &mut ranges);
    assert!(read <= input.len(), "read {read} of {}", input.len());
    let kernel = names::Kallsyms::parse(input);
    let mut dumped = names::Ranges::default();
    if let Some(rest) = names::jitdump::header(input).and_then(|header| input.get(header..)) {
        let read = names::jitdump::read(rest, &mut dumped).unwrap_or(0);
        assert!(read <= rest.len(), "read {read} of {}", rest.len());
    }
    let _ = names::jitdump::read(input, &mut dumped);
    let words = input
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok());
    for address in words
        .map(u64::from_le_bytes)
        .chain([0, 0x1000, u64::MAX])
        .take(64)
    {
        for name in [
            ranges.find(address),
            dumped.find(address),
            kernel.find(address),
        ] {
            let _ = name.map(names::function);
        }
    }
    let _ = names::function(&String::from_utf8_lossy(input));
    let _ = names::hotspot::text_of(input);
}

/// What `/proc` and a process say of it: mappings, groups, variables, context, start, pids, and records of perf.
pub fn process(input: &[u8]) {
    let (mappings, _) = process::parse_maps(input, b"OTEL_CTX");
    let in_order = mappings.is_sorted_by_key(|mapping| mapping.start);
    assert!(in_order && mappings.iter().all(|m| m.start < m.end));
    let id = labels::container_id(input);
    assert!(id.is_none_or(|id| id.len() <= 64));
    let _ = labels::systemd_unit(input);
    process::hostile(input);
    perf::hostile(input);
}

/// What interpreters have in their memory and files.
///
/// # Errors
/// When a file in memory cannot be made.
pub fn scripts(input: &[u8]) -> std::io::Result<()> {
    runtimes::hostile(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Good input of each kind.
    fn seeds() -> Vec<Vec<u8>> {
        let words = |words: &[u64]| {
            words
                .iter()
                .flat_map(|w| w.to_ne_bytes())
                .collect::<Vec<_>>()
        };
        let jitdump = [
            &0x4a69_5444_u32.to_ne_bytes()[..],
            &[1, 0, 0, 0, 40, 0, 0, 0],
            &[0; 28],
            &words(&[72 << 32, 0, 1, 1, 0x1000, 0x20, 1]),
            b"first\0\x90\x90........",
            &words(&[1 | 64 << 32, 0, 0, 0, 0x1000, 0x5000, 0x20, 1]),
        ]
        .concat();
        let context = [
            &b"\x0a\x1e\x0a\x1c\x0a\x0c"[..],
            b"service.name\x12\x0c\x0a\x0acheckout-2",
            b"\x12\x1f\x0a\x15pilotlight.sdk.version\x12\x06\x0a\x040.1",
        ]
        .concat();
        let record = |kind: u64, tail: &[u8]| {
            let head = words(&[kind | (8 + tail.len() as u64) << 48]);
            [&head[..], tail].concat()
        };
        vec![
            b"1000 80 JS:~hot /tmp/a b.js:1:2\n0x00002000 0x40 void A.b(int, long)\n".to_vec(),
            b"ffffffff81000000 T _stext\nffffffffc0001000 t nf_hook\t[nf_tables]\n".to_vec(),
            b"0\nanswer of the process\n".to_vec(),
            b"55d0-55d8 r-xp 00000000 fd:01 1234   /usr/bin/x y\n7f00-7f10 rw-p 0 00:00 0 [anon:OTEL_CTX]\n".to_vec(),
            b"0::/system.slice/docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope\n".to_vec(),
            b"POD_NAME=web-1\0ZONE=a\nb\0".to_vec(),
            b"77 (a) R 1) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\nNSpid:\t4711\t1\n".to_vec(),
            jitdump,
            context,
            record(9, &words(&[7 | 8 << 32, 55, 2, 0x10, 0x21, 1, 4, 3, 2, 1, 16, 9, 9, 16])),
            record(10, &[&words(&[7 | 7 << 32, 0x1000, 0x1000, 0, 1, 2, 3, 5])[..], b"/usr/bin/x\0\0\0\0\0\0", &words(&[7, 55])].concat()),
            record(3, &[&words(&[7 | 8 << 32])[..], b"name\0\0\0\0", &words(&[7, 55])].concat()),
            runtimes::memory_of_python(),
            std::fs::read("/proc/self/maps").unwrap_or_default(),
        ]
    }

    fn all(input: &[u8]) {
        names(input);
        process(input);
        scripts(input).unwrap();
    }

    /// Small enough that each byte may be damaged.
    const EACH_BYTE: usize = 400;

    #[test]
    fn damaged_and_cut_input_of_each_kind_is_read_or_refused() {
        let mut random = 88_172_645_463_325_252_u64;
        for seed in seeds() {
            all(&seed);
            let step = seed.len() / EACH_BYTE + 1;
            for at in (0..seed.len()).step_by(step) {
                all(&seed[..at]);
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                for damage in [1, 0x80, 0xff, random as u8 | 1] {
                    let mut damaged = seed.clone();
                    damaged[at] ^= damage;
                    all(&damaged);
                }
                // A length or an address.
                let mut damaged = seed.clone();
                let end = (at + 8).min(seed.len());
                damaged[at..end].fill(0xff);
                all(&damaged);
            }
        }
    }

    #[test]
    fn seeds_are_what_they_look_like() {
        let seeds = seeds();
        let mut ranges = names::Ranges::default();
        names::perfmap::read(&seeds[0], &mut ranges);
        assert_eq!(ranges.find(0x2001), Some("void A.b(int, long)"));
        assert_eq!(names::Kallsyms::parse(&seeds[1]).len(), 2);
        assert_eq!(process::parse_maps(&seeds[3], b"OTEL_CTX").1, Some(0x7f00));
        assert!(labels::container_id(&seeds[4]).is_some());
        let mut dumped = names::Ranges::default();
        let header = names::jitdump::header(&seeds[7]).unwrap();
        names::jitdump::read(&seeds[7][header..], &mut dumped);
        assert_eq!(dumped.find(0x5000), Some("first"));
    }
}
