// SPDX-License-Identifier: MIT OR GPL-2.0
// The agent's programs: a tick of the CPU clock, a switch of tasks, the start and end of a process.
#include "walk.h"

char licence[] SECTION("license") = "Dual MIT/GPL";

// The number of a task in the agent's pid namespace.
static always_inline u32 pid_of(struct task_struct *task)
{
	if (!pid_level)
		return READ_KERNEL(task, pid);
	struct pid *pid = READ_KERNEL(task, thread_pid);
	u32 nr = 0;
	if (pid && pid_level < 32)
		bpf_probe_read_kernel(&nr, 4, (u8 *)&pid->numbers[0].nr + pid_level * 16);
	return nr;
}

// Bounded by the first unreadable page; a page at a time, because a read that fails gives nothing.
static always_inline u32 copy_stack(struct scratch *s)
{
	u64 from = s->raw.sp & ~7ULL;
	u32 taken = CHUNK_BYTES - (from & (CHUNK_BYTES - 1));
	if (bpf_probe_read_user(s->raw.stack, taken & 0x1fff, (void *)from))
		return 0;
#pragma unroll
	for (int page = 0; page < 3; page++) {
		opaque(taken);
		if (taken > STACK_BYTES - CHUNK_BYTES)
			break;
		if (bpf_probe_read_user(s->raw.stack + taken, CHUNK_BYTES, (void *)(from + taken)))
			break;
		taken += CHUNK_BYTES;
	}
	return taken;
}

static always_inline int within(struct limit *limit, u32 window, u32 most)
{
	if (limit->window != window) {
		limit->window = window;
		limit->taken = 0;
	}
	return limit->taken++ < most;
}

static always_inline int may_send_raw(struct scratch *s, u32 pid, u64 now)
{
	u32 window = now >> 30;
	if (!within(&s->limit, window, raw_per_cpu))
		return 0;
	struct limit *limit = bpf_map_lookup_elem(&limits, &pid);
	if (limit)
		return within(limit, window, raw_per_process);
	struct limit first = {window, 1};
	bpf_map_update_elem(&limits, &pid, &first, ANY);
	return 1;
}

// The registers are in the record already.
static always_inline int send_raw(struct scratch *s, struct key *key, u32 kind, u32 end, u64 wakeup)
{
	struct raw_record *raw = &s->raw;
	raw->kind = kind;
	raw->key = *key;
	raw->time_ns = bpf_ktime_get_ns();
	raw->duration_ns = 0;
	raw->end = end;
	u32 bytes = copy_stack(s);
	opaque(bytes);
	if (bytes > STACK_BYTES)
		return -1;
	raw->bytes = bytes;
	return bpf_ringbuf_output(&ring, raw, RAW_HEADER + bytes, wakeup) ? -1 : 0;
}

// Sends a stack unless it was sent before. The frames follow the header.
static always_inline int send_stack(void *record, u64 hash, u32 bytes)
{
	if (bpf_map_lookup_elem(&seen, &hash))
		return 0;
	u32 one = 1;
	if (bpf_ringbuf_output(&ring, record, bytes, RB_NO_WAKEUP)) {
		add(LOST_RING_FULL_STACK, 1);
		return -1;
	}
	bpf_map_update_elem(&seen, &hash, &one, ANY);
	return 0;
}

static always_inline int send_user_stack(struct scratch *s)
{
	u32 frames = s->user.frames;
	opaque(frames);
	if (frames > LEAF_FRAMES + ROOT_FRAMES)
		frames = LEAF_FRAMES + ROOT_FRAMES;
	return send_stack(&s->user, s->user.hash, STACK_HEADER + frames * 8);
}

global_function u64 kernel_hash(u32 what, u32 frames)
{
	struct scratch *s = scratch_of(what);
	u64 hash = 0x13198a2e03707344ULL;
	if (!s)
		return 0;
	for (u32 index = 0; index < KERNEL_FRAMES && index < frames; index++)
		hash = mixed(hash, s->kernel.at[index]);
	return hash;
}

// The kernel's part of the stack, into the state; returns its hash, 0 when there is none.
static always_inline u64 kernel_stack(struct scratch *s, void *context, u32 what)
{
	long bytes = bpf_get_stack(context, s->kernel.at, sizeof(s->kernel.at), 0);
	if (bytes <= 0)
		return 0;
	u32 frames = (u32)bytes / 8;
	s->kernel.kind = RECORD_KERNEL_STACK;
	s->kernel.frames = frames;
	s->kernel.hash = kernel_hash(what, frames);
	s->kernel.pid = 0;
	s->kernel.end = ROOT;
	return frames > KERNEL_FRAMES ? 0 : s->kernel.hash;
}

static always_inline int send_kernel_stack(struct scratch *s)
{
	u32 frames = s->kernel.frames;
	opaque(frames);
	if (frames > KERNEL_FRAMES)
		return -1;
	return send_stack(&s->kernel, s->kernel.hash, STACK_HEADER + frames * 8);
}

