//! `server.ingest` and `server.retention`.

use super::ServerRules;
use pilotlight_scraper::config::reader::Section;
use pilotlight_server::{Keep, RetentionRule, Rule};
use std::time::Duration;

/// Rates, limits and sampling.
pub fn read(mut section: Section<'_>, rules: &mut ServerRules) {
    let ingest = &mut rules.ingest;
    set(
        &mut ingest.bytes_per_second,
        section.size("bytes_per_second"),
    );
    set(
        &mut ingest.profiles_per_second,
        section.number("profiles_per_second"),
    );
    set_usize(&mut ingest.series, section.number("series_limit"));
    set_usize(&mut ingest.labels.count, section.number("label_limit"));
    set_usize(
        &mut ingest.labels.name_bytes,
        section.number("label_name_length_limit"),
    );
    set_usize(
        &mut ingest.labels.value_bytes,
        section.number("label_value_length_limit"),
    );
    set(&mut ingest.future, section.duration("future"));
    set(
        &mut rules.limits.wire_bytes,
        section.size("profile_size_limit"),
    );
    set(
        &mut rules.limits.stack_depth,
        section.number("stack_depth_limit"),
    );
    let problems = section.problems();
    for (place, value) in section.list("sampling") {
        ingest
            .sampling
            .extend(rule(Section::new(place, value, problems)));
    }
    section.finish(|_| None);
}

/// How long and how much is kept.
pub fn read_retention(mut section: Section<'_>, rules: &mut ServerRules) {
    if let Some(age) = section.duration("max_age") {
        if age.is_zero() {
            section.problem("max_age", "must be longer than 0");
        }
        rules.retention.max_age = Some(age);
    }
    if let Some(age) = section.duration("roll_up_max_age") {
        if age.is_zero() {
            section.problem("roll_up_max_age", "must be longer than 0");
        }
        rules.retention.roll_up_max_age = Some(age);
    }
    if section.has("roll_up_without") {
        rules.retention.roll_up_without = section.texts("roll_up_without");
    }
    if let Some(bytes) = section.size("max_bytes") {
        if bytes == 0 {
            section.problem("max_bytes", "must be more than 0");
        }
        rules.retention.max_bytes = Some(bytes);
    }
    let problems = section.problems();
    for (place, value) in section.list("rules") {
        let rule = retention_rule(Section::new(place, value, problems));
        rules.retention.retention.extend(rule);
    }
    section.finish(|_| None);
}

/// Limits of their own for the series of a selector.
fn retention_rule(mut section: Section<'_>) -> Option<RetentionRule> {
    let selector = section.text("selector").unwrap_or_default();
    let [max_age, roll_up_max_age] = ["max_age", "roll_up_max_age"].map(|key| {
        section.duration(key).filter(|age| {
            if age.is_zero() {
                section.problem(key, "must be longer than 0");
            }
            !age.is_zero()
        })
    });
    let max_bytes = section.size("max_bytes");
    if max_age.is_none() && roll_up_max_age.is_none() && max_bytes.is_none() {
        let text = "needs one of max_age, roll_up_max_age and max_bytes";
        section.problems().add(section.place(), text);
    }
    let mut rule = RetentionRule::new(&selector)
        .map_err(|error| section.problem("selector", error.to_string()))
        .ok();
    section.finish(|_| None);
    if let Some(rule) = &mut rule {
        rule.max_age = max_age;
        rule.roll_up_max_age = roll_up_max_age;
        rule.max_bytes = max_bytes;
    }
    rule
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

fn set_usize(to: &mut usize, value: Option<u64>) {
    set(
        to,
        value.map(|value| usize::try_from(value).unwrap_or(usize::MAX)),
    );
}

fn rule(mut section: Section<'_>) -> Option<Rule> {
    let selector = section.text("selector").unwrap_or_default();
    let share = share(&mut section, "keep_share").map(Keep::Share);
    let series = self::share(&mut section, "keep_series").map(Keep::Series);
    let profiles = section.number("keep_profiles");
    let window = section
        .duration("window")
        .unwrap_or(Duration::from_secs(60));
    let window = profiles.map(|profiles| Keep::PerWindow {
        profiles: u32::try_from(profiles).unwrap_or(u32::MAX),
        window,
    });
    let given: Vec<Keep> = [share, series, window].into_iter().flatten().collect();
    let rule = match given[..] {
        [keep] => Rule::new(&selector, keep)
            .map_err(|error| section.problem("selector", error.to_string()))
            .ok(),
        _ => {
            let text = "needs one of keep_share, keep_series and keep_profiles";
            section.problems().add(section.place(), text);
            None
        }
    };
    section.finish(|_| None);
    rule
}

fn share(section: &mut Section<'_>, key: &'static str) -> Option<f64> {
    let value = section.value(key)?;
    let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
    if share.is_none() {
        section.problem(key, format!("must be from 0 to 1, not {value}"));
    }
    share
}
