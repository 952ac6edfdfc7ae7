//! Query parameters that the reading endpoints share.

use std::collections::HashMap;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;

use super::{ApiError, App};
use crate::query::engine::Selection;
use crate::query::sample_labels::SampleLabels;
use crate::query::selector::Selector;
use crate::query::series::default_step;
use crate::query::time;

/// Parameters by name; each may stand once.
pub struct Params(HashMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|error| {
            ApiError::bad(format!("the parameters after ? cannot be read: {error}"))
        })?;
        let mut map = HashMap::new();
        for (name, value) in pairs.0 {
            if map.insert(name.clone(), value).is_some() {
                return Err(ApiError::bad(format!(
                    "parameter {name} stands twice; give it once"
                )));
            }
        }
        Ok(Self(map))
    }
}

impl Params {
    /// A parameter that is there and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// A time, or a default.
    pub fn time(&self, name: &str, now_ns: i64, default: i64) -> Result<i64, ApiError> {
        match self.get(name) {
            Some(text) => time::parse(text, now_ns)
                .map_err(|error| ApiError::bad(format!("parameter {name}: {error}"))),
            None => Ok(default),
        }
    }

    /// `from` (default now-1h) and `until` (default now; a profile that starts now counts).
    pub fn window(&self, now_ns: i64) -> Result<(i64, i64), ApiError> {
        const HOUR: i64 = 3_600_000_000_000;
        let until = self.time("until", now_ns, now_ns)?;
        let from = self.time("from", now_ns, until.min(now_ns).saturating_sub(HOUR))?;
        if from >= until {
            return Err(ApiError::bad(format!(
                "the window is empty: from ({from} ns) must be before until ({until} ns)"
            )));
        }
        Ok((from, until.saturating_add(1)))
    }

    /// The last `seconds` before `until` where they are given, as by `go tool pprof -seconds`;
    /// otherwise the window.
    pub fn last_seconds(&self, now_ns: i64) -> Result<(i64, i64), ApiError> {
        const YEAR: usize = 366 * 86_400;
        let seconds = self.number("seconds", 1, YEAR, 0)?;
        if seconds == 0 || self.get("from").is_some() {
            return self.window(now_ns);
        }
        let until = self.time("until", now_ns, now_ns)?;
        let from = until.saturating_sub(seconds as i64 * 1_000_000_000);
        Ok((from, until.saturating_add(1)))
    }

    /// `q`, default everything.
    pub fn selector(&self) -> Result<Selector, ApiError> {
        self.selector_named("q", "{}")
    }

    /// A selector under another name.
    pub fn selector_named(&self, name: &str, default: &str) -> Result<Selector, ApiError> {
        let text = self.get(name).unwrap_or(default);
        Selector::parse(text).map_err(|error| {
            ApiError::bad(format!(
                "parameter {name}, {error}; write it like {{service_name=\"checkout\",pod=~\"a.*\"}}"
            ))
        })
    }

    /// `labels`: which samples count, by the labels that samples have themselves.
    pub fn sample_labels(&self) -> Result<Option<SampleLabels>, ApiError> {
        match self.get("labels") {
            None => Ok(None),
            Some(_) => Ok(Some(SampleLabels(self.selector_named("labels", "{}")?))),
        }
    }

    /// `step`, or what gives a line some hundred points.
    pub fn step_ns(&self, window_ns: i64) -> Result<i64, ApiError> {
        let Some(text) = self.get("step") else {
            return Ok(default_step(window_ns));
        };
        let step = time::duration(text).filter(|&step| step > 0);
        step.ok_or_else(|| {
            ApiError::bad(format!(
                "parameter step: {text} is not a duration such as 10s"
            ))
        })
    }

    /// A whole number between `min` and `max`, or a default.
    pub fn number(
        &self,
        name: &str,
        min: usize,
        max: usize,
        default: usize,
    ) -> Result<usize, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        match text.parse::<usize>() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(ApiError::bad(format!(
                "parameter {name}: {text} is not a whole number from {min} to {max}"
            ))),
        }
    }

    /// What a selection is compared with: itself, with what `base_q`, `base_from` and `base_until`
    /// say instead.
    pub fn base(&self, app: &App, current: &Selection) -> Result<Selection, ApiError> {
        let given = ["base_q", "base_from", "base_until"];
        if given.iter().all(|name| self.get(name).is_none()) {
            return Err(ApiError::bad(
                "what to compare with is missing: base_q (such as {version=\"1.1\"}), or base_from \
                 and base_until",
            ));
        }
        let now_ns = app.env.now_ns();
        let from_ns = self.time("base_from", now_ns, current.from_ns)?;
        let until_ns = match self.get("base_until") {
            Some(_) => self.time("base_until", now_ns, 0)?.saturating_add(1),
            None => current.until_ns,
        };
        if from_ns >= until_ns {
            return Err(ApiError::bad(
                "the window of the base is empty: base_from must be before base_until",
            ));
        }
        Ok(Selection {
            type_id: current.type_id.clone(),
            selector: self.selector_named("base_q", self.get("q").unwrap_or("{}"))?,
            from_ns,
            until_ns,
            sample_labels: current.sample_labels.clone(),
        })
    }

    /// The whole selection; the type must be given.
    pub fn selection(&self, app: &App) -> Result<Selection, ApiError> {
        let (from_ns, until_ns) = self.window(app.env.now_ns())?;
        let selector = self.selector()?;
        let Some(text) = self.get("type") else {
            return Err(ApiError::bad(
                "parameter type is missing: a profile type id as in /api/v1/types, \
                 or a sample type such as cpu",
            ));
        };
        let type_id = app
            .engine
            .resolve_type(text, &selector, from_ns, until_ns)?;
        Ok(Selection {
            type_id,
            selector,
            from_ns,
            until_ns,
            sample_labels: self.sample_labels()?,
        })
    }
}