// Adds to a count that is there; -1 when it is not.
static always_inline int count_again(struct key *key, u64 ns, u32 odd)
{
	struct count *found;
	if (odd)
		found = bpf_map_lookup_elem(&counts_odd, key);
	else
		found = bpf_map_lookup_elem(&counts_even, key);
	if (!found)
		return -1;
	__sync_fetch_and_add(&found->samples, 1);
	if (ns)
		__sync_fetch_and_add(&found->ns, ns);
	return 0;
}

static always_inline int count_first(struct key *key, u64 ns, u32 odd)
{
	struct count first = {1, ns};
	long failed = odd ? bpf_map_update_elem(&counts_odd, key, &first, NOEXIST)
			  : bpf_map_update_elem(&counts_even, key, &first, NOEXIST);
	// Another CPU may have been faster.
	return failed ? count_again(key, ns, odd) : 0;
}

static always_inline struct control *controls(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&control, &zero);
}

// What the kernel saved of the current task at its entry.
static always_inline void saved_registers(struct raw_record *raw, struct task_struct *task)
{
	if (KERNEL_HAS(task_pt_regs)) {
		struct pt_regs *saved = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
		raw->ip = saved->ip;
		raw->sp = saved->sp;
		raw->bp = saved->bp;
		raw->bx = saved->bx;
		raw->call = saved->orig_ax;
		return;
	}
	struct pt_regs *saved = READ_KERNEL(task, stack) + THREAD_SIZE - sizeof(*saved);
	raw->ip = READ_KERNEL(saved, ip);
	raw->sp = READ_KERNEL(saved, sp);
	raw->bp = READ_KERNEL(saved, bp);
	raw->bx = READ_KERNEL(saved, bx);
	raw->call = READ_KERNEL(saved, orig_ax);
}

// Registers as they were in user space: those of the tick, or those that the kernel saved at its
// entry. Of a system call the saved address is behind the instruction, as of a call.
// Says whether user space was interrupted.
static always_inline int take_registers(struct raw_record *raw, struct pt_regs *now, struct task_struct *task)
{
	if (now && (now->cs & 3)) {
		raw->ip = now->ip;
		raw->sp = now->sp;
		raw->bp = now->bp;
		raw->bx = now->bx;
		raw->call = -1;
		raw->exact = 1;
		return 1;
	}
	saved_registers(raw, task);
	raw->exact = raw->call < 0;
	return 0;
}

// Walks the current task's user stack, if its process is known; why it ended.
static always_inline u32 user_stack(struct scratch *s, struct key *key)
{
	struct process *process = bpf_map_lookup_elem(&processes, &key->pid);
	if (!process)
		return UNKNOWN_PROCESS;
	key->image = process->image;
	s->mappings = process->mappings;
	s->count = process->count;
	s->version = process->version;
	s->ip = s->raw.ip;
	s->sp = s->raw.sp;
	s->bp = s->raw.bp;
	s->bx = s->raw.bx;
	s->exact = s->raw.exact;
	s->user.pid = key->pid;
	s->loop_size = 0;
	if (process->has_runtime)
		begin_runtime(s, key->pid, key->what);
	walk(s, key->what);
	add(FRAMES, s->user.frames);
	return s->user.end;
}

// What the kernel lacked may be had in user space; 1 when it was sent there.
static always_inline int left_to_user_space(struct scratch *s, struct key *key, u32 end)
{
	if (!may_send_raw(s, key->pid, bpf_ktime_get_ns())) {
		add(LOST_RAW_LIMIT, 1);
		return 0;
	}
	if (!send_raw(s, key, RECORD_RAW, end, RB_FORCE_WAKEUP))
		return 1;
	add(LOST_RING_FULL_RAW, 1);
	return 0;
}

// Fills `key` with the stacks of the current task; why the walk ended.
static always_inline u32 stacks(struct scratch *s, struct key *key, struct pt_regs *now, void *context,
				struct task_struct *task)
{
	u32 end = NO_USER;
	int in_user = 0;
	if (!(READ_KERNEL(task, flags) & PF_KTHREAD)) {
		in_user = take_registers(&s->raw, now, task);
		end = user_stack(s, key);
	}
	key->user = end == NO_USER || end == UNKNOWN_PROCESS ? 0 : s->user.hash;
	key->kernel = with_kernel && !in_user ? kernel_stack(s, context, key->what) : 0;
	if (end < ENDS)
		add(END_FIRST + end, 1);
	return end;
}

// Stacks go before what is said of them; one that cannot be sent is left out of `key`.
static always_inline void send_stacks(struct scratch *s, struct key *key)
{
	if (key->kernel && send_kernel_stack(s))
		key->kernel = 0;
	if (key->user && send_user_stack(s))
		key->user = 0;
}

static always_inline int lacks_something(u32 end)
{
	return end == NO_MAPPING || end == NO_TABLE || end == UNKNOWN_PROCESS;
}

// A share of what was walked here is walked in user space again, by the same registers and stack.
static always_inline void check(struct scratch *s, struct key *key, u32 end)
{
	if (!verify_chance || end == NO_USER || end == UNKNOWN_PROCESS || bpf_get_prandom_u32() > verify_chance)
		return;
	key->user = s->user.hash;
	add(send_user_stack(s) || send_raw(s, key, RECORD_CHECK, end, RB_NO_WAKEUP) ? LOST_CHECKS : CHECKS, 1);
}

