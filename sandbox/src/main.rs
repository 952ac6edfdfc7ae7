//! The child alone, for tests and for programs that do not start themselves.

fn main() -> std::process::ExitCode {
    pilotlight_sandbox::child()
}
