//! Samples of one process as a profile.

use crate::files::Files;
use crate::names::{JitNames, Kallsyms, function, vdso};
use crate::process::{self, Process};
use crate::runtimes::{Hiding, Runtimes, hiding, is_frame};
use crate::{Sample, Why};
use pilotlight_profile::{
    FunctionId, Label, LabelValue, LocationId, Mapping, MappingId, Profile, ProfileBuilder, StrId,
};
use std::collections::HashMap;

/// Of code that nobody mapped from a file, and that has no name: visible, never dropped.
const JIT: &str = "[jit code without a name]";
/// A frame of a script whose code was gone before it could be read.
const NAMELESS: &str = "[script code without a name]";
const UNKNOWN: &str = "[unknown]";
const TRUNCATED: &str = "[truncated]";
/// In place of the stack of a program whose memory the kernel has taken back already.
const EXITING: &str = "[exiting]";
const KERNEL: &str = "[kernel.kallsyms]";

/// What names are taken from.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub files: &'a Files,
    pub kernel: &'a Kallsyms,
    pub jit: Option<&'a JitNames>,
    pub runtimes: &'a Runtimes,
}

/// Collects samples.
pub(super) struct Builder<'a> {
    process: &'a Process,
    names: Names<'a>,
    builder: ProfileBuilder,
    mappings: HashMap<u64, Option<MappingId>>,
    kernel: Option<MappingId>,
    thread: StrId,
    wait: StrId,
    hidden: StrId,
    hiding: Vec<(Hiding, StrId)>,
    shallow: u64,
}