// Counts the tick whose stacks are in the state; the counter that it belongs to.
static always_inline u32 counted(struct scratch *s, struct key *key, u32 end, u32 odd)
{
	if (lacks_something(end)) {
		u64 user = key->user;
		key->user = 0;
		send_stacks(s, key);
		if (left_to_user_space(s, key, end))
			return TICKS_RAW;
		key->user = user;
	}
	// Where there is a count, its stacks were sent in the same window.
	if (!count_again(key, 0, odd))
		return TICKS_COUNTED;
	send_stacks(s, key);
	return count_first(key, 0, odd) ? LOST_COUNTS_FULL : TICKS_COUNTED;
}

SECTION("perf_event")
int on_tick(struct bpf_perf_event_data *context)
{
	add(TICKS, 1);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	if (!with_idle && !READ_KERNEL(task, pid)) {
		add(TICKS_IDLE, 1);
		return 0;
	}
	struct scratch *s = scratch_of(ON_CPU);
	struct control *c = controls();
	if (!s || !c) {
		add(LOST_NO_SCRATCH, 1);
		return 0;
	}
	struct key key = {0};
	key.pid = pid_of(READ_KERNEL(task, group_leader));
	if (only_pid && key.pid != only_pid) {
		add(TICKS_OTHER_PROCESS, 1);
		return 0;
	}
	if (by_thread)
		key.tid = pid_of(task);
	key.what = ON_CPU;
	s->window = c->window;
	u32 end = stacks(s, &key, &context->regs, context, task);
	add(counted(s, &key, end, c->odd), 1);
	check(s, &key, end);
	return 0;
}

// A thread that waited runs again: how long it was.
static always_inline void ends_waiting(struct task_struct *task, u64 now, struct control *c)
{
	u32 thread = task->pid;
	struct waiting *waiting = bpf_map_lookup_elem(&waits, &thread);
	if (!waiting)
		return;
	u64 waited = now - waiting->since_ns;
	struct key key = waiting->key;
	bpf_map_delete_elem(&waits, &thread);
	if (waited < offcpu_min_ns)
		return;
	if (count_again(&key, waited, c->odd) && count_first(&key, waited, c->odd))
		add(LOST_COUNTS_FULL, 1);
	else
		add(SWITCHES_KEPT, 1);
}

static always_inline void begins_waiting(struct task_struct *task, u64 now, struct control *c, void *context)
{
	struct scratch *s = scratch_of(OFF_CPU);
	if (!s || !task->pid || task->flags & PF_KTHREAD)
		return;
	if (offcpu_chance != 0xffffffff && bpf_get_prandom_u32() > offcpu_chance)
		return;
	struct waiting waiting = {now, {0}};
	struct key *key = &waiting.key;
	key->pid = pid_of(task->group_leader);
	if (only_pid && key->pid != only_pid)
		return;
	if (by_thread)
		key->tid = pid_of(task);
	key->what = OFF_CPU;
	s->window = c->window;
	stacks(s, key, 0, context, task);
	if (s->raw.call >= 0)
		key->wait = s->raw.call + 1;
	send_stacks(s, key);
	u32 thread = task->pid;
	if (bpf_map_update_elem(&waits, &thread, &waiting, ANY))
		add(LOST_SWITCHES_FULL, 1);
}

// Newer kernels say so in an argument too; another CPU that wakes the task changes this, but not to running.
static always_inline int goes_to_wait(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;
	return HAS_FIELD(task->__state) ? task->__state != 0 : old->state != 0;
}

// (bool preempt, struct task_struct *prev, struct task_struct *next, …)
SECTION("tp_btf/sched_switch")
int on_switch(u64 *context)
{
	struct control *c = controls();
	struct task_struct *before = (struct task_struct *)context[1];
	struct task_struct *after = (struct task_struct *)context[2];
	if (!c)
		return 0;
	u64 now = bpf_ktime_get_ns();
	add(SWITCHES, 1);
	ends_waiting(after, now, c);
	// A task that could go on running was only pushed off its CPU.
	if (!(context[0] & 1) && goes_to_wait(before))
		begins_waiting(before, now, c, context);
	return 0;
}

// (struct task_struct *task, …): what was mapped before is gone.
SECTION("tp_btf/sched_process_exec")
int on_exec(u64 *context)
{
	struct task_struct *task = (struct task_struct *)context[0];
	u32 pid = pid_of(task->group_leader);
	bpf_map_delete_elem(&processes, &pid);
	bpf_map_delete_elem(&limits, &pid);
	return 0;
}

// (struct task_struct *task, …)
SECTION("tp_btf/sched_process_exit")
int on_exit(u64 *context)
{
	struct task_struct *task = (struct task_struct *)context[0];
	u32 thread = task->pid;
	bpf_map_delete_elem(&waits, &thread);
	if (task->signal->live.counter)
		return 0;
	u32 pid = pid_of(task->group_leader);
	bpf_map_delete_elem(&processes, &pid);
	bpf_map_delete_elem(&limits, &pid);
	return 0;
}
