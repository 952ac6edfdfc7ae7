use std::io;

/// Why the programs cannot work, or an operation on their maps failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object was refused: by aya before the kernel saw it, or when its maps were made.
    #[error(
        "loading the BPF object: {0}; it needs CAP_BPF and CAP_PERFMON, a kernel with BTF from 5.10 on, and before 5.11 \
         `ulimit -l unlimited`"
    )]
    Load(#[from] aya::EbpfError),
    /// The kernel refused a program.
    #[error("BPF program {program}: {source}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The verifier's words, or what else was wrong.
        source: aya::programs::ProgramError,
    },
    /// The object lacks something that this version needs.
    #[error("the BPF object has no {0}: object and agent are of different versions")]
    Missing(&'static str),
    /// A map operation failed.
    #[error("BPF map {map}: {source}")]
    Map {
        /// Its name.
        map: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel's type information cannot be read.
    #[error(
        "/sys/kernel/btf/vmlinux: {0}; without it the programs cannot be fitted to this kernel"
    )]
    Btf(#[from] aya::BtfError),
    /// Which CPUs there are cannot be found out.
    #[error("{0}")]
    Cpus(String),
}

impl Error {
    pub(crate) fn map(map: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Map { map, source }
    }
}
