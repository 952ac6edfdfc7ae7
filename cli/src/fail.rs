//! Errors for people: what, and what to run next.

use crate::text;
use std::process::ExitCode;

/// Something failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    next: String,
    code: u8,
}

impl Failure {
    /// Exit code 1. `next`: the next command to run.
    pub fn new(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            next: next.into(),
            code: 1,
        }
    }

    /// Usage or configuration: exit code 2.
    #[must_use]
    pub fn usage(mut self) -> Self {
        self.code = 2;
        self
    }

    /// Not permitted: exit code 4.
    #[must_use]
    pub fn permission(mut self) -> Self {
        self.code = 4;
        self
    }

    /// Prints it.
    pub fn report(&self) -> ExitCode {
        text::news(&format!(
            "{} {}",
            text::paint(text::RED, "error:"),
            self.message
        ));
        text::news(&format!("next:  {}", self.next));
        ExitCode::from(self.code)
    }
}
