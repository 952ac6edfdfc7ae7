//! What is read of a profiled process at most. Beyond it nothing fails; it is counted and left out.

/// Mappings of one process that are looked at.
pub const MAPPINGS: usize = 65_536;
/// Bytes of `/proc/PID/maps`.
pub const MAPS_BYTES: u64 = 16 << 20;
/// Bytes of `/proc/PID/stat`, `status` and `cgroup`.
pub const PROC_FILE_BYTES: u64 = 64 << 10;
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
