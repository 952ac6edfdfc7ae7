//! What both sides lay out alike; the other half is `c/shared.h`.

use crate::sys::Plain;

/// log2 of the words of a shard.
pub const SHARD_BITS: u32 = 18;
/// Words of a shard.
pub const SHARD_WORDS: u32 = 1 << SHARD_BITS;
/// Shards that the outer map has room for.
pub const SHARDS: u32 = 1024;
/// Files that have a number at a time. Number 0 is none.
pub const FILES: u32 = 16_384;
/// Distinct rules of all files.
pub const RULES: usize = 32_768;
/// Processes with an interpreter.
pub const RUNTIMES: usize = 4096;
/// Entries of one map of counts.
pub const COUNTS: usize = 16_384;
/// Frames at the leaf that are kept whatever happens.
pub const LEAF_FRAMES: usize = 64;
/// Frames at the root that are kept.
pub const ROOT_FRAMES: usize = 1024;
/// Rules that each CPU remembers.
pub const RECENT_RULES: u32 = 2048;
/// Words of a page's entry in a directory.
pub const DIRECTORY_WORDS: usize = 10;
/// Parts of a page that an entry knows the rows of, 4 KiB each.
pub const PARTS: usize = 16;
/// Words of a [`Mapping`].
pub const MAPPING_WORDS: u32 = 8;
/// Bytes of a stack record before its frames.
pub const STACK_HEADER: usize = 24;

macro_rules! plain {
    ($($name:ty),*) => {
        $(
            // SAFETY: `repr(C)`, integers only, no padding.
            unsafe impl Plain for $name {}
        )*
    };
}
plain!(
    File,
    Rule,
    Process,
    Runtime,
    Key,
    Count,
    Control,
    RawHeader,
    StackHeader
);

/// `struct file`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct File {
    pub directory: u32,
    pub pages: u32,
    pub has_cfi: u32,
    pub used: u32,
}

/// `struct rule`: 12 bytes of `pilotlight_unwind::Rule`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Rule(pub [u32; 3]);

impl From<pilotlight_unwind::Rule> for Rule {
    fn from(rule: pilotlight_unwind::Rule) -> Rule {
        let head = [
            rule.kind as u8,
            rule.bp_saved as u8,
            rule.bx_saved as u8,
            rule.extra as u8,
        ];
        let [a, b] = rule.bp.to_le_bytes();
        let [c, d] = rule.bx.to_le_bytes();
        Rule([
            u32::from_le_bytes(head),
            rule.cfa as u32,
            u32::from_le_bytes([a, b, c, d]),
        ])
    }
}

/// `struct process`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    pub mappings: u32,
    pub count: u32,
    pub image: u32,
    pub version: u32,
    pub has_runtime: u32,
}

/// `struct runtime`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Runtime {
    pub interpreters: u64,
    pub loop_start: u64,
    pub loop_bytes: u64,
    pub pointer_mask: u64,
    pub offsets: crate::runtime::Offsets,
    pub pad: u32,
}

/// `struct key`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    pub pid: u32,
    pub tid: u32,
    pub user: u64,
    pub kernel: u64,
    pub what: u32,
    pub wait: u32,
    pub image: u32,
    pub pad: u32,
}

/// `struct count`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub samples: u64,
    pub ns: u64,
}

/// `struct control`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    pub odd: u32,
    pub window: u32,
}

/// `struct stack_record` without its frames.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StackHeader {
    pub kind: u32,
    pub frames: u32,
    pub hash: u64,
    pub pid: u32,
    pub end: u32,
}

/// `struct raw_record` without its stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawHeader {
    pub kind: u32,
    pub bytes: u32,
    pub key: Key,
    pub time_ns: u64,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    pub bx: u64,
    pub call: i64,
    pub duration_ns: u64,
    pub exact: u32,
    pub end: u32,
}

/// Kinds of records in the ring.
pub const RECORD_USER_STACK: u32 = 1;
/// See [`RECORD_USER_STACK`].
pub const RECORD_KERNEL_STACK: u32 = 2;
/// See [`RECORD_USER_STACK`].
pub const RECORD_RAW: u32 = 3;
/// See [`RECORD_USER_STACK`].
pub const RECORD_CHECK: u32 = 4;

/// Off the CPU, in [`Key::what`].
pub const OFF_CPU: u32 = 1;

/// Names of the counters, in the order of the enum in `c/shared.h`.
pub const COUNTERS: [&str; 26] = [
    "ticks",
    "idle",
    "counted",
    "raw",
    "counts_full",
    "ring_full",
    "other_process",
    "no_scratch",
    "stack_ring_full",
    "raw_limit",
    "frames",
    "switches",
    "switches_kept",
    "switches_full",
    "end_walking",
    "end_root",
    "end_too_deep",
    "end_unknown_code",
    "end_no_table",
    "end_no_rule",
    "end_bad_frame_pointer",
    "end_bad_stack",
    "end_no_user_stack",
    "end_unknown_process",
    "checks",
    "checks_ring_full",
];

/// Index of the first of the `end_` counters.
pub const END_FIRST: usize = 14;

/// Why a walk ended, for [`StackHeader::end`]; `None` at the root.
pub fn cut(end: u32) -> Option<&'static str> {
    const ROOT: u32 = 1;
    if end == ROOT {
        return None;
    }
    let name = COUNTERS
        .get(END_FIRST + end as usize)
        .copied()
        .unwrap_or("end_other");
    name.strip_prefix("end_")
}
