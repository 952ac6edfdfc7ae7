//! `perf_event_open` (`include/uapi/linux/perf_event.h`).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `struct perf_event_attr` up to version 5.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_watermark: u32,
    pub breakpoint_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub branch_sample_type: u64,
    pub sample_regs_user: u64,
    pub sample_stack_user: u32,
    pub clock_id: i32,
    pub sample_regs_intr: u64,
    pub aux_watermark: u32,
    pub sample_max_stack: u16,
    pub reserved: u16,
}

pub(super) const SOFTWARE: u32 = 1;
pub(super) const DUMMY: u64 = 9;

pub(super) mod sample {
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const REGISTERS: u64 = 1 << 12;
    pub const STACK: u64 = 1 << 13;
}

pub(super) mod flag {
    pub const DISABLED: u64 = 1;
    pub const INHERIT: u64 = 1 << 1;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
    pub const EXCLUDE_IDLE: u64 = 1 << 7;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    pub const TASK: u64 = 1 << 13;
    pub const WATERMARK: u64 = 1 << 14;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const EXCLUDE_KERNEL_CHAIN: u64 = 1 << 21;
    pub const EXCLUDE_USER_CHAIN: u64 = 1 << 22;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCK_ID: u64 = 1 << 25;
}

const CLOSE_ON_EXEC: libc::c_ulong = 8;
const ENABLE: libc::c_ulong = 0x2400;
const SET_OUTPUT: libc::c_ulong = 0x2405;

/// Opens an event of `pid` (-1: all, 0: this thread) on `cpu`.
pub(super) fn open(attributes: &Attributes, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        ..attributes.clone()
    };
    // SAFETY: reads the structure, whose size it carries.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &attributes,
            pid,
            cpu,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as RawFd) })
}

/// Lets `event` count.
pub(super) fn enable(event: &OwnedFd) -> io::Result<()> {
    control(event, ENABLE, 0)
}

/// Sends what `event` records to the ring of `to`.
pub(super) fn redirect(event: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    control(event, SET_OUTPUT, to.as_raw_fd() as libc::c_ulong)
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: an event's descriptor; the requests take a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), request as _, argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `CLOCK_MONOTONIC`, the clock of all records.
pub(super) fn monotonic_ns() -> u64 {
    time_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since the Unix epoch.
pub(super) fn unix_ns() -> u64 {
    time_ns(libc::CLOCK_REALTIME)
}

fn time_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills `time`.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
