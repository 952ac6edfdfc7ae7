//! The payload of the process context: `opentelemetry.proto.processcontext.v1development`'s
//! `ProcessContext`, written by hand since it is two lists of texts.

/// Attributes taken from `OTEL_RESOURCE_ATTRIBUTES` at most.
const MAX_ATTRIBUTES: usize = 64;

/// The service and what the environment says about it.
pub(super) fn process_context(service: &str, version: Option<&str>) -> Vec<u8> {
    encode(service, version, &environment())
}

fn encode(service: &str, version: Option<&str>, environment: &str) -> Vec<u8> {
    let mut resource = Vec::new();
    let mut own = vec![
        ("service.name", service),
        ("telemetry.sdk.name", "pilotlight"),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    own.extend(version.map(|version| ("service.version", version)));
    let mut keys: Vec<String> = own.iter().map(|(key, _)| key.to_string()).collect();
    for (key, value) in own {
        field(&mut resource, 1, &attribute(key, &text(value)));
    }
    for (key, value) in attributes(environment).take(MAX_ATTRIBUTES) {
        // Keys are unique; what the program says itself comes first.
        if !keys.contains(&key) {
            field(&mut resource, 1, &attribute(&key, &text(&value)));
            keys.push(key);
        }
    }
    let mut context = Vec::new();
    field(&mut context, 1, &resource);
    // Samples of this process are taken inside of it: an agent on the host need not take them again.
    let extra = [
        ("threadlocal.schema_version", text("tlsdesc_v1_dev")),
        ("threadlocal.attribute_key_map", list(&[])),
        ("pilotlight.sdk.version", text(env!("CARGO_PKG_VERSION"))),
    ];
    for (key, value) in extra {
        field(&mut context, 2, &attribute(key, &value));
    }
    context
}

fn environment() -> String {
    std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()
}

/// The service's version, where the environment says it.
pub(super) fn service_version() -> Option<String> {
    version_in(&environment())
}

fn version_in(environment: &str) -> Option<String> {
    attributes(environment).find_map(|(key, value)| (key == "service.version").then_some(value))
}

/// `key=value,key=value`, values percent-encoded; what is malformed is left out.
fn attributes(text: &str) -> impl Iterator<Item = (String, String)> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let value = percent_decoded(value.trim())?;
        let key = key.trim();
        (!key.is_empty()).then(|| (key.to_string(), value))
    };
    text.split(',').filter_map(pair)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// `KeyValue`.
fn attribute(key: &str, value: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    field(&mut message, 1, key.as_bytes());
    field(&mut message, 2, value);
    message
}

/// `AnyValue` of a text.
fn text(value: &str) -> Vec<u8> {
    let mut message = Vec::new();
    field(&mut message, 1, value.as_bytes());
    message
}

/// `AnyValue` of a list of texts.
fn list(values: &[&str]) -> Vec<u8> {
    let mut array = Vec::new();
    for value in values {
        field(&mut array, 1, &text(value));
    }
    let mut message = Vec::new();
    field(&mut message, 5, &array);
    message
}

/// A length-delimited field.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    let mut length = bytes.len();
    while length > 0x7f {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_adds_and_does_not_replace() {
        let said = "service.name=other, service.version = 1.2%2C3,broken,=x,bad=%zz,a=b";
        let pairs: Vec<_> = attributes(said).collect();
        let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
        let expected = [
            pair("service.name", "other"),
            pair("service.version", "1.2,3"),
            pair("a", "b"),
        ];
        assert_eq!(pairs, expected);
        assert_eq!(version_in(said).as_deref(), Some("1.2,3"));
        let bytes = encode("shop", None, said);
        let count = |text: &str| {
            bytes
                .windows(text.len())
                .filter(|w| *w == text.as_bytes())
                .count()
        };
        assert_eq!((count("shop"), count("other"), count("1.2,3")), (1, 0, 1));
        let bytes = encode("shop", Some("4.5"), said);
        let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
        assert_eq!((has("4.5"), has("1.2,3")), (true, false));
    }

    #[test]
    fn lengths_above_127_take_two_bytes() {
        let mut message = Vec::new();
        field(&mut message, 1, &[7; 300]);
        assert_eq!(message[..3], [0x0a, 0xac, 0x02]);
        assert_eq!(message.len(), 303);
    }
}
