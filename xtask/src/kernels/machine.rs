//! A machine of qemu's that boots a kernel, runs what the archive holds, and turns itself off.

use crate::steps;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const QEMU: &str = "qemu-system-x86_64";
/// Tests take half a minute, emulated some minutes; a kernel that hangs is killed.
const MOST: Duration = Duration::from_secs(600);

/// What it said on its serial line until it was off.
pub fn boot(kernel: &Path, archive: &[u8]) -> Result<String, String> {
    let image = steps::target_dir().join("kernels.cpio");
    std::fs::write(&image, archive).map_err(|error| format!("{}: {error}", image.display()))?;
    let mut command = Command::new(QEMU);
    command.args([
        "-smp",
        "2",
        "-m",
        "2048",
        "-nographic",
        "-no-reboot",
        "-nic",
        "none",
    ]);
    match is_virtualizable() {
        true => command.args(["-enable-kvm", "-cpu", "host,-arch-capabilities"]),
        false => command.args(["-cpu", "max"]),
    };
    command
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(&image);
    command.args(["-append", "console=ttyS0 quiet panic=-1"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child =
        child.map_err(|error| format!("cannot start {QEMU}: {error}; Debian: qemu-system-x86"))?;
    said(child)
}

/// Without it everything is emulated, which takes ten times as long and proves the same. The device alone says nothing:
/// inside a machine that is virtual itself it may be there for guests of a special kind only.
pub fn is_virtualizable() -> bool {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    Path::new("/dev/kvm").exists() && (has("vmx") || has("svm"))
}

fn said(mut child: Child) -> Result<String, String> {
    let mut out = child.stdout.take().ok_or("no output")?;
    let reader = std::thread::spawn(move || {
        let mut told = Vec::new();
        let _ = out.read_to_end(&mut told);
        String::from_utf8_lossy(&told).into_owned()
    });
    let until = Instant::now() + MOST;
    while child
        .try_wait()
        .map_err(|error| error.to_string())?
        .is_none()
    {
        if Instant::now() > until {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    reader
        .join()
        .map_err(|_| "its output could not be read".to_owned())
}
