//! Where things are in the structures of CPython, by version. Made by `host-agent/python-offsets.sh` from its headers.

use super::python::Layout;
use pilotlight_agent_bpf::Offsets;

/// Versions whose frames are walked.
pub const VERSIONS: [(u8, u8); 3] = [(3, 11), (3, 12), (3, 13)];

/// Of a version as it is built usually.
#[rustfmt::skip]
pub fn layout(version: (u8, u8)) -> Option<Layout> {
    Some(match version {
        (3, 11) => Layout {
            interpreters: 40,
            walk: Offsets {
                interpreter_next: 0,
                interpreter_threads: 16,
                thread_next: 8,
                thread_id: 152,
                thread_frame: 56,
                runs: 1,
                run_frame: 8,
                run_previous: 16,
                frame_code: 32,
                frame_previous: 48,
                frame_instruction: 56,
                frame_kind: 68,
                last_kind: 1,
                code_names: 112,
                code_instructions: 184,
            },
            code_first_line: 72,
            bytes_size: 16,
            bytes_data: 32,
            text_length: 16,
            text_state: 32,
            text_ascii: 48,
            text_other: 72,
        },
        (3, 12) => Layout {
            interpreters: 40,
            walk: Offsets {
                interpreter_next: 0,
                interpreter_threads: 72,
                thread_next: 8,
                thread_id: 136,
                thread_frame: 56,
                runs: 2,
                run_frame: 0,
                run_previous: 8,
                frame_code: 0,
                frame_previous: 8,
                frame_instruction: 56,
                frame_kind: 70,
                last_kind: 3,
                code_names: 112,
                code_instructions: 192,
            },
            code_first_line: 68,
            bytes_size: 16,
            bytes_data: 32,
            text_length: 16,
            text_state: 32,
            text_ascii: 40,
            text_other: 56,
        },
        (3, 13) => Layout {
            interpreters: 632,
            walk: Offsets {
                interpreter_next: 7264,
                interpreter_threads: 7344,
                thread_next: 8,
                thread_id: 152,
                thread_frame: 72,
                runs: 0,
                run_frame: 0,
                run_previous: 0,
                frame_code: 0,
                frame_previous: 8,
                frame_instruction: 56,
                frame_kind: 70,
                last_kind: 3,
                code_names: 112,
                code_instructions: 200,
            },
            code_first_line: 68,
            bytes_size: 16,
            bytes_data: 32,
            text_length: 16,
            text_state: 32,
            text_ascii: 40,
            text_other: 56,
        },
        _ => return None,
    })
}
