//! One rule of `relabel_configs`, read and checked. Keys, defaults and what may stand beside what are Prometheus'
//! (`model/relabel/relabel.go`).

use crate::is_identifier;
use regex::Regex;
use serde_json::Value;

/// What a rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Sets `target_label` to `replacement` where `regex` matches.
    #[default]
    Replace,
    /// Drops what does not match.
    Keep,
    /// Drops what matches.
    Drop,
    /// Drops what differs from `target_label`.
    KeepEqual,
    /// Drops what equals `target_label`.
    DropEqual,
    /// Sets `target_label` to a hash modulo `modulus`.
    HashMod,
    /// Copies labels whose names match to names by `replacement`.
    LabelMap,
    /// Takes away labels whose names match.
    LabelDrop,
    /// Takes away labels whose names do not match.
    LabelKeep,
    /// Sets `target_label` to lower case.
    Lowercase,
    /// Sets `target_label` to upper case.
    Uppercase,
}

const ACTIONS: [(&str, Action); 11] = [
    ("replace", Action::Replace),
    ("keep", Action::Keep),
    ("drop", Action::Drop),
    ("keepequal", Action::KeepEqual),
    ("dropequal", Action::DropEqual),
    ("hashmod", Action::HashMod),
    ("labelmap", Action::LabelMap),
    ("labeldrop", Action::LabelDrop),
    ("labelkeep", Action::LabelKeep),
    ("lowercase", Action::Lowercase),
    ("uppercase", Action::Uppercase),
];

impl Action {
    /// As in the file.
    pub fn name(self) -> &'static str {
        let found = ACTIONS.iter().find(|(_, action)| *action == self);
        found.map_or("", |(name, _)| name)
    }
}

/// What is wrong with a key of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Empty: the rule as a whole.
    pub key: String,
    /// For people.
    pub text: String,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) source_labels: Vec<String>,
    pub(crate) separator: String,
    /// Anchored at both ends; `.` matches a line's end.
    pub(crate) regex: Regex,
    pub(crate) modulus: u64,
    pub(crate) target_label: String,
    pub(crate) replacement: String,
    /// What is done.
    pub(crate) action: Action,
}

impl Rule {
    /// All of it; an expression is its text.
    fn parts(&self) -> (&[String], [&str; 4], u64, Action) {
        let Rule {
            source_labels,
            separator,
            regex,
            modulus,
            target_label,
            replacement,
            action,
        } = self;
        let texts = [separator, regex.as_str(), target_label, replacement];
        (source_labels, texts, *modulus, *action)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Rule {}

const KEYS: [&str; 7] = [
    "source_labels",
    "separator",
    "regex",
    "modulus",
    "target_label",
    "replacement",
    "action",
];
const DEFAULTS: [(&str, &str); 3] = [("separator", ";"), ("regex", "(.*)"), ("replacement", "$1")];
/// Memory of a compiled expression.
const REGEX_BYTES: usize = 10 << 20;

impl Rule {
    /// Reads a mapping.
    ///
    /// # Errors
    /// Everything that is wrong with it, each by its key.
    pub fn read(value: &Value) -> Result<Rule, Vec<Problem>> {
        let mut reader = Reader::new(value);
        if !value.is_object() {
            return Err(reader.problems);
        }
        let action = reader.action();
        let Some(regex) = reader.regex() else {
            return Err(reader.problems);
        };
        let rule = Rule {
            source_labels: reader.names("source_labels"),
            separator: reader.text_or_default("separator"),
            regex,
            modulus: reader.modulus(),
            target_label: reader.text("target_label").unwrap_or_default(),
            replacement: reader.text_or_default("replacement"),
            action,
        };
        reader.check(&rule);
        match reader.problems.is_empty() {
            true => Ok(rule),
            false => Err(reader.problems),
        }
    }

    /// What is done.
    pub fn action(&self) -> Action {
        self.action
    }
}

struct Reader<'a> {
    value: &'a Value,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn new(value: &'a Value) -> Self {
        let mut reader = Self {
            value,
            problems: Vec::new(),
        };
        match value.as_object() {
            None => reader.problem("", "must be a mapping such as {action: drop, …}"),
            Some(map) => {
                for key in map.keys().filter(|key| !KEYS.contains(&&***key)) {
                    let text = format!("no such key; there are {}", KEYS.join(", "));
                    reader.problem(key, text);
                }
            }
        }
        reader
    }

    fn problem(&mut self, key: &str, text: impl Into<String>) {
        self.problems.push(Problem {
            key: key.to_owned(),
            text: text.into(),
        });
    }

