//! `POST /debug/pprof/NAME?enable=1|0`: a type of profile switched on or off from outside.

use std::sync::atomic::{AtomicBool, Ordering};

use super::routes::pprof_error;
use super::{Request, Response, query};
use crate::types::{self, State};

static ALLOWED: AtomicBool = AtomicBool::new(false);

/// What the configuration says; until it does, nothing can be switched.
pub(crate) fn allow(allowed: bool) {
    ALLOWED.store(allowed, Ordering::Relaxed);
}

pub(super) fn is_allowed() -> bool {
    ALLOWED.load(Ordering::Relaxed)
}

/// A POST with `enable`. Without it, POST is refused as Go does.
pub(super) fn is_asked(request: &Request<'_>) -> bool {
    request.method == "POST" && !query::form_value(request.query, "enable").is_empty()
}

pub(super) fn respond(name: &str, request: &Request<'_>) -> Response {
    let Some(source) = types::find(name) else {
        return pprof_error(404, "Unknown profile");
    };
    if !is_allowed() {
        let text = "switching by HTTP is not allowed: start with Config::allow_http_switch(true) or \
                    PILOTLIGHT_HTTP_SWITCH=true, or call pilotlight::set_enabled in the program";
        return pprof_error(403, text);
    }
    if request.from_other_site {
        return pprof_error(403, "a page of another site may not switch profiles");
    }
    let on = match query::form_value(request.query, "enable").as_slice() {
        b"1" => true,
        b"0" => false,
        _ => return pprof_error(400, "invalid value for \"enable\" - must be 1 or 0"),
    };
    if let Err(why) = source.set_enabled(on) {
        return pprof_error(409, &format!("{name} cannot be switched: {why}"));
    }
    let state = match source.state() {
        State::On => "on".to_string(),
        State::Off { why, .. } => format!("off: {why}"),
    };
    Response::error(200, &format!("{name} is {state}"))
}
