// SPDX-License-Identifier: MIT OR GPL-2.0
// Kernel helpers by their numbers in include/uapi/linux/bpf.h. A host build answers the same names
// from a recorded bundle.
#pragma once
#include "types.h"

#define always_inline inline __attribute__((always_inline))
// A function that the verifier checks once, by itself, whoever calls it.
#define global_function __attribute__((noinline))
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_ARRAY = 6,
	MAP_LRU_HASH = 9,
	MAP_ARRAY_OF_MAPS = 12,
	MAP_RINGBUF = 27,
};

#define MAP_MMAPABLE (1U << 10)
#define ANY 0
#define NOEXIST 1
#define RB_NO_WAKEUP 1
#define RB_FORCE_WAKEUP 2

#ifndef PILOTLIGHT_HOST
#define SECTION(name) __attribute__((section(name), used))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_get_stack)(void *ctx, void *out, u32 size, u64 flags) = (void *)67;
static long (*bpf_probe_read_user)(void *out, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *out, u32 size, const void *from) = (void *)113;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static u64 (*bpf_get_current_task)(void) = (void *)35;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static long (*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

// Helpers that came after the oldest kernel that the programs run on. The loader puts in whether the kernel's own list
// has them; the verifier never looks at the branch that is not taken.
enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
};
#define KERNEL_HAS(helper) __builtin_preserve_enum_value(*(enum bpf_func_id *)BPF_FUNC_##helper, 0)
// Whether this kernel's struct has the field, whatever its offset.
#define HAS_FIELD(value) __builtin_preserve_field_info(value, 2)
#else
#define SECTION(name)
#include "host.h"
#endif

// A field of a kernel's struct that only its address is known of.
#define READ_KERNEL(from, field) \
	({ \
		typeof((from)->field) value = 0; \
		bpf_probe_read_kernel(&value, sizeof(value), &(from)->field); \
		value; \
	})

// `name(what)`: calls `one(what)` until it says that it is enough, `most` times (a multiple of 64) at most. Both are global
// functions: their bodies are verified once, not once a turn, and the loops cost the verifier some hundred instructions.
#define TURNS 64
#define REPEATED(name, one, most) \
	global_function u32 name##_some(u32 what) \
	{ \
		for (u32 turn = 0; turn < TURNS; turn++) \
			if (one(what)) \
				return 1; \
		return 0; \
	} \
	static always_inline void name(u32 what) \
	{ \
		for (u32 turn = 0; turn < (most) / TURNS; turn++) \
			if (name##_some(what)) \
				return; \
	}

#define barrier() asm volatile("" : : : "memory")
// The compiler may neither see through a value that passes here nor turn masks back into branches.
#define opaque(x) asm volatile("" : "+r"(x))
