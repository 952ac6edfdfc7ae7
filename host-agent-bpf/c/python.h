// SPDX-License-Identifier: MIT OR GPL-2.0
// Where the interpreter's loop is met on the native stack, the frames that it executes are put in: two words each,
// the code object and the instruction in it. Which frames belong to which run of the loop is told by addresses: each
// run keeps something in its native frame that the chain of frames leads past.
//
// A frame pointer, a length or a chain may be anything: every walk takes MOST_INTERPRETED steps at most.
#pragma once

#define MOST_INTERPRETED 2048
#define MOST_THREADS 4096
#define FRAME_BYTES 80

// Of words that are no addresses: what they are stands in the upper byte.
#define CODE_WORD (0xc0ULL << 56)
#define PLACE_WORD (0xc1ULL << 56)
#define WORD_MASK ((1ULL << 56) - 1)

// How a thread leads to its frames: at once, or over the youngest run of the loop, by whose address it is known (3.11).
enum { NO_RUNS, RUNS_HAVE_MARKS, RUNS };

enum { NOT_BEGUN, GOES_ON, OVER };

// What is written over the stack while it is looked for frames of one run of the loop.
struct interpreted {
	struct runtime at;
	u64 thread, interpreter, self;
	u64 frame;
	u64 run; // 3.11: the _PyCFrame of the run; later the mark is a frame itself
	u64 below, above; // the native frame of the loop
	u64 first_frame, first_hash; // to take back what belongs to a run further up
	u32 first_count;
	u32 state;
	u32 left;
	u32 taken_back;
	u64 words[16]; // the frame that is looked at
};
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 2);
	TYPE(key, u32);
	TYPE(value, struct interpreted);
} interpreters SECTION(".maps");

// By process.
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 4096);
	TYPE(key, u32);
	TYPE(value, struct runtime);
} runtimes SECTION(".maps");

// Thread → its state in the interpreter, so that the list of threads is walked once for each.
struct {
	UINT(type, MAP_LRU_HASH);
	UINT(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, u64);
} states SECTION(".maps");

static always_inline struct interpreted *interpreted_of(u32 what)
{
	return bpf_map_lookup_elem(&interpreters, &what);
}

// Called for each walk of a process that has a runtime.
static always_inline void begin_runtime(struct scratch *s, u32 pid, u32 what)
{
	struct runtime *runtime = bpf_map_lookup_elem(&runtimes, &pid);
	struct interpreted *in = interpreted_of(what);
	if (!runtime || !in)
		return;
	in->at = *runtime;
	in->state = NOT_BEGUN;
	s->loop_start = runtime->loop_start;
	s->loop_size = runtime->loop_size;
}

// All threads of all interpreters; 1 stops.
global_function u32 next_thread(u32 what)
{
	struct interpreted *in = interpreted_of(what);
	u64 id;
	if (!in)
		return 1;
	if (!in->thread) {
		u64 at = in->interpreter;
		return !at || read_word(at + in->at.interpreter_threads, &in->thread) ||
		       read_word(at + in->at.interpreter_next, &in->interpreter);
	}
	if (read_word(in->thread + in->at.thread_id, &id)) {
		in->thread = 0;
		return 1;
	}
	return id == in->self || read_word(in->thread + in->at.thread_next, &in->thread);
}

REPEATED(threads, next_thread, MOST_THREADS)

static always_inline int is_own(struct interpreted *in, u64 thread)
{
	u64 id;
	return thread && !read_word(thread + in->at.thread_id, &id) && id == in->self;
}

// pthread_self() is what the interpreter knows a thread by: the address in fs. It tells nothing of who holds a lock,
// and is right in every pid namespace and after fork.
static always_inline int find_thread(struct interpreted *in, u32 what)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	u32 number = READ_KERNEL(task, pid);
	u64 *known = bpf_map_lookup_elem(&states, &number);
	in->self = READ_KERNEL(task, thread.fsbase);
	if (known && is_own(in, *known)) {
		in->thread = *known;
		return 1;
	}
	in->thread = 0;
	if (read_word(in->at.interpreters, &in->interpreter))
		return 0;
	threads(what);
	u64 thread = in->thread;
	if (!is_own(in, thread))
		return 0;
	bpf_map_update_elem(&states, &number, &thread, ANY);
	return 1;
}