    /// Something else than what holds without it.
    fn has(&self, key: &str) -> bool {
        let default = DEFAULTS.iter().find(|(known, _)| *known == key);
        let is_default = |value: &Value| default.is_some_and(|(_, text)| value == text);
        self.value
            .get(key)
            .is_some_and(|value| !value.is_null() && !is_default(value))
    }

    /// Numbers and truths are texts too, as YAML writes them.
    fn text(&mut self, key: &str) -> Option<String> {
        match self.value.get(key)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
            _ => {
                self.problem(key, "must be a text");
                None
            }
        }
    }

    fn text_or_default(&mut self, key: &str) -> String {
        let default = DEFAULTS.iter().find(|(known, _)| *known == key);
        let default = default.map_or("", |(_, text)| *text);
        self.text(key).unwrap_or_else(|| default.to_owned())
    }

    fn action(&mut self) -> Action {
        let Some(text) = self.text("action") else {
            return Action::default();
        };
        let lower = text.to_lowercase();
        let found = ACTIONS.iter().find(|(name, _)| *name == lower);
        if found.is_none() {
            let names = ACTIONS.map(|(name, _)| name).join(", ");
            self.problem("action", format!("{text:?} is none of {names}"));
        }
        found.map_or(Action::default(), |(_, action)| *action)
    }

    fn names(&mut self, key: &str) -> Vec<String> {
        let list = match self.value.get(key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.problem(key, "must be a list such as [__address__, job]");
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for value in list {
            match value {
                Value::String(name) => names.push(name.clone()),
                Value::Number(name) => names.push(name.to_string()),
                _ => self.problem(key, format!("{value} is no name of a label")),
            }
        }
        names
    }

    fn regex(&mut self) -> Option<Regex> {
        let text = self.text_or_default("regex");
        let compiled = regex::RegexBuilder::new(&format!("^(?s:{text})$"))
            .size_limit(REGEX_BYTES)
            .build();
        compiled
            .map_err(|error| self.problem("regex", error.to_string()))
            .ok()
    }

    fn modulus(&mut self) -> u64 {
        match self.value.get("modulus") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_u64().unwrap_or_else(|| {
                self.problem("modulus", "must be a whole number above 0");
                1
            }),
        }
    }

    fn check(&mut self, rule: &Rule) {
        let name = rule.action.name();
        let target = rule.target_label.as_str();
        let mut wants_target = true;
        match rule.action {
            Action::Replace if !is_name_template(target) && !target.is_empty() => {
                self.problem("target_label", format!("{target:?} is no name of a label"));
            }
            Action::Replace => {}
            Action::HashMod if rule.modulus == 0 => {
                self.problem("modulus", "hashmod needs one above 0");
            }
            Action::Lowercase | Action::Uppercase => self.refuse(name, &["replacement"]),
            Action::KeepEqual | Action::DropEqual => {
                self.refuse(name, &["regex", "modulus", "separator", "replacement"]);
            }
            Action::LabelDrop | Action::LabelKeep => {
                let others = ["source_labels", "target_label", "modulus", "separator"];
                self.refuse(name, &others);
                self.refuse(name, &["replacement"]);
                wants_target = false;
            }
            Action::LabelMap => {
                if !is_name_template(&rule.replacement) {
                    let text = format!("{:?} makes no name of a label", rule.replacement);
                    self.problem("replacement", text);
                }
                wants_target = false;
            }
            Action::Keep | Action::Drop => wants_target = false,
            Action::HashMod => {}
        }
        if wants_target && target.is_empty() {
            self.problem("target_label", format!("{name} needs it"));
        }
        let is_template = rule.action == Action::Replace;
        if wants_target && !is_template && !target.is_empty() && !is_identifier(target) {
            self.problem("target_label", format!("{target:?} is no name of a label"));
        }
    }

    fn refuse(&mut self, action: &str, keys: &[&str]) {
        for key in keys.iter().filter(|key| self.has(key)).collect::<Vec<_>>() {
            self.problem(key, format!("has no meaning for {action}; remove it"));
        }
    }
}

/// A name, of which parts may be `$1`, `${1}` or `${name}`.
fn is_name_template(text: &str) -> bool {
    static TEMPLATE: std::sync::LazyLock<Option<Regex>> =
        std::sync::LazyLock::new(|| Regex::new(r"^(?:(?:[a-zA-Z_]|\$(?:\{\w+\}|\w+))+\w*)+$").ok());
    TEMPLATE.as_ref().is_some_and(|regex| regex.is_match(text))
}
