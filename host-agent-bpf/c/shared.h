// SPDX-License-Identifier: MIT OR GPL-2.0
// What both sides lay out alike; the other half is host-agent/src/bpf/layout.rs.
#pragma once
#include "types.h"

// Tables and mapping lists live in one space of 4-byte words, cut into shards of 1 MiB. Nothing
// crosses from a shard into the next but a file as a whole.
#define SHARD_BITS 18
#define SHARD_WORDS (1U << SHARD_BITS)
#define SHARD_MASK (SHARD_WORDS - 1)
#define SHARDS 1024
#define FILES 16384
#define RULES 32768
#define RECENT_RULES 2048 // that each CPU remembers

// Files, rows and rules: docs/formats/unwind-table.md.
struct rule {
	u8 kind;
	u8 bp_saved;
	u8 bx_saved;
	s8 extra;
	s32 cfa;
	s16 bp;
	s16 bx;
};

enum { FRAME_POINTER, END, FROM_SP, FROM_BP, FROM_BX, DEREF_SP, DEREF_BP, PLT, SIGNAL, UNSUPPORTED };
enum { SAME, AT_CFA, AT_BP, LOST };

struct file {
	u32 directory; // word index of entries, one a page of 64 KiB; 0: no table here now
	u32 pages;
	u32 has_cfi;
	u32 used; // the last window it was looked at in
};

// Where a page's rows are: the word of the first, 0 when there are none; then, counted from it, the row in force at each
// 4 KiB of the page, and the last row; two of them a word. A search looks at one or two lines of rows, not at ten.
#define PART_BITS 12
#define PARTS 16
#define DIRECTORY_WORDS 10

// One executable mapping, 8 words; a process has them in ascending order.
struct mapping {
	u64 start;
	u64 end;
	u64 image_base; // where relative address 0 of the file's table is
	u32 file;
	u32 kind;
};
#define MAPPING_WORDS 8

struct process {
	u32 mappings; // word index
	u32 count;
	u32 image; // the agent's number for the program that it runs
	u32 version; // of the list: no other list ever has it
	u32 has_runtime;
};

// An interpreter in a process: where its loop is, and where in its structures things are (bytes).
struct runtime {
	u64 interpreters; // address of the pointer to the first one
	u64 loop_start, loop_size;
	u64 pointer_mask; // of pointers to code objects
	u32 interpreter_next, interpreter_threads;
	u32 thread_next, thread_id, thread_frame;
	u32 runs, run_frame, run_previous; // CPython up to 3.12: _PyCFrame
	u32 frame_code, frame_previous, frame_instruction, frame_kind;
	u32 last_kind; // value of the byte at frame_kind in the last frame of a run of the loop
	u32 code_names, code_instructions; // file, name, qualified name, lines: four pointers in a row
	u32 pad;
};

// Why a walk ended: 0 while it runs.
enum {
	WALKING,
	ROOT,
	TRUNCATED,
	NO_MAPPING,
	NO_TABLE,
	NO_RULE,
	BAD_FRAME_POINTER,
	BAD_STACK,
	NO_USER, // kernel thread
	UNKNOWN_PROCESS,
	ENDS,
};

// What a count is of.
enum { ON_CPU, OFF_CPU };

struct key {
	u32 pid;
	u32 tid; // 0 unless counted by thread
	u64 user; // hash of the user stack, 0: none
	u64 kernel;
	u32 what;
	u32 wait; // off CPU: system call number + 1, 0: none
	u32 image;
	u32 pad;
};

struct count {
	u64 samples;
	u64 ns;
};

// Frames from the leaf that are kept whatever happens, and those kept from the root. Addresses are
// those to look up: of a return address, one less.
#define LEAF_FRAMES 64
#define ROOT_FRAMES 1024
#define MAX_WALK 4096
#define KERNEL_FRAMES 128
#define STACK_BYTES 16384
#define CHUNK_BYTES 4096

enum { RECORD_USER_STACK = 1, RECORD_KERNEL_STACK, RECORD_RAW, RECORD_CHECK };

struct stack_record {
	u32 kind;
	u32 frames; // met; more than LEAF_FRAMES + ROOT_FRAMES: what lies between is lost
	u64 hash;
	u32 pid;
	u32 end;
	u64 at[LEAF_FRAMES + ROOT_FRAMES];
};
#define STACK_HEADER 24

struct kernel_record {
	u32 kind;
	u32 frames;
	u64 hash;
	u32 pid;
	u32 end;
	u64 at[KERNEL_FRAMES];
};

struct raw_record {
	u32 kind;
	u32 bytes;
	struct key key;
	u64 time_ns;
	u64 ip, sp, bp, bx;
	s64 call; // number of the system call; below 0: none
	u64 duration_ns;
	u32 exact;
	u32 end; // what the walk in the kernel lacked
	u8 stack[STACK_BYTES];
};
#define RAW_HEADER (sizeof(struct raw_record) - STACK_BYTES)

// Counters: every tick is in exactly one of the first eight, and every loss has its reason.
enum {
	TICKS,
	TICKS_IDLE,
	TICKS_COUNTED,
	TICKS_RAW,
	LOST_COUNTS_FULL,
	LOST_RING_FULL_RAW,
	TICKS_OTHER_PROCESS,
	LOST_NO_SCRATCH,
	LOST_RING_FULL_STACK,
	LOST_RAW_LIMIT,
	FRAMES,
	SWITCHES,
	SWITCHES_KEPT,
	LOST_SWITCHES_FULL,
	END_FIRST, // one for each reason of an end
	CHECKS = END_FIRST + ENDS,
	LOST_CHECKS,
	COUNTERS,
};
