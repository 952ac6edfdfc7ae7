//! What is read of a profiled process at most. Beyond it nothing fails; it is counted and left out.

/// Mappings of one process that are looked at.
pub const MAPPINGS: usize = 65_536;
/// Mappings of one process up to which each new one is told; those of a process that has more are read at times.
pub const TOLD_MAPPINGS: usize = 4096;
/// Bytes of `/proc/PID/maps`.
pub const MAPS_BYTES: u64 = 16 << 20;
/// Bytes of `/proc/PID/stat`, `status` and `cgroup`.
pub const PROC_FILE_BYTES: u64 = 64 << 10;
/// Bytes of `/proc/PID/environ`.
pub const ENVIRON_BYTES: u64 = 256 << 10;
/// Bytes of a path.
pub const PATH_BYTES: usize = 4096;
/// Processes that are remembered.
pub const PROCESSES: usize = 32_768;
/// Files whose tables are kept.
pub const FILES: usize = 4096;
/// Bytes of one file that unwinding reads: its headers, notes and the segment with `.eh_frame`.
pub const FILE_BYTES: u64 = 512 << 20;
/// Program headers of one file.
pub const PROGRAM_HEADERS: usize = 512;
/// Frames of one stack.
pub const FRAMES: usize = 1024;
/// Bytes of `/proc/kallsyms`.
pub const KALLSYMS_BYTES: u64 = 64 << 20;
/// Bytes of one name.
pub const NAME_BYTES: usize = 1024;
/// Bytes of the names that one process wrote down.
pub const JIT_BYTES: usize = 32 << 20;
/// Ranges that one process named.
pub const JIT_RANGES: usize = 400_000;
/// Bytes of one perf map or jitdump.
pub const JIT_FILE_BYTES: u64 = 1 << 30;
/// Bytes of such a file that are read at once; no record of it may be longer.
pub const JIT_PIECE_BYTES: usize = 1 << 20;
/// Processes whose names are kept.
pub const JIT_PROCESSES: usize = 64;
/// Bytes of the process context that a process publishes.
pub const CONTEXT_BYTES: usize = 64 << 10;
