// SPDX-License-Identifier: MIT OR GPL-2.0
// The frames of python.h as an ordinary program: the memory of an interpreter is laid out here, as 3.11 and as 3.13 do
// it, and walked; then again and again with words that point anywhere, at each other and at themselves, and with reads
// that fail. Build with PILOTLIGHT_HOST and sanitizers; see tests/replay.rs.
//
//   replay_python ROUNDS
//
// Two threads; the second has three runs of the loop: 2 frames, 1 frame, 40 frames. Native frames lie between.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "walk.h"

#define MEMORY 0x10000
#define START 0x100000ULL
#define STACK (START + 0x8000)

static u8 memory[MEMORY];
static struct scratch state;
static struct interpreted interpreted;
static struct runtime runtime;
static u64 remembered, reads, chance;
static int has_remembered;
static struct task_struct task;
static u64 random_state = 88172645463325252ULL;

static u64 random_word(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	if (map == &scratches)
		return &state;
	if (map == &interpreters)
		return &interpreted;
	if (map == &runtimes)
		return &runtime;
	return map == &states && has_remembered ? &remembered : 0;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, u64 flags)
{
	remembered = *(const u64 *)value;
	has_remembered = 1;
	return 0;
}

long bpf_map_delete_elem(void *map, const void *key)
{
	return 0;
}

long bpf_probe_read_user(void *out, u32 size, const void *from)
{
	u64 at = (u64)from - START;
	reads++;
	if (chance && (random_word() & 0xffffffff) < chance)
		return -14;
	if (at > MEMORY || size > MEMORY - at)
		return -14;
	memcpy(out, memory + at, size);
	return 0;
}

u64 bpf_get_current_task(void)
{
	return (u64)&task;
}

// The task is the only thing of the kernel's that is read.
long bpf_probe_read_kernel(void *out, u32 size, const void *from)
{
	memcpy(out, from, size);
	return 0;
}

static void put(u64 at, u64 word)
{
	memcpy(memory + (at - START), &word, 8);
}

static void put_byte(u64 at, u8 byte)
{
	memory[at - START] = byte;
}

static const u32 runs[] = {2, 1, 40}; // from the leaf
static u64 places[3]; // what each run keeps in its native frame

// Frames from the leaf to the root: code n lies at START + 0x4000 + 256 n, and is at instruction n.
static void lay_out(int marked)
{
	u64 frame = START + 0x1000, number = 0, thread = START + 0x700;
	memset(memory, 0, MEMORY);
	has_remembered = 0;
	u64 first = marked ? places[0] : frame;
	for (int run = 0; run < 3; run++) {
		if (marked) {
			put(places[run] + runtime.run_frame, frame);
			put(places[run] + runtime.run_previous, run < 2 ? places[run + 1] : START + 0x600);
		}
		for (u32 i = 0; i < runs[run]; i++, number++) {
			u64 code = START + 0x4000 + 256 * number;
			int is_last = i + 1 == runs[run];
			u64 next = is_last && !marked ? places[run] : frame + 0x80;
			put(code + runtime.code_names, number);
			put(frame + runtime.frame_code, code);
			put(frame + runtime.frame_instruction, code + runtime.code_instructions + 2 * number);
			put(frame + runtime.frame_previous, is_last && run == 2 && marked ? 0 : next);
			if (marked)
				put_byte(frame + runtime.frame_kind, is_last);
			frame += 0x80;
		}
		if (!marked) {
			put(places[run] + runtime.frame_previous, run < 2 ? frame : 0);
			put_byte(places[run] + runtime.frame_kind, runtime.last_kind);
		}
	}
	put(START, START + 0x500);
	put(START + 0x500 + runtime.interpreter_threads, START + 0x680);
	put(START + 0x680 + runtime.thread_id, 1);
	put(START + 0x680 + runtime.thread_next, thread);
	put(thread + runtime.thread_id, task.thread.fsbase);
	put(thread + runtime.thread_frame, first);
}

