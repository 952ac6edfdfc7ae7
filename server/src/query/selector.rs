//! Selectors as Prometheus writes them: `{service_name="checkout",pod=~"a.*"}`.

use regex::Regex;

use crate::segment::Labels;

/// What a selector says about one label.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// Label name.
    pub name: String,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    Equal(String),
    NotEqual(String),
    Regex(Regex),
    NotRegex(Regex),
}

/// Matchers that must all hold.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    matchers: Vec<Matcher>,
}

/// Where and why a selector cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {what}")]
pub struct SelectorError {
    /// Byte offset in the selector's text.
    pub at: usize,
    /// What was expected or wrong.
    pub what: String,
}

/// Regexes are compiled from requests; this bounds what one of them may take.
const REGEX_BYTES: usize = 1 << 20;

impl Matcher {
    fn new(name: String, op: Op, value: String, at: usize) -> Result<Self, SelectorError> {
        let test = match op {
            Op::Equal => Test::Equal(value),
            Op::NotEqual => Test::NotEqual(value),
            Op::Regex => Test::Regex(anchored(&value, at)?),
            Op::NotRegex => Test::NotRegex(anchored(&value, at)?),
        };
        Ok(Self { name, test })
    }

    /// Whether the matcher holds for a label value; a missing label is the empty value.
    pub fn holds(&self, value: &str) -> bool {
        match &self.test {
            Test::Equal(wanted) => value == wanted,
            Test::NotEqual(unwanted) => value != unwanted,
            Test::Regex(regex) => regex.is_match(value),
            Test::NotRegex(regex) => !regex.is_match(value),
        }
    }
}

/// Prometheus' regexes match the whole value, and `.` matches newlines too.
fn anchored(pattern: &str, at: usize) -> Result<Regex, SelectorError> {
    regex::RegexBuilder::new(&format!("^(?s:{pattern})$"))
        .size_limit(REGEX_BYTES)
        .build()
        .map_err(|error| SelectorError {
            at,
            what: format!("regex: {error}"),
        })
}

#[derive(Clone, Copy)]
enum Op {
    Equal,
    NotEqual,
    Regex,
    NotRegex,
}

impl Selector {
    /// Reads a selector. The empty text and `{}` match everything. `name{…}` is taken as well and
    /// means a matcher on `__name__`.
    ///
    /// # Errors
    /// With the place of the first fault.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let matchers = parse_pairs(text)?
            .into_iter()
            .map(|pair| Matcher::new(pair.name, pair.op, pair.value, pair.at))
            .collect::<Result<_, _>>()?;
        Ok(Self { matchers })
    }

    /// Takes a matcher `name="value"` out and returns its value.
    pub fn take_equal(&mut self, name: &str) -> Option<String> {
        let is_it =
            |matcher: &Matcher| matcher.name == name && matches!(matcher.test, Test::Equal(_));
        let at = self.matchers.iter().position(is_it)?;
        match self.matchers.remove(at).test {
            Test::Equal(value) => Some(value),
            _ => None,
        }
    }

    /// Adds the matchers of another selector.
    pub fn and(&mut self, other: Self) {
        self.matchers.extend(other.matchers);
    }

    /// Whether a matcher is about one of these labels.
    pub fn names_any(&self, labels: &[String]) -> bool {
        self.matchers.iter().any(|m| labels.contains(&m.name))
    }

    /// Whether all matchers hold for a label set.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| {
            let value = labels.iter().find(|(name, _)| *name == matcher.name);
            matcher.holds(value.map_or("", |(_, value)| value))
        })
    }

    /// Whether a part of this service can hold a matching series.
    pub fn may_match_service(&self, service: &str) -> bool {
        let mut on_service = self.matchers.iter().filter(|m| m.name == "service_name");
        on_service.all(|matcher| matcher.holds(service))
    }
}

/// Reads a label set written as a selector of `=` only.
///
/// # Errors
/// With the place of the first fault, or of the first operator other than `=`.
pub fn parse_labels(text: &str) -> Result<Labels, SelectorError> {
    let mut labels = Labels::new();
    for pair in parse_pairs(text)? {
        if !matches!(pair.op, Op::Equal) {
            let what = format!(
                "a series is written with = only, as in {{{}=\"…\"}}",
                pair.name
            );
            return Err(SelectorError { at: pair.at, what });
        }
        if labels.iter().any(|(name, _)| *name == pair.name) {
            let what = format!("label {} stands twice", pair.name);
            return Err(SelectorError { at: pair.at, what });
        }
        labels.push((pair.name, pair.value));
    }
    labels.sort();
    Ok(labels)
}

