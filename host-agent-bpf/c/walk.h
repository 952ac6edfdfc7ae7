// SPDX-License-Identifier: MIT OR GPL-2.0
// From the interrupted instruction to the root: the same rules as unwind/src/walk.rs.
#pragma once
#include "find.h"

#define NEAR_FRAME (1U << 20)
#define MOST_SWITCHES 4

static always_inline int read_word(u64 at, u64 *out)
{
	if (at & 7)
		return -1;
	return bpf_probe_read_user(out, 8, (void *)at);
}

static always_inline u64 mixed(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

// The entry for `pc`, whatever it holds now.
static always_inline struct recent *recent_of(struct scratch *s, u64 pc)
{
	u32 slot = (u32)((pc * 0x9e3779b97f4a7c15ULL) >> 40) & (RECENT_RULES - 1);
	slot += s->recents;
	return bpf_map_lookup_elem(&recents, &slot);
}

// Tables in use are looked at at least so often; the last bits of the window of a drain.
#define EPOCH_BITS 3

static always_inline int is_of(const struct recent *recent, struct scratch *s, u64 pc)
{
	return recent->pc == pc && recent->version == s->version && recent->epoch == s->window >> EPOCH_BITS;
}

struct found {
	struct rule rule;
	u32 has_cfi;
};

// A tick may come in the middle of a switch and put something else here: it is looked at again.
static always_inline int known(struct recent *recent, struct scratch *s, u64 pc, struct found *found)
{
	if (!is_of(recent, s, pc))
		return 0;
	found->rule = recent->rule;
	found->has_cfi = recent->has_cfi;
	barrier();
	return is_of(recent, s, pc);
}

static always_inline void keep(struct recent *recent, struct scratch *s, u64 pc, const struct found *found)
{
	recent->version = 0;
	barrier();
	recent->pc = pc;
	recent->epoch = s->window >> EPOCH_BITS;
	recent->rule = found->rule;
	recent->has_cfi = found->has_cfi;
	barrier();
	recent->version = s->version;
}

static always_inline int is_code(struct scratch *s, u64 return_address)
{
	u64 pc = return_address - 1;
	struct recent *recent = recent_of(s, pc);
	if (recent && is_of(recent, s, pc))
		return 1;
	return find_mapping(s->mappings, s->count, pc) != 0;
}

// Takes the mapping of `pc` over into the state; 0 when there is none.
static always_inline int enter_mapping(struct scratch *s, u64 pc)
{
	if (pc >= s->start && pc < s->end)
		return 1;
	u32 at = find_mapping(s->mappings, s->count, pc);
	u8 *words = at ? shard_of(at) : 0;
	if (!words)
		return 0;
	struct mapping *found = (struct mapping *)(words + offset_of(at, 32));
	s->start = found->start;
	s->end = found->end;
	s->base = found->image_base;
	s->file = found->file;
	return 1;
}

static always_inline void push(struct scratch *s, u64 pc)
{
	u32 n = s->user.frames, slot = n;
	if (n >= LEAF_FRAMES)
		slot = LEAF_FRAMES + ((n - LEAF_FRAMES) & (ROOT_FRAMES - 1));
	opaque(slot);
	if (slot < LEAF_FRAMES + ROOT_FRAMES)
		s->user.at[slot] = pc;
	s->user.frames = n + 1;
	s->user.hash = mixed(s->user.hash, pc);
}

#include "python.h"

static always_inline u32 returned(struct scratch *s, u64 ip, u64 sp)
{
	s->ip = ip;
	s->sp = sp;
	s->exact = 0;
	return ip ? WALKING : ROOT;
}

// Code without CFI: a stub that pushed nothing, else a frame pointer with sanity checks.
static always_inline u32 by_frame_pointer(struct scratch *s, u32 has_cfi)
{
	u64 word, saved;
	if (s->exact && has_cfi && !read_word(s->sp, &word) && is_code(s, word))
		return returned(s, word, s->sp + 8);
	if (!s->bp)
		return ROOT;
	// Go's runtime works on a stack of its own: the frame pointer leads back to the goroutine's, wherever that is.
	if ((s->bp < s->sp || s->bp - s->sp > NEAR_FRAME) && (has_cfi || s->switched++ >= MOST_SWITCHES))
		return BAD_FRAME_POINTER;
	if (read_word(s->bp + 8, &word) || read_word(s->bp, &saved))
		return BAD_FRAME_POINTER;
	if (word && !is_code(s, word))
		return BAD_FRAME_POINTER;
	u64 sp = s->bp + 16;
	s->bp = saved;
	return returned(s, word, sp);
}

// arch/x86/include/uapi/asm/sigcontext.h: the registers in the ucontext that sp points at.
static always_inline u32 interrupted(struct scratch *s)
{
	u64 sp = s->sp, ip;
	if (read_word(sp + 120, &s->bp) || read_word(sp + 128, &s->bx) || read_word(sp + 168, &ip) ||
	    read_word(sp + 160, &sp))
		return BAD_STACK;
	s->ip = ip;
	s->sp = sp;
	s->exact = 1;
	return ip ? WALKING : ROOT;
}

#define SAVED_WORDS 7

// The words below the CFA in one read: the return address, and where functions save registers.
static always_inline int read_saved(struct scratch *s, u64 cfa)
{
	return cfa & 7 || bpf_probe_read_user(s->saved, SAVED_WORDS * 8, (void *)(cfa - SAVED_WORDS * 8));
}

static always_inline int restore(struct scratch *s, int read, u8 saved, u64 cfa, u64 bp, s16 words, u64 *reg)
{
	if (saved == SAME)
		return 0;
	if (saved == LOST) {
		*reg = 1; // unaligned: no later rule can use it
		return 0;
	}
	u32 index = SAVED_WORDS + words;
	if (read && saved == AT_CFA && index < SAVED_WORDS) {
		opaque(index);
		*reg = s->saved[index & 7];
		return 0;
	}
	return read_word((saved == AT_CFA ? cfa : bp) + (s64)words * 8, reg);
}

static always_inline u32 by_rule(struct scratch *s, const struct rule *rule)
{
	u64 base = s->sp, cfa, ip, bp = s->bp;
	u8 kind = rule->kind;
	if (kind == FROM_BP || kind == DEREF_BP)
		base = bp;
	if (kind == FROM_BX)
		base = s->bx;
	cfa = base + (s64)rule->cfa;
	if (kind == PLT && (s->ip & 15) >= (u64)rule->extra)
		cfa += 8;
	if (kind == DEREF_SP || kind == DEREF_BP) {
		if (read_word(cfa, &cfa))
			return BAD_STACK;
		cfa += (s64)rule->extra;
	}
	if (cfa <= s->sp)
		return BAD_STACK;
	int read = (rule->bp_saved == AT_CFA || rule->bx_saved == AT_CFA) && !read_saved(s, cfa);
	if (read)
		ip = s->saved[SAVED_WORDS - 1];
	else if (read_word(cfa - 8, &ip))
		return BAD_STACK;
	if (restore(s, read, rule->bp_saved, cfa, bp, rule->bp, &s->bp) ||
	    restore(s, read, rule->bx_saved, cfa, bp, rule->bx, &s->bx))
		return BAD_STACK;
	return returned(s, ip, cfa);
}

// Finds the rule for `pc`; else why there is none.
static always_inline u32 search(struct scratch *s, u64 pc, struct found *out)
{
	if (!enter_mapping(s, pc))
		return NO_MAPPING;
	u64 rel = pc - s->base;
	u32 found = 0;
	if (s->file)
		found = find_rule(s->file, rel > 0xffffffff ? 0xffffffff : rel, s->window);
	u32 number = found & RULE_MASK;
	struct rule *rule = bpf_map_lookup_elem(&rules, &number);
	if (found & NO_TABLE_BIT || !rule)
		return NO_TABLE;
	out->rule = *rule;
	out->has_cfi = found & CFI_BIT;
	return WALKING;
}

static always_inline u32 apply(struct scratch *s, const struct found *found)
{
	const struct rule *rule = &found->rule;
	if (rule->kind == FRAME_POINTER)
		return by_frame_pointer(s, found->has_cfi);
	if (rule->kind == SIGNAL)
		return interrupted(s);
	if (rule->kind == END)
		return ROOT;
	if (rule->kind >= UNSUPPORTED)
		return NO_RULE;
	return by_rule(s, rule);
}

// One frame; 1 stops.
global_function u32 step(u32 what)
{
	struct scratch *s = scratch_of(what);
	if (!s)
		return 1;
	u64 pc = s->ip - !s->exact, below = s->sp;
	struct recent *recent = recent_of(s, pc);
	struct found found = {0};
	u32 end = WALKING;
	if (!recent || !known(recent, s, pc, &found)) {
		end = search(s, pc, &found);
		if (recent && end == WALKING)
			keep(recent, s, pc, &found);
	}
	// A handler returns to the start of the trampoline, which nobody called: before it lies another function.
	push(s, end == WALKING && found.rule.kind == SIGNAL ? s->ip : pc);
	if (end == WALKING)
		end = apply(s, &found);
	if (pc - s->loop_start < s->loop_size)
		interpreted_frames(what, below, 0);
	s->user.end = end;
	return end != WALKING;
}

REPEATED(steps, step, MAX_WALK)

// Walks from the registers in the state; the stack, its hash and why it ended are there afterwards.
static always_inline void walk(struct scratch *s, u32 what)
{
	s->start = s->end = 0;
	s->recents = bpf_get_smp_processor_id() * RECENT_RULES;
	s->switched = 0;
	s->user.kind = RECORD_USER_STACK;
	s->user.frames = 0;
	s->user.hash = 0x243f6a8885a308d3ULL;
	s->user.end = WALKING;
	steps(what);
	if (s->user.end == WALKING)
		s->user.end = TRUNCATED;
	if (s->user.end != ROOT && s->loop_size)
		interpreted_frames(what, 0, 1);
	s->user.hash = mixed(s->user.hash, s->user.end);
}
