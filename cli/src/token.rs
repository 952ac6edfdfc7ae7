//! `pilotlight token`: a secret for somebody, and its hash for the configuration.

use crate::args;
use crate::fail::Failure;
use crate::text;
use pilotlight_server::{Scope, is_tenant_name, token_hash};
use std::fmt::Write;
use std::fs::File;
use std::io::Read;

pub fn run(arguments: &args::Token) -> Result<(), Failure> {
    if let Some(odd) = arguments
        .scopes
        .iter()
        .find(|word| Scope::of_word(word).is_none())
    {
        let text = format!("{odd:?} is no scope");
        return Err(Failure::new(text, "pilotlight token --help").usage());
    }
    if arguments.tenant != "*" && !is_tenant_name(&arguments.tenant) {
        let text = format!("{:?} cannot be a tenant's name", arguments.tenant);
        return Err(Failure::new(text, "the same command with --tenant default").usage());
    }
    let token = fresh()
        .map_err(|error| Failure::new(format!("no random bytes: {error}"), "ls -l /dev/urandom"))?;
    text::data(&token);
    text::news("shown once; only its hash goes into pilotlight.yaml:");
    text::news("server:");
    text::news("  access:");
    text::news("    tokens:");
    text::news(&format!("      - name: {:?}", arguments.name));
    text::news(&format!("        sha256: {}", hex(&token_hash(&token))));
    text::news(&format!(
        "        scopes: [{}]",
        arguments.scopes.join(", ")
    ));
    text::news(&format!("        tenant: {:?}", arguments.tenant));
    Ok(())
}

/// 32 random bytes.
pub fn fresh() -> std::io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("pl_{}", hex(&bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
