//! A page of another host that asks by gRPC-Web, as Parca's does: byte by byte.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::*;

const ORIGIN: &str = "Origin: https://page.example\r\n";
const TYPES: &str = "/api/parca.query.v1alpha1.QueryService/ProfileTypes";

/// The body of an answer whose length was not told.
fn whole(answer: &Response) -> Vec<u8> {
    if !answer
        .head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        return answer.body.clone();
    }
    let (mut rest, mut out) = (&answer.body[..], Vec::new());
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let len = std::str::from_utf8(&rest[..end]).unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        if len == 0 {
            return out;
        }
        out.extend_from_slice(&rest[end + 2..end + 2 + len]);
        rest = &rest[end + 2 + len + 2..];
    }
}

/// Frames of a body: kind and content.
fn frames(mut body: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut out = Vec::new();
    while let Some((head, rest)) = body.split_first_chunk::<5>() {
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        out.push((head[0], rest[..len].to_vec()));
        body = &rest[len..];
    }
    assert!(body.is_empty(), "{body:?}");
    out
}

fn header<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    let lines = answer.head.lines();
    let mut found = lines.filter_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    });
    found.next()
}

#[test]
fn a_page_that_is_named_in_the_configuration_asks_by_grpc_web() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.access.cors_origins = vec!["https://page.example".to_owned()];
    let server = Local::start(config);
    let at = server.address;
    let body = profile(T0, &[(&["main", "leaf"], 7)]);
    let pushed = common::push(at, "{service_name=\"s\"}", &body);
    assert_eq!(pushed.status, 200, "{}", pushed.text());

    let question = format!("{ORIGIN}Access-Control-Request-Method: POST\r\n");
    let may = try_request(at, "OPTIONS", TYPES, &question, b"").unwrap();
    assert_eq!(may.status, 204, "{}", may.head);
    let origin = "access-control-allow-origin";
    assert_eq!(header(&may, origin), Some("https://page.example"));
    let allowed = header(&may, "access-control-allow-headers").unwrap();
    assert!(allowed.contains("x-grpc-web") && allowed.contains("authorization"));
    assert_eq!(header(&may, "access-control-allow-credentials"), None);

    let empty = [0; 5];
    let binary = "application/grpc-web+proto";
    let text = "application/grpc-web-text";
    let question = |form: &str| format!("{ORIGIN}Content-Type: {form}\r\n");
    let plain = try_request(at, "POST", TYPES, &question(binary), &empty).unwrap();
    assert_eq!(plain.status, 200, "{}", plain.text());
    assert_eq!(header(&plain, "content-type"), Some(binary));
    assert_eq!(header(&plain, origin), Some("https://page.example"));
    let exposed = header(&plain, "access-control-expose-headers").unwrap();
    assert!(exposed.contains("grpc-status"), "{exposed}");
    let told = frames(&whole(&plain));
    let [(0, message), (0x80, trailers)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(
        message.windows(11).any(|word| word == b"process_cpu"),
        "{message:?}"
    );
    assert_eq!(String::from_utf8_lossy(trailers), "grpc-status:0\r\n");

    let encoded = BASE64_STANDARD.encode(empty);
    let answer = try_request(at, "POST", TYPES, &question(text), encoded.as_bytes()).unwrap();
    assert_eq!(
        header(&answer, "content-type"),
        Some("application/grpc-web-text+proto")
    );
    let body = whole(&answer);
    // Each piece is padded by itself.
    let pieces = body
        .chunks(4)
        .flat_map(|four| BASE64_STANDARD.decode(four).unwrap());
    assert_eq!(frames(&pieces.collect::<Vec<_>>()), told);

    // A question without options is one that cannot be read: INVALID_ARGUMENT.
    let query = TYPES.replace("ProfileTypes", "Query");
    let answer = try_request(at, "POST", &query, &question(binary), &empty).unwrap();
    assert_eq!(header(&answer, "grpc-status"), Some("3"), "{}", answer.head);
    assert_eq!(header(&answer, origin), Some("https://page.example"));
    let answer = try_request(at, "POST", TYPES, &question(text), b"no base64").unwrap();
    assert_eq!(header(&answer, "grpc-status"), Some("3"), "{}", answer.head);

    // Nobody else's page.
    for other in ["https://evil.example", "https://page.example.evil", "null"] {
        let headers = format!("Origin: {other}\r\nContent-Type: {binary}\r\n");
        let answer = try_request(at, "POST", TYPES, &headers, &empty).unwrap();
        assert_eq!(
            (answer.status, header(&answer, origin)),
            (403, None),
            "{other}"
        );
    }
    server.stop();
}
