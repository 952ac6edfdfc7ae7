//! What an agent does for the programs, in its simplest form: reads mappings and tables of one process.
#![allow(dead_code)]

use pilotlight_agent_bpf::{Engine, Mapping};
use pilotlight_unwind::Module;
use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running program, killed when dropped.
pub struct Running {
    child: Child,
    /// What it says after its first line.
    pub out: Option<ChildStdout>,
}

impl Running {
    /// Starts `command` and waits for its first line.
    pub fn start(command: &mut Command) -> Running {
        let command = command.stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let mut out = child.stdout.take().expect("piped");
        // Byte by byte: what follows the first line is the test's.
        let mut byte = [0];
        while byte != *b"\n" {
            out.read_exact(&mut byte).expect("says that it is ready");
        }
        Running {
            child,
            out: Some(out),
        }
    }

    pub fn victim(arguments: &[&str]) -> Running {
        Running::start(Command::new(env!("CARGO_BIN_EXE_pilotlight-victim")).args(arguments))
    }

    /// Sends it the line that it waits for.
    pub fn go_on(&mut self) {
        let input = self.child.stdin.take().expect("piped");
        (&input).write_all(b"\n").expect("it reads");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One executable mapping and the module in it.
pub struct Code {
    pub mapping: Mapping,
    pub path: String,
    pub module: Option<Module>,
}

/// Hands mappings and tables of `pid` over.
pub fn tell(engine: &mut Engine, pid: u32) -> Vec<Code> {
    let mut code = code_of(pid);
    for code in &mut code {
        if let Some(module) = &code.module {
            code.mapping.file = engine.tables().add_file(&module.table).expect("memory");
        }
    }
    let mappings: Vec<Mapping> = code.iter().map(|code| code.mapping).collect();
    assert!(
        engine
            .tables()
            .set_process(pid, 7, &mappings)
            .expect("memory")
    );
    code
}

/// Reads `/proc/PID/maps` and the files.
pub fn code_of(pid: u32) -> Vec<Code> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    maps.lines().filter_map(code).collect()
}

fn code(line: &str) -> Option<Code> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if !fields[1].contains('x') {
        return None;
    }
    let hex = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
    let (start, end) = fields[0].split_once('-')?;
    let path = fields.get(5).copied().unwrap_or("").to_owned();
    let mut mapping = Mapping {
        start: hex(start),
        end: hex(end),
        image_base: 0,
        file: None,
    };
    let module = if path == "[vdso]" {
        // SAFETY: the kernel mapped it for as long as this process lives.
        let own = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        // SAFETY: as above.
        let module = unsafe { Module::from_mapped_elf(own as *const u8, "vdso") }.ok();
        let base = module.as_ref().map_or(own, Module::image_base);
        mapping.image_base = mapping.start + (base - own);
        module
    } else {
        let bytes = std::fs::read(&path).ok();
        let module = bytes.and_then(|bytes| Module::from_elf(&bytes, 0, path.as_str()).ok());
        let bias = module
            .as_ref()
            .and_then(|m| bias(m, mapping.start, hex(fields[2])));
        mapping.image_base = bias
            .unwrap_or(0)
            .wrapping_add(module.as_ref().map_or(0, |m| m.table.base_svma()));
        module
    };
    Some(Code {
        mapping,
        path,
        module,
    })
}

/// Segments share pages of the file: the executable one is meant.
fn bias(module: &Module, start: u64, offset: u64) -> Option<u64> {
    let segment = module.segments.iter().filter(|s| s.executable).find(|s| {
        let first = s.file_offset & !4095;
        (first..s.file_offset + (s.limit - s.start)).contains(&offset)
    })?;
    Some(
        start.wrapping_sub(
            segment
                .start
                .wrapping_sub(segment.file_offset)
                .wrapping_add(offset),
        ),
    )
}

/// In a CPU that is emulated (`cargo xtask kernels`) everything takes long, the way into a wait too.
pub fn is_emulated() -> bool {
    std::env::var_os("PILOTLIGHT_EMULATED").is_some()
}

/// Why BPF cannot be tested here; tests of root never skip.
pub fn skip() -> bool {
    // SAFETY: no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("SKIP: BPF programs are loaded by root only (CAP_BPF, CAP_PERFMON)");
    }
    !root
}
