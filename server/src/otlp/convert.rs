//! From an export to profiles and the series they belong to.

use std::collections::HashMap;

use pilotlight_profile::{
    Label, LabelSetId, LabelValue, Limits, LocationId, Mapping, MappingId, Profile, ProfileBuilder,
    StackId,
};

use super::proto::{self, Dictionary, ExportRequest, KeyValue, Value};

/// A profile and its origin.
pub struct Converted {
    /// Name of the series' profile, such as `process_cpu`.
    pub name: String,
    /// Labels of its resource, with names as Prometheus allows them.
    pub labels: Vec<(String, String)>,
    /// 16 bytes that name this profile everywhere; empty when it has none.
    pub id: Vec<u8>,
    /// The profile.
    pub profile: Profile,
    /// Samples that were left out, by reason.
    pub dropped: Vec<(&'static str, u64)>,
}

/// A profile that cannot be taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejected(pub String);

/// All profiles of an export. One that cannot be taken does not cost the others.
pub fn convert(request: &ExportRequest, limits: &Limits) -> Vec<Result<Converted, Rejected>> {
    let none = Dictionary::default();
    let dictionary = request.dictionary.as_ref().unwrap_or(&none);
    let mut out = Vec::new();
    for resource in &request.resource_profiles {
        let attributes = resource.resource.iter().flat_map(|of| &of.attributes);
        let labels = labels(attributes, dictionary);
        for scope in &resource.scope_profiles {
            for profile in &scope.profiles {
                let mut made = Conversion::new(dictionary, limits).profile(profile);
                if let Ok(made) = &mut made {
                    made.labels = labels.clone();
                }
                out.push(made);
            }
        }
    }
    out
}

/// `service.name` → `service_name`; what has no text or number is left out.
fn labels<'a>(
    attributes: impl Iterator<Item = &'a KeyValue>,
    dictionary: &Dictionary,
) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = attributes
        .filter_map(|attribute| {
            let key = match attribute.key.as_str() {
                "" => text(dictionary, attribute.key_strindex).ok()?,
                key => key.to_owned(),
            };
            let value = attribute.value.as_ref()?.value.as_ref()?;
            let value = shown(value, dictionary)?;
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            Some((key.chars().map(plain).collect(), value))
        })
        .filter(|(key, value): &(String, String)| !key.is_empty() && !value.is_empty())
        .collect();
    out.sort();
    out.dedup_by(|next, kept| next.0 == kept.0);
    name_service(&mut out);
    out
}

/// A profiler of whole hosts knows no service, but the program of each process.
fn name_service(labels: &mut Vec<(String, String)>) {
    let place = labels.binary_search_by(|(key, _)| key.as_str().cmp("service_name"));
    let (Err(place), Some(program)) = (
        place,
        labels
            .iter()
            .find(|(key, _)| key == "process_executable_name"),
    ) else {
        return;
    };
    let service = ("service_name".to_owned(), program.1.clone());
    labels.insert(place, service);
}

fn shown(value: &Value, dictionary: &Dictionary) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Int(number) => Some(number.to_string()),
        Value::Double(number) => Some(number.to_string()),
        Value::Bytes(_) => None,
        Value::StringIndex(index) => text(dictionary, *index).ok(),
    }
}

fn index(index: i32, what: &str, len: usize) -> Result<usize, Rejected> {
    let at = usize::try_from(index).ok().filter(|&at| at < len);
    at.ok_or_else(|| Rejected(format!("{what} {index} is not in the table of {len}")))
}

fn bytes(dictionary: &Dictionary, at: i32) -> Result<&[u8], Rejected> {
    // 0 is the empty string, also where a sender left the table out.
    if at == 0 {
        return Ok(b"");
    }
    let table = &dictionary.string_table;
    Ok(&table[index(at, "string", table.len())?])
}

fn text(dictionary: &Dictionary, at: i32) -> Result<String, Rejected> {
    bytes(dictionary, at).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// One profile under construction.
struct Conversion<'a> {
    dictionary: &'a Dictionary,
    limits: &'a Limits,
    out: ProfileBuilder,
    mappings: HashMap<i32, Option<MappingId>>,
    locations: HashMap<i32, LocationId>,
    stacks: HashMap<i32, StackId>,
    frames: u64,
}

