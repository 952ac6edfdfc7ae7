// SPDX-License-Identifier: MIT OR GPL-2.0
// The few kernel types that the programs look at. Offsets are those of the running kernel: the
// loader relocates every access to a struct marked `RELOCATED` against the kernel's BTF.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

#ifndef PILOTLIGHT_HOST
#define RELOCATED __attribute__((preserve_access_index))
#else
#define RELOCATED
#endif

// Kernel ABI, include/uapi/asm/ptrace.h: saved registers in the order of the entry code.
struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};

// Kernel ABI, include/uapi/linux/bpf_perf_event.h.
struct bpf_perf_event_data {
	struct pt_regs regs;
	u64 sample_period;
	u64 addr;
};

struct upid {
	int nr;
} RELOCATED;

struct pid {
	u32 level;
	struct upid numbers[1];
} RELOCATED;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} RELOCATED;

struct thread_struct {
	unsigned long fsbase;
} RELOCATED;

struct task_struct {
	u32 flags;
	int pid;
	int tgid;
	unsigned int __state;
	void *stack;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct thread_struct thread;
} RELOCATED;

// Before 5.14.
struct task_struct___before_5_14 {
	long state;
} RELOCATED;

// arch/x86/include/asm/page_64_types.h, without KASAN. At the end of a task's stack are the registers that the kernel's
// entry saved; newer kernels may leave some bytes behind them, and have a helper that knows.
#define THREAD_SIZE (4 << 12)

// include/linux/sched.h: this task never had a user stack.
#define PF_KTHREAD 0x00200000