struct Pair {
    name: String,
    op: Op,
    value: String,
    at: usize,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

fn parse_pairs(text: &str) -> Result<Vec<Pair>, SelectorError> {
    let mut parser = Parser { text, at: 0 };
    let mut pairs = Vec::new();
    parser.skip_space();
    if parser.rest().is_empty() {
        return Ok(pairs);
    }
    if !parser.rest().starts_with('{') {
        let at = parser.at;
        let name = parser.name()?;
        pairs.push(Pair {
            name: "__name__".to_owned(),
            op: Op::Equal,
            value: name,
            at,
        });
        parser.skip_space();
        if parser.rest().is_empty() {
            return Ok(pairs);
        }
    }
    parser.expect('{')?;
    loop {
        parser.skip_space();
        if parser.eat('}') {
            break;
        }
        let at = parser.at;
        let name = parser.name()?;
        parser.skip_space();
        let op = parser.operator()?;
        parser.skip_space();
        let value = parser.quoted()?;
        pairs.push(Pair {
            name,
            op,
            value,
            at,
        });
        parser.skip_space();
        if !parser.eat(',') {
            parser.expect('}')?;
            break;
        }
    }
    parser.skip_space();
    if parser.rest().is_empty() {
        Ok(pairs)
    } else {
        parser.fail("the selector ends before this")
    }
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, SelectorError> {
        Err(SelectorError {
            at: self.at,
            what: what.into(),
        })
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn expect(&mut self, wanted: char) -> Result<(), SelectorError> {
        if self.eat(wanted) {
            Ok(())
        } else {
            self.fail(format!("expected {wanted}"))
        }
    }

    fn name(&mut self) -> Result<String, SelectorError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
        let name = &rest[..end.unwrap_or(rest.len())];
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return self.fail("expected a label name ([a-zA-Z_][a-zA-Z0-9_]*)");
        }
        self.at += name.len();
        Ok(name.to_owned())
    }

    fn operator(&mut self) -> Result<Op, SelectorError> {
        let operators = [
            ("=~", Op::Regex),
            ("!~", Op::NotRegex),
            ("!=", Op::NotEqual),
            ("=", Op::Equal),
        ];
        for (text, op) in operators {
            if self.rest().starts_with(text) {
                self.at += text.len();
                return Ok(op);
            }
        }
        self.fail("expected one of = != =~ !~")
    }

    fn quoted(&mut self) -> Result<String, SelectorError> {
        let Some(quote @ ('"' | '\'' | '`')) = self.rest().chars().next() else {
            return self.fail("expected a value in quotes");
        };
        self.at += 1;
        let mut value = String::new();
        loop {
            let Some(next) = self.rest().chars().next() else {
                return self.fail(format!("the value has no closing {quote}"));
            };
            self.at += next.len_utf8();
            match next {
                _ if next == quote => return Ok(value),
                '\\' if quote != '`' => value.push(self.escape()?),
                '\n' if quote != '`' => return self.fail("a line break inside the quotes"),
                _ => value.push(next),
            }
        }
    }

    /// Go's escapes, as Prometheus takes them.
    fn escape(&mut self) -> Result<char, SelectorError> {
        let Some(kind) = self.rest().chars().next() else {
            return self.fail("a backslash at the end");
        };
        self.at += kind.len_utf8();
        let plain = match kind {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '"' | '\'' => kind,
            'x' => return self.code(2, 16),
            'u' => return self.code(4, 16),
            'U' => return self.code(8, 16),
            '0'..='7' => {
                self.at -= 1;
                return self.code(3, 8);
            }
            _ => {
                return self.fail(format!(
                    "unknown escape \\{kind}; write \\\\ for a backslash"
                ));
            }
        };
        Ok(plain)
    }

    fn code(&mut self, digits: usize, radix: u32) -> Result<char, SelectorError> {
        let code = self.rest().get(..digits);
        let code = code.and_then(|digits| u32::from_str_radix(digits, radix).ok());
        match code.and_then(char::from_u32) {
            Some(value) => {
                self.at += digits;
                Ok(value)
            }
            None => self.fail(format!("expected {digits} digits of a character's code")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Labels {
        [("pod", "a-1"), ("service_name", "checkout")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    fn matches(text: &str) -> bool {
        Selector::parse(text).unwrap().matches(&labels())
    }

    #[test]
    fn operators_work_as_in_prometheus() {
        for text in [
            "",
            "{}",
            " { } ",
            r#"{service_name="checkout"}"#,
            r#"{service_name="checkout",}"#,
            r#"{service_name!="cart", pod=~"a.*"}"#,
            r#"{pod=~"a-[0-9]|b"}"#,
            r#"{pod!~"a"}"#,
            r#"{missing=""}"#,
            r#"{missing!~".+"}"#,
            r"{pod='a-1'}",
            r"{pod=~`a-\d`}",
            r#"{pod=~"a-\\d"}"#,
            r#"{pod="a\x2d1"}"#,
            r#"{pod="a\u002d1"}"#,
        ] {
            assert!(matches(text), "{text}");
        }
        for text in [
            r#"{service_name="Checkout"}"#,
            r#"{pod=~"a"}"#,
            r#"{pod=~"b|a"}"#,
            r#"{missing=~".+"}"#,
            r#"{missing!=""}"#,
            "process_cpu{}",
        ] {
            assert!(!matches(text), "{text}");
        }
    }

    #[test]
    fn faults_are_named_with_their_place() {
        for (text, at) in [
            ("{", 1),
            ("{pod}", 4),
            ("{pod=a}", 5),
            (r#"{pod="a"#, 7),
            (r#"{pod="a"} x"#, 10),
            (r#"{pod="\q"}"#, 8),
            (r#"{pod=~"("}"#, 1),
            (r#"{1pod="a"}"#, 1),
            (r#"{pod="a" job="b"}"#, 9),
        ] {
            assert_eq!(Selector::parse(text).unwrap_err().at, at, "{text}");
        }
    }

    #[test]
    fn a_series_is_sorted_and_has_each_label_once() {
        let parsed = parse_labels(r#"{service_name="checkout",pod="a-1"}"#).unwrap();
        assert_eq!(parsed, labels());
        assert!(parse_labels(r#"{pod="a",pod="b"}"#).is_err());
        assert!(parse_labels(r#"{pod=~"a"}"#).is_err());
    }
}