static always_inline u32 find_first_frame(struct interpreted *in, u32 what)
{
	u64 at = 0;
	if (!find_thread(in, what) || read_word(in->thread + in->at.thread_frame, &at))
		return OVER;
	in->run = at;
	if (in->at.runs != NO_RUNS && read_word(at + in->at.run_frame, &at))
		return OVER;
	in->frame = at;
	in->left = MOST_INTERPRETED;
	return GOES_ON;
}

static always_inline u64 field(struct interpreted *in, u32 offset)
{
	u32 at = (offset >> 3) & 15;
	opaque(at);
	return in->words[at & 15];
}

static always_inline int push_interpreted(struct scratch *s, struct interpreted *in)
{
	u64 code = field(in, in->at.frame_code) & in->at.pointer_mask;
	u64 at = field(in, in->at.frame_instruction), names[4];
	// What its names and lines are tells whether the code object is still the same when it is read.
	if (bpf_probe_read_user(names, 32, (void *)(code + in->at.code_names)))
		return -1;
	u64 check = mixed(mixed(mixed(mixed(0, names[0]), names[1]), names[2]), names[3]) & 0xffffff;
	u64 unit = (at - code - in->at.code_instructions) >> 1;
	push(s, CODE_WORD | (code & WORD_MASK));
	push(s, PLACE_WORD | check << 32 | (unit & 0xffffffff));
	return 0;
}

static always_inline void begin_section(struct scratch *s, struct interpreted *in)
{
	in->first_frame = in->frame;
	in->first_count = s->user.frames;
	in->first_hash = s->user.hash;
}

// The frames of one run of the loop are through, and `mark` lies in its native frame: 1 when that is the one at hand
// or further up, 0 when there are more to come.
static always_inline long end_section(struct scratch *s, struct interpreted *in, u64 mark)
{
	if (mark >= in->above) {
		s->user.frames = in->first_count;
		s->user.hash = in->first_hash;
		in->frame = in->first_frame;
		return 1;
	}
	begin_section(s, in);
	return mark >= in->below;
}

// A frame of the chain; 1 stops.
global_function u32 next_frame(u32 what)
{
	struct scratch *s = scratch_of(what);
	struct interpreted *in = interpreted_of(what);
	if (!s || !in)
		return 1;
	u64 frame = in->frame, run = in->run;
	in->state = OVER;
	if (!frame || (frame & 7) || !in->left || bpf_probe_read_user(in->words, FRAME_BYTES, (void *)frame))
		return 1;
	in->left--;
	u8 kind = field(in, in->at.frame_kind) >> ((in->at.frame_kind & 7) * 8);
	int is_last = kind == in->at.last_kind;
	// Since 3.12 the last frame of a run is one without code, in the native frame itself.
	if ((in->at.runs == RUNS_HAVE_MARKS || !is_last) && push_interpreted(s, in))
		return 1;
	in->frame = field(in, in->at.frame_previous);
	in->state = GOES_ON;
	if (!is_last)
		return 0;
	if (in->at.runs != RUNS_HAVE_MARKS)
		return end_section(s, in, frame);
	if (read_word(run + in->at.run_previous, &in->run))
		in->run = 0;
	return end_section(s, in, run);
}

REPEATED(frames, next_frame, MOST_INTERPRETED)

// Puts in what the loop executes whose native frame lies from `below` to the stack pointer of its caller.
global_function u32 interpreted_frames(u32 what, u64 below, u32 to_the_end)
{
	struct scratch *s = scratch_of(what);
	struct interpreted *in = interpreted_of(what);
	if (!s || !in)
		return 0;
	if (in->state == NOT_BEGUN)
		in->state = find_first_frame(in, what);
	if (in->state != GOES_ON)
		return 0;
	in->below = to_the_end ? ~0ULL : below;
	in->above = to_the_end ? ~0ULL : s->sp;
	if (in->at.runs == RUNS_HAVE_MARKS && in->run >= in->above)
		return 0;
	begin_section(s, in);
	frames(what);
	return 0;
}
