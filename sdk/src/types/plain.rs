//! `cmdline` and `symbol`: texts that Go's endpoint has beside its profiles.

use std::os::unix::ffi::OsStrExt;

use super::{Ask, Kind, Source};
use crate::{capture, http, symbols};

pub(super) struct Cmdline;

impl Source for Cmdline {
    fn name(&self) -> &'static str {
        "cmdline"
    }

    fn description(&self) -> &'static str {
        "The command line invocation of the current program"
    }

    fn kind(&self) -> Kind {
        Kind::Text
    }

    fn cost(&self) -> String {
        "nothing".into()
    }

    /// Arguments joined by NUL, without a last one.
    fn text(&self, _ask: &Ask<'_>) -> Option<Result<Vec<u8>, String>> {
        let arguments: Vec<_> = std::env::args_os().collect();
        let bytes: Vec<&[u8]> = arguments.iter().map(|a| a.as_bytes()).collect();
        Some(Ok(bytes.join(&0)))
    }
}

pub(super) struct Symbol;

impl Source for Symbol {
    fn name(&self) -> &'static str {
        "symbol"
    }

    fn description(&self) -> &'static str {
        "Maps given program counters to function names. Counters can be specified in a GET raw \
         query or POST body, multiple counters are separated by '+'."
    }

    fn kind(&self) -> Kind {
        Kind::Text
    }

    fn cost(&self) -> String {
        "nothing".into()
    }

    fn text(&self, ask: &Ask<'_>) -> Option<Result<Vec<u8>, String>> {
        let counters = ask.body.unwrap_or(ask.query.as_bytes());
        let reply = || http::symbol_reply(counters, symbols::is_on(), capture::resolve_symbol);
        Some(Ok(symbols::on_own_thread(reply)))
    }
}
