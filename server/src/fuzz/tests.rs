//! The same promises over damaged bodies, without a fuzzer: from fixed seeds, so that a fault comes
//! back. `PILOTLIGHT_MUTATIONS=100000` looks longer.

use super::*;

/// xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// Bytes changed, cut out, doubled, and numbers that are as large as can be.
fn damaged(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => {
                let piece = bytes[at..].iter().take(1 + random.below(24));
                let piece: Vec<u8> = piece.copied().collect();
                bytes.splice(at..at, piece);
            }
            2 => {
                let end = (at + 1 + random.below(8)).min(bytes.len());
                bytes.splice(at..end, [0xff, 0xff, 0xff, 0xff, 0x0f]);
            }
            _ => {
                let changed = random.below(256) as u8;
                bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|of| *of = changed);
            }
        }
    }
    bytes
}

fn all(seeds: &[Vec<u8>], check: fn(&[u8])) {
    let asked = std::env::var("PILOTLIGHT_MUTATIONS").ok();
    let count = asked.and_then(|n| n.parse().ok()).unwrap_or(1500);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        check(seed);
        for _ in 0..count {
            check(&damaged(seed, &mut random));
        }
    }
}

#[test]
fn damaged_bodies_of_the_older_push_break_no_promise() {
    let recording = std::fs::read("tests/fixtures/jfr/hot.jfr.gz").unwrap();
    let recording = pilotlight_profile::inflate(&recording, &Limits::default()).unwrap();
    let speedscope = r#"{"shared":{"frames":[{"name":"main"},{"name":"leaf","file":"l","line":7}]},
        "profiles":[{"type":"evented","name":"x","unit":"milliseconds","startValue":0,"endValue":50,
        "events":[{"type":"O","frame":0,"at":0},{"type":"O","frame":1,"at":10},
        {"type":"C","frame":1,"at":40},{"type":"C","frame":0,"at":50}]},{"type":"sampled",
        "unit":"bytes","samples":[[0],[0,1]],"weights":[20,30]}]}"#;
    let form = b"--b\r\nContent-Disposition: form-data; name=\"jfr\"\r\n\r\nFLR\0\0\x02\r\n--b\r\n\
        Content-Disposition: form-data; name=\"labels\"\r\n\r\n\x0a\x00\r\n--b--\r\n";
    let tree = b"\x00\x00\x01\x04main\x02\x02\x01b\x03\x00\x01c\x01\x00";
    let bodies: [&[u8]; 7] = [
        tree,
        tree,
        b"main\nmain;leaf\n",
        b"main 2\nmain;leaf 3\n",
        speedscope.as_bytes(),
        &recording,
        form,
    ];
    assert_eq!(bodies.len(), usize::from(ingest_any::FORMATS));
    let seed = |(format, body): (usize, &&[u8])| [&[format as u8][..], body].concat();
    let seeds: Vec<_> = bodies.iter().enumerate().map(seed).collect();
    all(&seeds, ingest);
}

#[test]
fn damaged_messages_and_selectors_break_no_promise() {
    let json = br#"{"series":[{"labels":{"labels":[{"name":"a","value":"b"}]},"samples":[]}],
        "buildId":"ab12","size":"7","hash":"x","normalized":true}"#;
    let record = br#"{"version":1,"gnu":"ab","go":null,"htlhash":"0","quality":"split","has_code":true,
        "size_bytes":1,"sha256":"00","name":"a","source":"upload","stored_ns":1,"segments":[[0,1,2,3,true]],
        "failed":null,"shared":{"build_id":"cd","path":"x"}}"#;
    let proto = b"\x12\x10\x0a\x08\x0a\x06\x0a\x01a\x12\x01b\x12\x04\x0a\x02xy\x18\x01";
    assert!(Record::decode(record).is_some());
    all(&[json.to_vec(), record.to_vec(), proto.to_vec()], messages);
    let text = |body: &[u8]| selector(&String::from_utf8_lossy(body));
    let selectors: [&[u8]; 2] = [
        br#"{service_name="a",pod=~"x.*|y",zone!="",n!~"[a-z]{2,3}"}"#,
        br#"{a="\\\"\n"}"#,
    ];
    all(&selectors.map(<[u8]>::to_vec), text);
}
