// SPDX-License-Identifier: MIT OR GPL-2.0
// The helpers for a build as an ordinary program; replay.c answers them from a bundle.
#pragma once

#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name

void *bpf_map_lookup_elem(void *map, const void *key);
u32 bpf_get_smp_processor_id(void);
long bpf_map_update_elem(void *map, const void *key, const void *value, u64 flags);
long bpf_map_delete_elem(void *map, const void *key);
long bpf_probe_read_user(void *out, u32 size, const void *from);
long bpf_probe_read_kernel(void *out, u32 size, const void *from);
u64 bpf_get_current_task(void);