/// Samples that carry a value, and why others do not.
#[derive(Default)]
struct Counts {
    kept: u64,
    valueless: u64,
}

impl<'a> Conversion<'a> {
    fn new(dictionary: &'a Dictionary, limits: &'a Limits) -> Self {
        Self {
            dictionary,
            limits,
            out: ProfileBuilder::new(),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            stacks: HashMap::new(),
            frames: 0,
        }
    }

    fn profile(mut self, profile: &proto::Profile) -> Result<Converted, Rejected> {
        let value_type = |of: Option<proto::ValueType>| -> Result<(String, String), Rejected> {
            let of = of.unwrap_or_default();
            Ok((
                text(self.dictionary, of.type_strindex)?,
                text(self.dictionary, of.unit_strindex)?,
            ))
        };
        let (kind, unit) = value_type(profile.sample_type)?;
        let (period_type, period_unit) = value_type(profile.period_type)?;
        if profile.samples.len() as u64 > self.limits.samples {
            let limit = self.limits.samples;
            return Err(Rejected(format!("more than {limit} samples")));
        }
        // A count of timer samples is CPU time as well, which is what people ask for.
        let timed = unit == "count" && period_unit == "nanoseconds" && profile.period > 0;
        self.out.sample_type(&kind, &unit);
        if timed {
            self.out.sample_type(&period_type, &period_unit);
        }
        self.out.period(&period_type, &period_unit, profile.period);
        let clamp = |value: u64| i64::try_from(value).unwrap_or(0);
        self.out
            .time(clamp(profile.time_unix_nano), clamp(profile.duration_nano));
        let mut counts = Counts::default();
        for sample in &profile.samples {
            self.sample(sample, timed.then_some(profile.period), &mut counts)?;
        }
        if counts.kept == 0 && counts.valueless > 0 {
            return Err(Rejected(format!(
                "{} samples without values or timestamps: the sender speaks opentelemetry-proto 1.9 \
                 or older, which has the values in another field; update it",
                counts.valueless
            )));
        }
        Ok(Converted {
            name: name(&kind, &period_type),
            labels: Vec::new(),
            id: profile.profile_id.clone(),
            profile: self.out.finish(),
            dropped: vec![("no_value", counts.valueless)],
        })
    }

    fn sample(
        &mut self,
        sample: &proto::Sample,
        period: Option<i64>,
        counts: &mut Counts,
    ) -> Result<(), Rejected> {
        // Only timestamps: each stands for one.
        let value = match &sample.values[..] {
            [] if sample.timestamps_unix_nano.is_empty() => {
                counts.valueless += 1;
                return Ok(());
            }
            [] => sample.timestamps_unix_nano.len() as i64,
            values => values
                .iter()
                .fold(0, |sum: i64, value| sum.saturating_add(*value)),
        };
        counts.kept += 1;
        let stack = self.stack(sample.stack_index)?;
        let labels = self.labels(sample)?;
        match period {
            Some(period) => {
                let time = value.saturating_mul(period);
                self.out.sample(stack, labels, &[value, time]);
            }
            None => self.out.sample(stack, labels, &[value]),
        }
        Ok(())
    }

    fn stack(&mut self, at: i32) -> Result<StackId, Rejected> {
        if let Some(&known) = self.stacks.get(&at) {
            return Ok(known);
        }
        let table = &self.dictionary.stack_table;
        let empty = proto::Stack::default();
        let stack = match at {
            0 if table.is_empty() => &empty,
            at => &table[index(at, "stack", table.len())?],
        };
        let depth = stack.location_indices.len() as u64;
        self.frames += depth;
        if depth > self.limits.stack_depth || self.frames > self.limits.stack_frames {
            return Err(Rejected("stacks have more frames than allowed".to_owned()));
        }
        let path = stack
            .location_indices
            .iter()
            .map(|&location| self.location(location))
            .collect::<Result<Vec<_>, _>>()?;
        let made = self.out.stack(&path);
        self.stacks.insert(at, made);
        Ok(made)
    }

