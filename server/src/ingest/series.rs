//! Labels of a pushed series: what is allowed, and what the server adds.

use crate::query::selector::parse_labels;
use crate::segment::Labels;

/// Bytes of a profile's name.
const MAX_NAME: usize = 256;

/// What a label set may be.
#[derive(Debug, Clone)]
pub struct LabelLimits {
    /// Labels of a series. Default 64.
    pub count: usize,
    /// Bytes of a label's name. Default 256.
    pub name_bytes: usize,
    /// Bytes of a label's value. Default 4,096.
    pub value_bytes: usize,
}

impl Default for LabelLimits {
    fn default() -> Self {
        Self {
            count: 64,
            name_bytes: 256,
            value_bytes: 4096,
        }
    }
}

/// A series as pushed.
#[derive(Debug, PartialEq, Eq)]
pub struct Series {
    /// Sorted, with `service_name`, without `__name__`.
    pub labels: Labels,
    /// Profile name.
    pub name: String,
    /// Whether `service_name` was missing.
    pub service_added: bool,
}

/// Why a series is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum SeriesError {
    /// It cannot be read.
    Syntax(String),
    /// It can be read, but is over a limit.
    Limit(String),
}

/// Reads the parameters `series` and `name`.
///
/// # Errors
/// With a text for the sender.
pub fn parse(
    series: &str,
    name: Option<&str>,
    limits: &LabelLimits,
) -> Result<Series, SeriesError> {
    let mut labels = parse_labels(series).map_err(|error| {
        SeriesError::Syntax(format!(
            "parameter series, {error}; write it like {{service_name=\"checkout\",pod=\"a\"}}"
        ))
    })?;
    let at = labels.iter().position(|(label, _)| label == "__name__");
    let inside = at.map(|at| labels.remove(at).1);
    let Some(name) = name
        .map(str::to_owned)
        .or(inside)
        .filter(|name| !name.is_empty())
    else {
        return Err(SeriesError::Syntax(
            "parameter name is missing: the name of the profile, such as &name=process_cpu"
                .to_owned(),
        ));
    };
    checked(labels, name, limits)
}

/// The same for labels that are taken apart already.
///
/// # Errors
/// With a text for the sender.
pub fn checked(
    mut labels: Labels,
    name: String,
    limits: &LabelLimits,
) -> Result<Series, SeriesError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.len() > MAX_NAME || !name.chars().all(plain) {
        return Err(SeriesError::Syntax(format!(
            "parameter name: {name:?} must be at most {MAX_NAME} letters, digits, _ - or . \
             (: separates the fields of a profile type)"
        )));
    }
    // An empty label is the same as no label, as in Prometheus.
    labels.retain(|(_, value)| !value.is_empty());
    check(&labels, limits)?;
    let service_added = !labels.iter().any(|(label, _)| label == "service_name");
    if service_added {
        labels.push(("service_name".to_owned(), "unknown_service".to_owned()));
        labels.sort();
    }
    Ok(Series {
        labels,
        name,
        service_added,
    })
}

fn check(labels: &Labels, limits: &LabelLimits) -> Result<(), SeriesError> {
    let LabelLimits {
        count,
        name_bytes,
        value_bytes,
    } = *limits;
    if labels.len() > count {
        let n = labels.len();
        return Err(SeriesError::Limit(format!(
            "{n} labels, the limit is {count}"
        )));
    }
    for (name, value) in labels {
        if name.contains(':') {
            return Err(SeriesError::Syntax(format!(
                "label name {name}: no : is allowed"
            )));
        }
        // The server's own words about a series, such as that a sampling rule thinned it out.
        if name == super::policy::SAMPLED_LABEL {
            return Err(SeriesError::Syntax(format!(
                "label {name} is the server's own: leave it out"
            )));
        }
        if name.len() > name_bytes || value.len() > value_bytes {
            return Err(SeriesError::Limit(format!(
                "label {} is too long: the limits are {name_bytes} bytes for the name and \
                 {value_bytes} for the value",
                name.chars().take(80).collect::<String>()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_gets_a_service_and_a_name() {
        let series = parse(
            r#"{pod="a",__name__="heap",gone=""}"#,
            None,
            &LabelLimits::default(),
        )
        .unwrap();
        assert_eq!(series.name, "heap");
        assert!(series.service_added);
        let names: Vec<&str> = series
            .labels
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["pod", "service_name"]);
        assert_eq!(
            parse("{}", Some("cpu"), &LabelLimits::default())
                .unwrap()
                .name,
            "cpu"
        );
    }

    #[test]
    fn what_would_not_be_found_again_is_refused() {
        for (series, name) in [
            ("{", "cpu"),
            ("{}", ""),
            ("{}", "a:b"),
            (r#"{a:b="c"}"#, "cpu"),
            (r#"{__sampled__="true"}"#, "cpu"),
        ] {
            assert!(
                matches!(
                    parse(series, Some(name), &LabelLimits::default()),
                    Err(SeriesError::Syntax(_))
                ),
                "{series}"
            );
        }
        let long = format!(r#"{{a="{}"}}"#, "x".repeat(5000));
        assert!(matches!(
            parse(&long, Some("cpu"), &LabelLimits::default()),
            Err(SeriesError::Limit(_))
        ));
    }
}
