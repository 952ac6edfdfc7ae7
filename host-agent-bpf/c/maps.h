// SPDX-License-Identifier: MIT OR GPL-2.0
#pragma once
#include "helpers.h"
#include "shared.h"

// Set by the loader before the programs are verified.
const volatile u32 pid_level = 0; // depth of the agent's pid namespace
const volatile u32 only_pid = 0; // 0: every process
const volatile u32 with_idle = 0;
const volatile u32 with_kernel = 1;
const volatile u32 by_thread = 0;
const volatile u32 raw_per_process = 128; // in a window of a second
const volatile u32 raw_per_cpu = 200;
const volatile u32 verify_chance = 0; // out of 2^32; 0: no sample is walked twice
const volatile u64 offcpu_min_ns = 0;
const volatile u32 offcpu_chance = 0xffffffff; // out of 2^32

struct {
	UINT(type, MAP_ARRAY_OF_MAPS);
	UINT(max_entries, SHARDS);
	UINT(key_size, 4);
	__attribute__((aligned(8))) struct {
		UINT(type, MAP_ARRAY);
		UINT(max_entries, 1);
		UINT(key_size, 4);
		UINT(value_size, SHARD_WORDS * 4);
		UINT(map_flags, MAP_MMAPABLE);
	} *values[];
} shards SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, FILES);
	TYPE(key, u32);
	TYPE(value, struct file);
} files SECTION(".maps");

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, RULES);
	TYPE(key, u32);
	TYPE(value, struct rule);
} rules SECTION(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct process);
} processes SECTION(".maps");

struct counts {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, struct key);
	TYPE(value, struct count);
};
// Two, so that one is drained while nobody writes to it.
struct counts counts_even SECTION(".maps");
struct counts counts_odd SECTION(".maps");

struct control {
	u32 odd; // which counts are written
	u32 window;
};
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct control);
} control SECTION(".maps");

// Stacks that were sent already; one that falls out is sent again.
struct {
	UINT(type, MAP_LRU_HASH);
	UINT(max_entries, 32768);
	TYPE(key, u64);
	TYPE(value, u32);
} seen SECTION(".maps");

struct limit {
	u32 window;
	u32 taken;
};
struct {
	UINT(type, MAP_LRU_HASH);
	UINT(max_entries, 4096);
	TYPE(key, u32);
	TYPE(value, struct limit);
} limits SECTION(".maps");

struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1 << 21);
} ring SECTION(".maps");

// One value: what a tick adds to lies together.
struct counters {
	u64 of[COUNTERS];
};
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct counters);
} counters SECTION(".maps");

// Rules that were found a moment ago: of an address in the memory that a version of a list describes.
// Each CPU has entries of its own, chosen by the address. A search
// touches ten pages of memory, this one.
struct recent {
	u64 pc;
	u32 version; // 0: nothing here
	u32 epoch; // entries do not outlive it, so that tables in use are seen to be
	struct rule rule;
	u32 has_cfi;
};
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, RECENT_RULES); // times CPUs, by the loader
	TYPE(key, u32);
	TYPE(value, struct recent);
} recents SECTION(".maps");

struct waiting {
	u64 since_ns;
	struct key key;
};
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct waiting);
} waits SECTION(".maps");

// The state of a walk, and what it leaves behind.
struct scratch {
	u64 ip, sp, bp, bx;
	u64 start, end, base; // of the mapping in use
	u32 file;
	u32 exact;
	u32 mappings, count;
	u32 window;
	u32 switched; // how often a walk left one stack for another
	u32 version;
	u32 recents; // where this CPU's begin
	u32 pad;
	u64 saved[8]; // the words below the CFA
	u64 loop_start, loop_size; // an interpreter's loop; size 0: none
	struct limit limit; // raw samples of this CPU
	struct stack_record user;
	struct kernel_record kernel;
	struct raw_record raw;
};
// One for ticks and one for switches: a tick may come in the middle of a switch.
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 2);
	TYPE(key, u32);
	TYPE(value, struct scratch);
} scratches SECTION(".maps");

static always_inline struct scratch *scratch_of(u32 what)
{
	return bpf_map_lookup_elem(&scratches, &what);
}

static always_inline void add(u32 counter, u64 n)
{
	u32 zero = 0;
	struct counters *counts = bpf_map_lookup_elem(&counters, &zero);
	if (counts && counter < COUNTERS)
		counts->of[counter] += n;
}