impl<'a> Builder<'a> {
    pub fn new(
        process: &'a Process,
        names: Names<'a>,
        (kind, unit): (&str, &str),
        period: u64,
    ) -> Builder<'a> {
        let mut builder = ProfileBuilder::new();
        builder.sample_type("samples", "count");
        builder.sample_type(kind, unit);
        builder.period(kind, unit, period as i64);
        let [thread, wait, hidden] =
            ["thread", "wait", "scripts_not_seen"].map(|key| builder.string(key.as_bytes()));
        let hiding = hiding(process, names.files);
        let named = |hiding: Hiding| {
            let runtime = builder.string(hiding.runtime.as_bytes());
            (hiding, runtime)
        };
        let hiding = hiding.into_iter().map(named).collect();
        let mut this = Builder {
            process,
            names,
            builder,
            mappings: HashMap::new(),
            kernel: None,
            thread,
            wait,
            hidden,
            hiding,
            shallow: 0,
        };
        // The first mapping counts as the program's.
        if let Some(program) = process.mappings.iter().find(|m| *m.path == *process.exe) {
            this.mapping(program);
        }
        this
    }

    pub fn time(&mut self, from_ns: i64, until_ns: i64) {
        self.builder.time(from_ns, until_ns.saturating_sub(from_ns));
    }

    pub fn add(&mut self, sample: &Sample) {
        let mut stack: Vec<LocationId> =
            Vec::with_capacity(sample.kernel.len() + sample.user.len() + 1);
        for &address in &sample.kernel {
            let location = self.kernel(address);
            stack.push(location);
        }
        let exits = sample.cut.is_some() && self.exits(sample);
        for &address in &sample.user {
            // What is not mapped any more has no name to tell.
            if !exits || self.process.mapping(address).is_some() {
                let location = self.user(address);
                stack.push(location);
            }
        }
        if sample.cut.is_some() {
            let end = if exits { EXITING } else { TRUNCATED };
            let location = self.named(end, None, 0);
            stack.push(location);
        }
        let stack = self.builder.stack(&stack);
        let comm = self.builder.string(sample.comm.bytes());
        let mut labels = vec![Label {
            key: self.thread,
            value: LabelValue::Str(comm),
        }];
        if let Why::Waiting(wait) = sample.why {
            let value = LabelValue::Str(self.builder.string(wait.as_bytes()));
            labels.push(Label {
                key: self.wait,
                value,
            });
        }
        if let Some(runtime) = self.hides(sample) {
            let value = LabelValue::Str(runtime);
            let key = self.hidden;
            labels.push(Label { key, value });
            self.shallow += sample.count;
        }
        let labels = self.builder.label_set(&labels);
        let values = [sample.count as i64, sample.weight as i64];
        self.builder.sample(stack, labels, &values);
    }

    /// Whether the kernel was ending the program: there is no stack of it left to be cut.
    fn exits(&self, sample: &Sample) -> bool {
        let named = |address: &u64| self.names.kernel.find(*address) == Some("do_exit");
        sample.kernel.iter().any(named)
    }

    /// The interpreter in whose code the sample is, when its scripts are not in it.
    fn hides(&self, sample: &Sample) -> Option<StrId> {
        if sample.user.iter().any(|&word| is_frame(word)) {
            return None;
        }
        let holds = |hiding: &Hiding| sample.user.iter().any(|&address| hiding.holds(address));
        let found = self.hiding.iter().find(|(hiding, _)| holds(hiding));
        found.map(|(_, runtime)| *runtime)
    }

    /// Samples in the code of an interpreter whose scripts are not seen.
    pub fn shallow(&self) -> u64 {
        self.shallow
    }

    fn kernel(&mut self, address: u64) -> LocationId {
        let mapping = match self.kernel {
            Some(mapping) => mapping,
            None => {
                let file = self.builder.string(KERNEL.as_bytes());
                let mapping = self.builder.mapping(Mapping {
                    start: 0xffff_8000_0000_0000,
                    limit: u64::MAX,
                    offset: 0xffff_8000_0000_0000,
                    file,
                    ..Mapping::default()
                });
                *self.kernel.insert(mapping)
            }
        };
        match self.names.kernel.find(address) {
            Some(name) => self.named(name, Some(mapping), address),
            None => self.builder.location(Some(mapping), address, &[]),
        }
    }

    fn user(&mut self, address: u64) -> LocationId {
        if is_frame(address) {
            return self.interpreted(address);
        }
        let Some(mapping) = self.process.mapping(address) else {
            return self.named(UNKNOWN, None, address);
        };
        let id = self.mapping(mapping);
        if mapping.is_vdso()
            && let Some(name) = vdso::find(address - mapping.start)
        {
            self.named(&name, id, address)
        } else if mapping.is_file() || mapping.is_vdso() {
            self.builder.location(id, address, &[])
        } else {
            self.jit(id, address)
        }
    }

    /// A frame of a script.
    fn interpreted(&mut self, number: u64) -> LocationId {
        let Some(frame) = self.names.runtimes.frame(self.process.id, number) else {
            return self.named(NAMELESS, None, 0);
        };
        let told = &frame.function;
        let name = self.builder.string(told.name.as_bytes());
        let file = self.builder.string(told.file.as_bytes());
        let function = self
            .builder
            .function(name, name, file, i64::from(told.first_line));
        self.builder
            .location(None, 0, &[(function, i64::from(frame.line))])
    }

    fn jit(&mut self, mapping: Option<MappingId>, address: u64) -> LocationId {
        let Some(name) = self.names.jit.and_then(|jit| jit.find(address)) else {
            return self.named(JIT, mapping, address);
        };
        let told = function(name);
        let system_name = self.builder.string(name.as_bytes());
        let name = self.builder.string(told.name.as_bytes());
        let file = self.builder.string(told.file.as_bytes());
        let function = self.builder.function(name, system_name, file, told.line);
        self.builder
            .location(mapping, address, &[(function, told.line)])
    }

    fn mapping(&mut self, mapping: &process::Mapping) -> Option<MappingId> {
        if let Some(known) = self.mappings.get(&mapping.start) {
            return *known;
        }
        let file = self.names.files.of(self.process.id.pid, mapping);
        let build_id = file.map(|file| file.build_id.clone());
        let name: &[u8] = if mapping.path.is_empty() {
            b"//anon"
        } else {
            &mapping.path
        };
        let file = self.builder.string(name);
        let build_id = self.builder.string(build_id.unwrap_or_default().as_bytes());
        let id = self.builder.mapping(Mapping {
            start: mapping.start,
            limit: mapping.end,
            offset: mapping.file_offset,
            file,
            build_id,
            ..Mapping::default()
        });
        self.mappings.insert(mapping.start, Some(id));
        Some(id)
    }

    fn named(&mut self, name: &str, mapping: Option<MappingId>, address: u64) -> LocationId {
        let function = self.function(name);
        self.builder.location(mapping, address, &[(function, 0)])
    }

    fn function(&mut self, name: &str) -> FunctionId {
        let name = self.builder.string(name.as_bytes());
        self.builder.function(name, name, StrId::default(), 0)
    }

    pub fn finish(self) -> Profile {
        self.builder.finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;
    use crate::process::ProcessId;
    use crate::sampler::Comm;
    use pilotlight_profile::Tree;

    const DO_EXIT: u64 = 0xffff_8000_0000_1000;
    const READ: u64 = 0xffff_8000_0000_2000;

    fn stack_of(kernel: u64, cut: Option<&'static str>) -> Vec<String> {
        let text = format!("{DO_EXIT:x} T do_exit\n{READ:x} T vfs_read\n");
        let kernel_names = Kallsyms::parse(text.as_bytes());
        let (files, runtimes) = (Files::default(), Runtimes::default());
        let names = Names {
            files: &files,
            kernel: &kernel_names,
            jit: None,
            runtimes: &runtimes,
        };
        let process = Process::default();
        let mut builder = Builder::new(&process, names, ("cpu", "nanoseconds"), 1);
        builder.add(&Sample {
            process: ProcessId { pid: 1, image: 1 },
            tid: 1,
            comm: Comm::new(b"cc1"),
            why: Why::Cpu,
            kernel: vec![kernel + 8],
            user: vec![0x1234],
            cut,
            count: 1,
            weight: 1,
            time_ns: 1,
        });
        let tree = Tree::from_profile(&builder.finish(), 0);
        let named = |node| String::from_utf8_lossy(tree.name(node)).into_owned();
        (1..tree.len()).map(named).collect()
    }

    #[test]
    fn a_program_that_ends_has_no_stack_to_be_cut() {
        assert_eq!(
            stack_of(DO_EXIT, Some("unreadable")),
            ["[exiting]", "do_exit"]
        );
        let whole = ["[unknown]", "vfs_read"];
        assert_eq!(stack_of(READ, None), whole);
        assert_eq!(
            stack_of(READ, Some("unreadable")),
            [&["[truncated]"], &whole[..]].concat()
        );
    }
}
