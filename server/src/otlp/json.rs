//! The JSON form: protobuf's mapping, with trace and profile ids in hexadecimal.

use serde_json::{Map, Value};

use super::proto::Value as Any;
use super::proto::{
    AnyValue, Attribute, Dictionary, ExportRequest, Function, KeyValue, Line, Link, Location,
    Mapping, Profile, Resource, ResourceProfiles, Sample, Scope, ScopeProfiles, Stack, ValueType,
};

/// Reads an export.
///
/// # Errors
/// With the place and what was expected there.
pub fn from_json(body: &[u8]) -> Result<ExportRequest, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let top = Object::new(&value, "")?;
    Ok(ExportRequest {
        resource_profiles: top.list("resourceProfiles", resource_profiles)?,
        dictionary: top.optional("dictionary", dictionary)?,
    })
}

struct Object<'a> {
    map: &'a Map<String, Value>,
    at: String,
}

fn none(at: &str, wanted: &str) -> String {
    format!("{at}: {wanted} is expected")
}

impl<'a> Object<'a> {
    fn new(value: &'a Value, at: impl Into<String>) -> Result<Self, String> {
        let at = at.into();
        let map = value.as_object().ok_or_else(|| none(&at, "an object"))?;
        Ok(Self { map, at })
    }

    fn place(&self, key: &str) -> String {
        format!("{}.{key}", self.at)
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn list<T>(
        &self,
        key: &str,
        read: impl Fn(&Object<'a>) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let at = self.place(key);
        self.elements(key)?
            .iter()
            .enumerate()
            .map(|(index, value)| read(&Object::new(value, format!("{at}[{index}]"))?))
            .collect()
    }

    fn elements(&self, key: &str) -> Result<&'a [Value], String> {
        match self.value(key) {
            None => Ok(&[]),
            Some(value) => {
                let list = value
                    .as_array()
                    .ok_or_else(|| none(&self.place(key), "a list"))?;
                Ok(list)
            }
        }
    }

    fn optional<T>(
        &self,
        key: &str,
        read: impl Fn(&Object<'a>) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.value(key)
            .map(|value| read(&Object::new(value, self.place(key))?))
            .transpose()
    }

    fn text(&self, key: &str) -> Result<String, String> {
        match self.value(key) {
            None => Ok(String::new()),
            Some(value) => {
                let text = value
                    .as_str()
                    .ok_or_else(|| none(&self.place(key), "a text"))?;
                Ok(text.to_owned())
            }
        }
    }

    /// 64-bit numbers come as texts.
    fn number<T: TryFrom<i128> + Default>(&self, key: &str) -> Result<T, String> {
        self.value(key)
            .map_or(Ok(T::default()), |value| number(value, &self.place(key)))
    }

    fn numbers<T: TryFrom<i128> + Default>(&self, key: &str) -> Result<Vec<T>, String> {
        let at = self.place(key);
        self.elements(key)?
            .iter()
            .map(|value| number(value, &at))
            .collect()
    }

    fn hex(&self, key: &str) -> Result<Vec<u8>, String> {
        let text = self.text(key)?;
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0);
        let digits = digits.ok_or_else(|| none(&self.place(key), "hexadecimal"))?;
        Ok(digits
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect())
    }
}

fn number<T: TryFrom<i128>>(value: &Value, at: &str) -> Result<T, String> {
    let number = match value {
        Value::Number(number) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| none(at, "a whole number"))
}

fn resource_profiles(of: &Object) -> Result<ResourceProfiles, String> {
    Ok(ResourceProfiles {
        resource: of.optional("resource", |of| {
            Ok(Resource {
                attributes: of.list("attributes", key_value)?,
            })
        })?,
        scope_profiles: of.list("scopeProfiles", |of| {
            Ok(ScopeProfiles {
                scope: of.optional("scope", |of| {
                    Ok(Scope {
                        name: of.text("name")?,
                        version: of.text("version")?,
                    })
                })?,
                profiles: of.list("profiles", profile)?,
            })
        })?,
    })
}

fn key_value(of: &Object) -> Result<KeyValue, String> {
    Ok(KeyValue {
        key: of.text("key")?,
        value: of.optional("value", any)?,
        key_strindex: of.number("keyStrindex")?,
    })
}

fn any(of: &Object) -> Result<AnyValue, String> {
    let truth = of.value("boolValue").and_then(Value::as_bool);
    let float = of.value("doubleValue").and_then(Value::as_f64);
    let value = if of.value("stringValue").is_some() {
        Some(Any::String(of.text("stringValue")?))
    } else if of.value("intValue").is_some() {
        Some(Any::Int(of.number("intValue")?))
    } else if of.value("stringValueStrindex").is_some() {
        Some(Any::StringIndex(of.number("stringValueStrindex")?))
    } else {
        truth.map(Any::Bool).or(float.map(Any::Double))
    };
    Ok(AnyValue { value })
}

fn value_type(of: &Object) -> Result<ValueType, String> {
    Ok(ValueType {
        type_strindex: of.number("typeStrindex")?,
        unit_strindex: of.number("unitStrindex")?,
    })
}

fn profile(of: &Object) -> Result<Profile, String> {
    Ok(Profile {
        sample_type: of.optional("sampleType", value_type)?,
        samples: of.list("samples", |of| {
            Ok(Sample {
                stack_index: of.number("stackIndex")?,
                attribute_indices: of.numbers("attributeIndices")?,
                link_index: of.number("linkIndex")?,
                values: of.numbers("values")?,
                timestamps_unix_nano: of.numbers("timestampsUnixNano")?,
            })
        })?,
        time_unix_nano: of.number("timeUnixNano")?,
        duration_nano: of.number("durationNano")?,
        period_type: of.optional("periodType", value_type)?,
        period: of.number("period")?,
        profile_id: of.hex("profileId")?,
        attribute_indices: of.numbers("attributeIndices")?,
    })
}

fn dictionary(of: &Object) -> Result<Dictionary, String> {
    let texts = of.elements("stringTable")?.iter().map(|value| {
        let text = value
            .as_str()
            .ok_or_else(|| none("dictionary.stringTable", "texts"))?;
        Ok(text.as_bytes().to_vec())
    });
    Ok(Dictionary {
        mapping_table: of.list("mappingTable", |of| {
            Ok(Mapping {
                memory_start: of.number("memoryStart")?,
                memory_limit: of.number("memoryLimit")?,
                file_offset: of.number("fileOffset")?,
                filename_strindex: of.number("filenameStrindex")?,
                attribute_indices: of.numbers("attributeIndices")?,
            })
        })?,
        location_table: of.list("locationTable", |of| {
            Ok(Location {
                mapping_index: of.number("mappingIndex")?,
                address: of.number("address")?,
                lines: of.list("lines", |of| {
                    Ok(Line {
                        function_index: of.number("functionIndex")?,
                        line: of.number("line")?,
                        column: of.number("column")?,
                    })
                })?,
            })
        })?,
        function_table: of.list("functionTable", |of| {
            Ok(Function {
                name_strindex: of.number("nameStrindex")?,
                system_name_strindex: of.number("systemNameStrindex")?,
                filename_strindex: of.number("filenameStrindex")?,
                start_line: of.number("startLine")?,
            })
        })?,
        link_table: of.list("linkTable", |of| {
            Ok(Link {
                trace_id: of.hex("traceId")?,
                span_id: of.hex("spanId")?,
            })
        })?,
        string_table: texts.collect::<Result<_, String>>()?,
        attribute_table: of.list("attributeTable", |of| {
            Ok(Attribute {
                key_strindex: of.number("keyStrindex")?,
                value: of.optional("value", any)?,
                unit_strindex: of.number("unitStrindex")?,
            })
        })?,
        stack_table: of.list("stackTable", |of| {
            Ok(Stack {
                location_indices: of.numbers("locationIndices")?,
            })
        })?,
    })
}
