//! What the committed object asks of a kernel, read from its instructions.

use std::collections::BTreeMap;

const OBJECT: &[u8] = include_bytes!("../objects/agent.bpf.o");

/// Helpers that the programs may call, and the kernel that had them first (`include/uapi/linux/bpf.h`).
const HELPERS: [(i32, &str, (u32, u32)); 14] = [
    (1, "map_lookup_elem", (3, 19)),
    (2, "map_update_elem", (3, 19)),
    (3, "map_delete_elem", (3, 19)),
    (5, "ktime_get_ns", (4, 1)),
    (7, "get_prandom_u32", (4, 1)),
    (8, "get_smp_processor_id", (4, 1)),
    (14, "get_current_pid_tgid", (4, 2)),
    (67, "get_stack", (4, 18)),
    (112, "probe_read_user", (5, 5)),
    (113, "probe_read_kernel", (5, 5)),
    (130, "ringbuf_output", (5, 8)),
    (158, "get_current_task_btf", (5, 11)),
    (175, "task_pt_regs", (5, 15)),
    (35, "get_current_task", (4, 8)),
];
/// What the documentation says.
const DOCUMENTED: (u32, u32) = (5, 10);
/// Called only where the kernel has them (`KERNEL_HAS` in `c/helpers.h`), as often as they stand there: once a program that
/// looks at registers.
const NEWER: [(&str, u32); 2] = [("get_current_task_btf", 2), ("task_pt_regs", 2)];

fn number<const N: usize>(at: usize) -> u64 {
    let bytes: [u8; N] = OBJECT[at..at + N].try_into().unwrap();
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Instructions of all sections of code: opcode, source register, immediate.
fn instructions() -> Vec<(u8, u8, i32)> {
    let (table, size, count) = (number::<8>(40), number::<2>(58), number::<2>(60));
    let mut out = Vec::new();
    for section in 0..count {
        let header = (table + section * size) as usize;
        // SHT_PROGBITS with SHF_EXECINSTR.
        if number::<4>(header + 4) != 1 || number::<8>(header + 8) & 4 == 0 {
            continue;
        }
        let (offset, bytes) = (
            number::<8>(header + 24) as usize,
            number::<8>(header + 32) as usize,
        );
        let mut code = OBJECT[offset..offset + bytes].chunks_exact(8);
        while let Some(word) = code.next() {
            let immediate = i32::from_le_bytes(word[4..8].try_into().unwrap());
            out.push((word[0], word[1] >> 4, immediate));
            if word[0] == LOAD_64 {
                // Its second half is no instruction.
                code.next();
            }
        }
    }
    out
}

const LOAD_64: u8 = 0x18;
const CALL: u8 = 0x85;
/// `BPF_STX | BPF_ATOMIC`, of 4 and 8 bytes.
const ATOMIC: [u8; 2] = [0xc3, 0xdb];

#[test]
fn no_helper_is_newer_than_the_kernel_that_is_documented() {
    let instructions = instructions();
    assert!(instructions.len() > 2000, "{}", instructions.len());
    let mut called: BTreeMap<i32, u32> = BTreeMap::new();
    for (opcode, source, immediate) in instructions {
        // A source register of 1 is a call of our own function, of 2 one of the kernel's (kfunc).
        assert!(
            opcode != CALL || source < 2,
            "kfuncs are in no table of helpers"
        );
        if opcode == CALL && source == 0 {
            *called.entry(immediate).or_default() += 1;
        }
        // Anything but a plain addition is of 5.12.
        assert!(
            !ATOMIC.contains(&opcode) || immediate == 0,
            "{immediate:#x}"
        );
    }
    let known = |helper: &i32| HELPERS.iter().find(|(number, ..)| number == helper);
    let mut newer = Vec::new();
    for (helper, times) in &called {
        let (_, name, since) =
            known(helper).unwrap_or_else(|| panic!("helper {helper} is new: what kernel has it?"));
        println!("{times:4} x {helper:3} {name:24} {}.{}", since.0, since.1);
        if *since > DOCUMENTED {
            newer.push((*name, *times));
        }
    }
    assert_eq!(newer, NEWER);
}
