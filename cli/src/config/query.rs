//! `server.query`.

use super::ServerRules;
use pilotlight_scraper::config::reader::Section;

/// What one query may take.
pub fn read(mut section: Section<'_>, rules: &mut ServerRules) {
    let limits = &mut rules.query;
    if let Some(bytes) = section.size("max_read") {
        limits.read_bytes = bytes;
    }
    if let Some(bytes) = section.size("max_memory") {
        limits.memory_bytes = bytes;
    }
    if let Some(time) = section.duration("max_cpu") {
        limits.cpu = time;
    }
    if let Some(count) = section.number("max_waiting") {
        limits.waiting = usize::try_from(count).unwrap_or(usize::MAX).max(1);
    }
    section.finish(|_| None);
}
