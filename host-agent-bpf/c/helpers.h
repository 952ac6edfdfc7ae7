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
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static long (*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
static long (*bpf_loop)(u32 count, void *callback, void *context, u64 flags) = (void *)181;
#else
#define SECTION(name)
#include "host.h"
#endif

#define barrier() asm volatile("" : : : "memory")
// The compiler may neither see through a value that passes here nor turn masks back into branches.
#define opaque(x) asm volatile("" : "+r"(x))
