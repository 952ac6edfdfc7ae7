// SPDX-License-Identifier: MIT OR GPL-2.0
// The unwinder of walk.h as an ordinary program: walks a recorded bundle, then again and again with reads that
// fail, and with bytes changed at random. Build with PILOTLIGHT_HOST and sanitizers; see tests/replay.rs.
//
//   replay BUNDLE ROUNDS
//
// prints the end and the frames of the true walk, then what the rounds came to.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "walk.h"

struct header {
	u64 ip, sp, bp, bx, stack_start;
	u32 exact, mappings, count, words, files, rules, stack_bytes, pad;
};

static struct header header;
static u8 *space, *file_values, *rule_values, *stack;
static u32 space_shards;
static struct scratch state;
static struct counters counted;
static struct recent recent[RECENT_RULES];
static u64 lookups;
static u32 version;
static u64 chance; // of a fault, out of 2^32
static u64 random_state = 88172645463325252ULL;
static int shard_handle[SHARDS];

static u64 random_word(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	u32 index = *(const u32 *)key;
	lookups++;
	if (map == &shards)
		return index < space_shards ? &shard_handle[index] : 0;
	if ((int *)map >= shard_handle && (int *)map < shard_handle + SHARDS)
		return space + (u64)((int *)map - shard_handle) * SHARD_WORDS * 4;
	if (map == &files)
		return index < header.files ? file_values + index * sizeof(struct file) : 0;
	if (map == &rules)
		return index < header.rules ? rule_values + index * sizeof(struct rule) : 0;
	if (map == &scratches)
		return &state;
	if (map == &recents)
		return index < RECENT_RULES ? &recent[index] : 0;
	return map == &counters && !index ? &counted : 0;
}

u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, u64 flags)
{
	return 0;
}

long bpf_map_delete_elem(void *map, const void *key)
{
	return 0;
}

long bpf_probe_read_user(void *out, u32 size, const void *from)
{
	u64 at = (u64)from - header.stack_start;
	if (chance && (random_word() & 0xffffffff) < chance)
		return -14;
	if (at > header.stack_bytes || size > header.stack_bytes - at)
		return -14;
	memcpy(out, stack + at, size);
	return 0;
}

u64 bpf_get_current_task(void)
{
	static struct task_struct task;
	return (u64)&task;
}

// The task is the only thing of the kernel's that is read.
long bpf_probe_read_kernel(void *out, u32 size, const void *from)
{
	memcpy(out, from, size);
	return 0;
}

static void walk_bundle(void)
{
	memset(&state, 0, sizeof(state));
	state.ip = header.ip;
	state.sp = header.sp;
	state.bp = header.bp;
	state.bx = header.bx;
	state.exact = header.exact;
	state.mappings = header.mappings;
	state.count = header.count;
	state.version = version;
	walk(&state, ON_CPU);
}

static void *part(FILE *from, u64 bytes, u64 room)
{
	void *out = calloc(1, room);
	if (!out || fread(out, 1, bytes, from) != bytes)
		exit(2);
	return out;
}

// One to eight bytes of a part become others.
static void change(u8 *bytes, u64 size)
{
	for (u64 n = random_word() % 8 + 1; size && n; n--)
		bytes[random_word() % size] = random_word();
}

static void check(u32 round)
{
	if (state.user.end == WALKING || state.user.end >= ENDS || state.user.frames > MAX_WALK || !state.user.frames) {
		printf("round %u: end %u after %u frames\n", round, state.user.end, state.user.frames);
		exit(3);
	}
}

static void rounds(u32 count)
{
	u64 roots = 0, most = 0, space_bytes = (u64)header.words * 4;
	u8 *keep = malloc(space_bytes + header.stack_bytes);
	struct header true_header = header;
	memcpy(keep, space, space_bytes);
	memcpy(keep + space_bytes, stack, header.stack_bytes);
	for (u32 round = 0; round < count; round++) {
		chance = round % 3 ? 0 : 1ULL << (20 + round % 12);
		if (round % 3 == 1) {
			change(stack, header.stack_bytes);
			change((u8 *)&header, 32);
		}
		if (round % 3 == 2)
			change(space, space_bytes);
		lookups = 0;
		// Bytes that changed are other mappings; every other round walks twice, by what it remembers too.
		version = round + 2;
		walk_bundle();
		check(round);
		if (round & 1)
			walk_bundle();
		check(round);
		roots += state.user.end == ROOT;
		most = lookups > most ? lookups : most;
		header = true_header;
		memcpy(space, keep, space_bytes);
		memcpy(stack, keep + space_bytes, header.stack_bytes);
	}
	free(keep);
	printf("rounds %u roots %llu lookups %llu\n", count, roots, most);
}

int main(int argc, char **argv)
{
	FILE *from = argc == 3 ? fopen(argv[1], "rb") : 0;
	if (!from || fread(&header, sizeof(header), 1, from) != 1)
		return 2;
	space_shards = (header.words + SHARD_WORDS - 1) / SHARD_WORDS;
	space = part(from, (u64)header.words * 4, (u64)space_shards * SHARD_WORDS * 4);
	file_values = part(from, header.files * sizeof(struct file), header.files * sizeof(struct file));
	rule_values = part(from, header.rules * sizeof(struct rule), header.rules * sizeof(struct rule));
	stack = part(from, header.stack_bytes, header.stack_bytes + 8);
	version = 1;
	walk_bundle();
	u64 first = state.user.hash;
	walk_bundle();
	check(0);
	if (state.user.hash != first) {
		printf("remembered rules lead elsewhere\n");
		return 3;
	}
	printf("end %u\n", state.user.end);
	for (u32 i = 0; i < state.user.frames && i < LEAF_FRAMES + ROOT_FRAMES; i++)
		printf("%llx\n", state.user.at[i]);
	rounds(atoi(argv[2]));
	return 0;
}
