#!/bin/sh
# Writes src/runtimes/offsets.rs from the headers of CPython (python3-dev, or an installation's include/python3.X), one
# folder for each version from 3.11 on:
#
#   host-agent/python-offsets.sh /usr/include/python3.11 … > host-agent/src/runtimes/offsets.rs
#
# A version is taken once; of two folders of one version the offsets must be equal.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/offsets.c" <<'C'
#define Py_BUILD_CORE 1
#include <stddef.h>
#include <stdio.h>
#include "Python.h"
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"

#define AT(indent, name, type, member) printf(indent #name ": %zu,\n", offsetof(type, member))
#define IN(name, type, member) AT("            ", name, type, member)
#define VALUE(indent, name, value) printf(indent #name ": %zu,\n", (size_t)(value))

int main(void)
{
	printf("    (%d, %d) => Layout {\n", PY_MAJOR_VERSION, PY_MINOR_VERSION);
	AT("        ", interpreters, _PyRuntimeState, interpreters.head);
	printf("        walk: Offsets {\n");
	IN(interpreter_next, PyInterpreterState, next);
	IN(interpreter_threads, PyInterpreterState, threads.head);
	IN(thread_next, PyThreadState, next);
	IN(thread_id, PyThreadState, thread_id);
#if PY_VERSION_HEX < 0x030C0000
	IN(thread_frame, PyThreadState, cframe);
	VALUE("            ", runs, 1);
	IN(run_frame, _PyCFrame, current_frame);
	IN(run_previous, _PyCFrame, previous);
	IN(frame_code, _PyInterpreterFrame, f_code);
	IN(frame_previous, _PyInterpreterFrame, previous);
	IN(frame_instruction, _PyInterpreterFrame, prev_instr);
	IN(frame_kind, _PyInterpreterFrame, is_entry);
	VALUE("            ", last_kind, 1);
#elif PY_VERSION_HEX < 0x030D0000
	IN(thread_frame, PyThreadState, cframe);
	VALUE("            ", runs, 2);
	IN(run_frame, _PyCFrame, current_frame);
	IN(run_previous, _PyCFrame, previous);
	IN(frame_code, _PyInterpreterFrame, f_code);
	IN(frame_previous, _PyInterpreterFrame, previous);
	IN(frame_instruction, _PyInterpreterFrame, prev_instr);
	IN(frame_kind, _PyInterpreterFrame, owner);
	VALUE("            ", last_kind, FRAME_OWNED_BY_CSTACK);
#else
	IN(thread_frame, PyThreadState, current_frame);
	VALUE("            ", runs, 0);
	VALUE("            ", run_frame, 0);
	VALUE("            ", run_previous, 0);
	IN(frame_code, _PyInterpreterFrame, f_executable);
	IN(frame_previous, _PyInterpreterFrame, previous);
	IN(frame_instruction, _PyInterpreterFrame, instr_ptr);
	IN(frame_kind, _PyInterpreterFrame, owner);
	VALUE("            ", last_kind, FRAME_OWNED_BY_CSTACK);
#endif
	IN(code_names, PyCodeObject, co_filename);
	IN(code_instructions, PyCodeObject, co_code_adaptive);
	printf("        },\n");
	AT("        ", code_first_line, PyCodeObject, co_firstlineno);
	AT("        ", bytes_size, PyVarObject, ob_size);
	AT("        ", bytes_data, PyBytesObject, ob_sval);
	AT("        ", text_length, PyASCIIObject, length);
	AT("        ", text_state, PyASCIIObject, state);
	VALUE("        ", text_ascii, sizeof(PyASCIIObject));
	VALUE("        ", text_other, sizeof(PyCompactUnicodeObject));
	printf("    },\n");
	_Static_assert(offsetof(PyCodeObject, co_linetable) == offsetof(PyCodeObject, co_filename) + 24, "in a row");
	_Static_assert(offsetof(PyCodeObject, co_qualname) == offsetof(PyCodeObject, co_filename) + 16, "in a row");
	_Static_assert(offsetof(_PyInterpreterFrame, localsplus) <= 80, "FRAME_BYTES in host-agent-bpf/c/python.h");
	return 0;
}
C
for include in "$@"; do
	cc -w -I"$include" -I"$include/internal" -o "$work/offsets" "$work/offsets.c"
	"$work/offsets" > "$work/one"
	name=$(sed -n '1s/.*(\([0-9]*\), \([0-9]*\)).*/\1_\2/p' "$work/one")
	if [ -e "$work/of_$name" ] && ! cmp -s "$work/one" "$work/of_$name"; then
		echo "$include: other offsets than those of another folder of this version" >&2
		exit 1
	fi
	mv "$work/one" "$work/of_$name"
done
cat <<'R'
//! Where things are in the structures of CPython, by version. Made by `host-agent/python-offsets.sh` from its headers.

use super::python::Layout;
use pilotlight_agent_bpf::Offsets;

R
versions=$(ls "$work" | sed -n 's/^of_\([0-9]*\)_\([0-9]*\)$/\2 (\1, \2)/p' | sort -n | cut -d' ' -f2- | paste -sd, | sed 's/),/), /g')
count=$(ls "$work" | grep -c '^of_')
printf '/// Versions whose frames are walked.\npub const VERSIONS: [(u8, u8); %s] = [%s];\n\n' "$count" "$versions"
printf '/// Of a version as it is built usually.\n#[rustfmt::skip]\npub fn layout(version: (u8, u8)) -> Option<Layout> {\n    Some(match version {\n'
for file in $(ls "$work"/of_* | sort -t_ -k3 -n); do sed 's/^/    /' "$file"; done
printf '        _ => return None,\n    })\n}\n'
