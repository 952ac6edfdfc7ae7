//! `server.debuginfo`.

use pilotlight_scraper::config::reader::Section;
use pilotlight_server::DebuginfoSettings;

/// What debug information may take.
pub fn read(mut section: Section<'_>, settings: &mut DebuginfoSettings) {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    if let Some(size) = section.size("max_file_bytes") {
        settings.max_file_bytes = size;
    }
    if let Some(size) = section.size("max_bytes") {
        settings.max_bytes = size;
    }
    if let Some(size) = section.size("table_cache_bytes") {
        settings.table_cache_bytes = bytes(size);
    }
    if let Some(size) = section.size("named_cache_bytes") {
        settings.named_cache_bytes = bytes(size);
    }
    if let Some(size) = section.size("parse_memory_bytes") {
        settings.parse_limits.memory_bytes = size;
    }
    if let Some(cpu) = section.duration("parse_cpu_time") {
        settings.parse_limits.cpu = cpu;
        settings.parse_limits.wall = cpu * 3;
    }
    section.finish(|_| None);
}