    fn location(&mut self, at: i32) -> Result<LocationId, Rejected> {
        if let Some(&known) = self.locations.get(&at) {
            return Ok(known);
        }
        let dictionary = self.dictionary;
        let table = &dictionary.location_table;
        let location = &table[index(at, "location", table.len())?];
        let mapping = self.mapping(location.mapping_index)?;
        let mut lines = Vec::with_capacity(location.lines.len());
        for line in &location.lines {
            let functions = &dictionary.function_table;
            let function = functions[index(line.function_index, "function", functions.len())?];
            let mut string = |at| bytes(dictionary, at).map(|bytes| self.out.string(bytes));
            let name = string(function.name_strindex)?;
            let system_name = string(function.system_name_strindex)?;
            let file = string(function.filename_strindex)?;
            let function = self
                .out
                .function(name, system_name, file, function.start_line);
            lines.push((function, line.line));
        }
        let made = self.out.location(mapping, location.address, &lines);
        self.locations.insert(at, made);
        Ok(made)
    }

    fn mapping(&mut self, at: i32) -> Result<Option<MappingId>, Rejected> {
        if at == 0 {
            return Ok(None);
        }
        if let Some(&known) = self.mappings.get(&at) {
            return Ok(known);
        }
        let dictionary = self.dictionary;
        let table = &dictionary.mapping_table;
        let mapping = &table[index(at, "mapping", table.len())?];
        let build_id = build_id(mapping, dictionary)?;
        let made = Mapping {
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            offset: mapping.file_offset,
            file: self
                .out
                .string(bytes(dictionary, mapping.filename_strindex)?),
            build_id: self.out.string(build_id.as_bytes()),
            ..Mapping::default()
        };
        let made = Some(self.out.mapping(made));
        self.mappings.insert(at, made);
        Ok(made)
    }

    fn labels(&mut self, sample: &proto::Sample) -> Result<LabelSetId, Rejected> {
        let dictionary = self.dictionary;
        let mut labels = Vec::new();
        for &at in &sample.attribute_indices {
            if at == 0 {
                continue;
            }
            let table = &dictionary.attribute_table;
            let attribute = &table[index(at, "attribute", table.len())?];
            let Some(value) = attribute.value.as_ref().and_then(|of| of.value.as_ref()) else {
                continue;
            };
            let key = self.out.string(bytes(dictionary, attribute.key_strindex)?);
            let value = match value {
                Value::Int(number) => LabelValue::Num {
                    value: *number,
                    unit: self.out.string(bytes(dictionary, attribute.unit_strindex)?),
                },
                other => match shown(other, dictionary) {
                    Some(text) => LabelValue::Str(self.out.string(text.as_bytes())),
                    None => continue,
                },
            };
            labels.push(Label { key, value });
        }
        if sample.link_index != 0 {
            let table = &dictionary.link_table;
            let link = &table[index(sample.link_index, "link", table.len())?];
            for (key, id) in [("trace_id", &link.trace_id), ("span_id", &link.span_id)] {
                if id.iter().any(|&byte| byte != 0) {
                    let key = self.out.string(key.as_bytes());
                    let value = LabelValue::Str(self.out.string(hex(id).as_bytes()));
                    labels.push(Label { key, value });
                }
            }
        }
        Ok(self.out.label_set(&labels))
    }
}

/// The GNU build id if there is one, else another.
fn build_id(mapping: &proto::Mapping, dictionary: &Dictionary) -> Result<String, Rejected> {
    let mut found = String::new();
    for &at in &mapping.attribute_indices {
        let table = &dictionary.attribute_table;
        let attribute = &table[index(at, "attribute", table.len())?];
        let key = text(dictionary, attribute.key_strindex)?;
        let Some(kind) = key.strip_prefix("process.executable.build_id.") else {
            continue;
        };
        let value = attribute.value.as_ref().and_then(|of| of.value.as_ref());
        if let Some(value) = value.and_then(|value| shown(value, dictionary))
            && (found.is_empty() || kind == "gnu")
        {
            found = value;
        }
    }
    Ok(found)
}

/// Names that the rest of the world uses for these kinds.
fn name(kind: &str, period_type: &str) -> String {
    match (kind, period_type) {
        ("samples" | "cpu", "cpu") | ("cpu", _) => "process_cpu".to_owned(),
        ("inuse_space" | "inuse_objects" | "alloc_space" | "alloc_objects", _) => {
            "memory".to_owned()
        }
        ("", _) => "profile".to_owned(),
        (kind, _) => kind
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
