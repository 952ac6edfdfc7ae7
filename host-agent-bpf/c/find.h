// SPDX-License-Identifier: MIT OR GPL-2.0
// Searches. Their shape is what the verifier accepts or not: a fixed number of steps whose
// comparisons move a base by arithmetic, in functions of scalars that are verified once
// (docs/formats/unwind-table.md, "Search").
#pragma once
#include "maps.h"

// The words of the shard that holds `word`.
static always_inline u8 *shard_of(u32 word)
{
	u32 number = (word >> SHARD_BITS) & (SHARDS - 1), zero = 0;
	void *shard = bpf_map_lookup_elem(&shards, &number);
	return shard ? bpf_map_lookup_elem(shard, &zero) : 0;
}

// Byte offset inside a shard of word `word`, aligned to `align` bytes: whatever comes in, it is inside.
static always_inline u32 offset_of(u32 word, u32 align)
{
	u32 at = (word * 4) & (SHARD_WORDS * 4 - align);
	opaque(at);
	return at & (SHARD_WORDS * 4 - align);
}

// All ones where `condition`, which is 0 or 1 in the sign bit of a difference, says "not below".
static always_inline u32 not_below(u64 a, u64 b)
{
	u32 mask = (u32)((s64)(a - b) >> 63);
	opaque(mask);
	return ~mask;
}

// Word index of the mapping that holds `pc`, 0 when none does.
global_function u32 find_mapping(u32 first, u32 count, u64 pc)
{
	u8 *words = shard_of(first);
	u32 low = 0, size = count & 0xffff;
	if (!words || !size)
		return 0;
#pragma unroll
	for (int step = 0; step < 16; step++) {
		u32 half = size >> 1;
		u64 start = *(u64 *)(words + offset_of(first + (low + half) * MAPPING_WORDS, 32));
		low += half & not_below(pc, start);
		size -= half;
	}
	u32 at = first + low * MAPPING_WORDS;
	struct mapping *found = (struct mapping *)(words + offset_of(at, 32));
	return pc >= found->start && pc < found->end ? at : 0;
}

#define RULE_MASK 0xffff
#define NO_TABLE_BIT (1U << 30)
#define CFI_BIT (1U << 29)

static always_inline u32 half_word(u8 *words, u32 index)
{
	u32 at = (index * 2) & (SHARD_WORDS * 4 - 2);
	opaque(at);
	return *(u16 *)(words + (at & (SHARD_WORDS * 4 - 2)));
}

// As many rows as a part has bytes, and the one in force before.
#define PART_STEPS (PART_BITS + 1)

// Index of the rule at `rel` in `file`, with a bit for what is known of the file.
global_function u32 find_rule(u32 number, u32 rel, u32 window)
{
	struct file *file = bpf_map_lookup_elem(&files, &number);
	if (!file)
		return NO_TABLE_BIT;
	if (file->used != window)
		file->used = window;
	u32 directory = file->directory, page = rel >> 16;
	u32 known = file->has_cfi ? CFI_BIT : 0;
	if (!directory)
		return known | NO_TABLE_BIT;
	if (page >= file->pages)
		return known;
	u32 at = directory + page * DIRECTORY_WORDS, part = (rel >> PART_BITS) & (PARTS - 1);
	u8 *words = shard_of(at);
	if (!words)
		return known | NO_TABLE_BIT;
	u32 first = *(u32 *)(words + offset_of(at, 4));
	u32 low = half_word(words, (at + 1) * 2 + part), size = half_word(words, (at + 1) * 2 + part + 1) - low + 1;
	words = shard_of(first);
	if (!words || !first)
		return known;
#pragma unroll
	for (int step = 0; step < PART_STEPS; step++) {
		u32 half = size >> 1;
		u16 start = *(u16 *)(words + offset_of(first + low + half, 4));
		low += half & not_below(rel & 0xffff, start);
		size -= half;
	}
	return known | *(u16 *)(words + offset_of(first + low, 4) + 2);
}