// Native frames of 256 bytes up the stack. The loop's are 1, 4 and 5; the first two of the stack are in its prologue
// and in a callback. What it keeps lies 64 bytes into each.
static void walk_stack(void)
{
	u32 what = 0, pid = 1;
	memset(&state.user, 0, sizeof(state.user));
	state.loop_size = 0;
	begin_runtime(&state, pid, what);
	for (u64 n = 0; n < 8; n++) {
		u64 below = STACK + n * 256;
		push(&state, n);
		state.sp = below + 256;
		if (n == 0 || n == 1 || n == 4 || n == 5)
			interpreted_frames(what, below, 0);
	}
	interpreted_frames(what, 0, 1);
}

static void expect(int holds, const char *what, u64 value)
{
	if (holds)
		return;
	printf("%s: %llu\n", what, value);
	exit(3);
}

// All frames in their places: 0 1 [0 1] 2 3 4 [2] 5 [3 … 42] 6 7.
static void check_whole(void)
{
	u64 at = 0, frame = 0, run = 0;
	for (u64 n = 0; n < 8; n++) {
		expect(state.user.at[at++] == n, "native frame", n);
		if (n != 1 && n != 4 && n != 5)
			continue;
		for (u32 i = 0; i < runs[run]; i++, frame++) {
			u64 code = state.user.at[at++], place = state.user.at[at++];
			u64 check = mixed(mixed(mixed(mixed(0, frame), 0), 0), 0) & 0xffffff;
			expect(code == (CODE_WORD | (START + 0x4000 + 256 * frame)), "code of frame", frame);
			expect(place == (PLACE_WORD | check << 32 | frame), "place of frame", frame);
		}
		run++;
	}
	expect(state.user.frames == at && at == 8 + 2 * 43, "words", at);
}

// A word becomes an address of the same memory, anything, or zero; or a byte another.
static void change(void)
{
	for (u64 n = random_word() % 6 + 1; n; n--) {
		u64 at = START + random_word() % (0x3000 / 8) * 8, word = random_word();
		switch (random_word() % 4) {
		case 0:
			put(at, word);
			break;
		case 1:
			put(at, START + word % MEMORY / 8 * 8);
			break;
		case 2:
			put(at, 0);
			break;
		default:
			put_byte(at + word % 8, word >> 8);
		}
	}
	// Chains that lead back to themselves.
	if (random_word() % 4 == 0) {
		u64 frame = START + 0x1000 + random_word() % 43 * 0x80;
		put(frame + runtime.frame_previous, frame - random_word() % 4 * 0x80);
	}
	if (random_word() % 4 == 0)
		put(START + 0x680 + runtime.thread_next, START + 0x680);
}

static void rounds(int marked, u32 count)
{
	u64 most = 0, words = 0;
	for (u32 round = 0; round < count; round++) {
		lay_out(marked);
		chance = round % 3 ? 0 : 1ULL << (20 + round % 12);
		if (round % 3)
			change();
		reads = 0;
		walk_stack();
		expect(reads <= 3 * MOST_THREADS + 12 * MOST_INTERPRETED, "reads", reads);
		expect(state.user.frames >= 8 && state.user.frames <= 8 + 2 * MOST_INTERPRETED, "words", state.user.frames);
		most = reads > most ? reads : most;
		words = state.user.frames > words ? state.user.frames : words;
	}
	chance = 0;
	printf("rounds %u reads %llu words %llu\n", count, most, words);
}

int main(int argc, char **argv)
{
	u32 count = argc == 2 ? atoi(argv[1]) : 0;
	struct runtime marked = {START, 0x1000, 0x1000, ~7ULL, 0, 16, 8, 152, 56, RUNS_HAVE_MARKS, 8, 16, 32, 48, 56, 68, 1, 112, 184};
	struct runtime plain = {START, 0x1000, 0x1000, ~7ULL, 0, 72, 8, 136, 72, NO_RUNS, 0, 0, 0, 8, 56, 70, 3, 112, 200};
	const struct runtime kinds[] = {marked, plain};
	task.pid = 7;
	task.thread.fsbase = START + 0xf000;
	for (int run = 0; run < 3; run++)
		places[run] = STACK + (run ? run + 3 : 1) * 256 + 64;
	for (int kind = 0; kind < 2; kind++) {
		runtime = kinds[kind];
		lay_out(kind == 0);
		walk_stack();
		check_whole();
		expect(has_remembered, "thread", 0);
		walk_stack();
		check_whole();
		rounds(kind == 0, count);
	}
	return 0;
}
