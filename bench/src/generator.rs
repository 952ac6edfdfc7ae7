//! Deterministic profiles of invented services, made through prost, so that no decoder or encoder
//! of ours shapes the input it is measured on.

use std::collections::HashSet;

use pilotlight_bench_kit::Rng;
use prost::Message;

use crate::profile::prost_peer::{
    Function, Label, Line, Location, Mapping, Profile, Sample, ValueType,
};

const PACKAGES: [&str; 8] = [
    "net/http",
    "runtime",
    "encoding/json",
    "crypto/tls",
    "database/sql",
    "compress/flate",
    "example.com/shop/internal/store",
    "example.com/shop/pkg/query",
];
const VERBS: [&str; 10] = [
    "Serve", "Read", "Write", "Decode", "Lookup", "Merge", "Scan", "Flush", "Hash", "Apply",
];
const NOUNS: [&str; 10] = [
    "Request", "Batch", "Index", "Buffer", "Session", "Order", "Span", "Cache", "Node", "Page",
];

/// The strings that every profile starts with.
const FIRST: [&str; 10] = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "endpoint",
    "/cart",
    "/checkout",
    "/usr/bin/shop",
    "5f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6",
];

/// One service: its symbols and the stacks that its profiles draw from.
pub struct Service {
    symbols: Profile,
    stacks: Vec<Vec<u64>>,
    rng: Rng,
}

impl Service {
    /// A service with `functions` functions and `stacks` distinct stacks, all following from `seed`.
    pub fn new(seed: u64, functions: usize, stacks: usize) -> Self {
        let mut rng = Rng::new(seed);
        let symbols = symbols(&mut rng, functions);
        let stacks = stack_set(&mut rng, symbols.location.len(), stacks);
        Service {
            symbols,
            stacks,
            rng,
        }
    }

    /// The same service with other draws.
    pub fn reseeded(self, seed: u64) -> Self {
        Service {
            rng: Rng::new(seed),
            ..self
        }
    }

    /// The next profile: `samples` draws, the low stacks far more often than the high ones.
    pub fn profile(&mut self, samples: usize, start_ns: i64, duration_ns: i64) -> Vec<u8> {
        let mut counts = vec![0i64; self.stacks.len()];
        for _ in 0..samples {
            let (a, b) = (self.rng.below(counts.len()), self.rng.below(counts.len()));
            let drawn = a * b / self.stacks.len();
            counts[drawn] += 1;
        }
        let mut profile = self.symbols.clone();
        profile.time_nanos = start_ns;
        profile.duration_nanos = duration_ns;
        let rows = self
            .stacks
            .iter()
            .zip(counts)
            .filter(|(_, count)| *count > 0);
        profile.sample = rows
            .map(|(stack, count)| sample(&mut self.rng, stack, count))
            .collect();
        prune(&mut profile);
        profile.encode_to_vec()
    }
}

/// Keeps only the locations, functions and names in use, as profilers send them.
fn prune(profile: &mut Profile) {
    let used: HashSet<u64> = profile
        .sample
        .iter()
        .flat_map(|sample| &sample.location_id)
        .copied()
        .collect();
    profile
        .location
        .retain(|location| used.contains(&location.id));
    let used: HashSet<u64> = profile
        .location
        .iter()
        .flat_map(|l| &l.line)
        .map(|line| line.function_id)
        .collect();
    profile
        .function
        .retain(|function| used.contains(&function.id));
    let names: Vec<String> = profile.string_table.drain(FIRST.len()..).collect();
    for function in &mut profile.function {
        let old = function.name as usize - FIRST.len();
        function.name = profile.string_table.len() as i64;
        function.system_name = function.name;
        function.filename = function.name + 1;
        profile.string_table.extend_from_slice(&names[old..old + 2]);
    }
}

fn sample(rng: &mut Rng, stack: &[u64], count: i64) -> Sample {
    let label = |key, str| Label {
        key,
        str,
        ..Label::default()
    };
    // A fifth of the samples carry an endpoint label, as instrumented services have it.
    let labelled = rng.below(5) == 0;
    Sample {
        location_id: stack.to_vec(),
        value: vec![count, count * 10_000_000],
        label: if labelled {
            vec![label(5, 6 + rng.below(2) as i64)]
        } else {
            Vec::new()
        },
    }
}

fn symbols(rng: &mut Rng, functions: usize) -> Profile {
    let mut strings: Vec<String> = FIRST.map(str::to_owned).to_vec();
    let mut table = Vec::with_capacity(functions);
    for id in 1..=functions as u64 {
        let pick = |rng: &mut Rng, words: &[&'static str]| words[rng.below(words.len())];
        let (package, noun, verb) = (pick(rng, &PACKAGES), pick(rng, &NOUNS), pick(rng, &VERBS));
        let name = strings.len() as i64;
        strings.push(format!(
            "{package}.(*{noun}).{verb}{}.func{id}",
            pick(rng, &NOUNS)
        ));
        strings.push(format!("/src/{package}/{noun}_{}.go", id % 17));
        let start_line = 1 + rng.below(900) as i64;
        table.push(Function {
            id,
            name,
            system_name: name,
            filename: name + 1,
            start_line,
        });
    }
    Profile {
        sample_type: vec![
            ValueType { r#type: 1, unit: 2 },
            ValueType { r#type: 3, unit: 4 },
        ],
        period_type: Some(ValueType { r#type: 3, unit: 4 }),
        period: 10_000_000,
        mapping: vec![mapping()],
        location: locations(rng, &table),
        function: table,
        string_table: strings,
        ..Profile::default()
    }
}

fn mapping() -> Mapping {
    Mapping {
        id: 1,
        memory_start: 0x40_0000,
        memory_limit: 0x240_0000,
        filename: 8,
        build_id: 9,
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
        ..Mapping::default()
    }
}

/// Two locations a function; every fourth location holds an inlined callee.
fn locations(rng: &mut Rng, functions: &[Function]) -> Vec<Location> {
    let line = |rng: &mut Rng, function: &Function| Line {
        function_id: function.id,
        line: function.start_line + rng.below(60) as i64,
        column: 0,
    };
    let mut locations = Vec::with_capacity(functions.len() * 2);
    for id in 1..=functions.len() as u64 * 2 {
        let own = line(rng, &functions[(id as usize - 1) / 2]);
        let mut lines = vec![own];
        if rng.below(4) == 0 {
            let inlined = rng.below(functions.len());
            lines.insert(0, line(rng, &functions[inlined]));
        }
        let address = 0x40_1000 + id * 88 + rng.below(64) as u64;
        locations.push(Location {
            id,
            mapping_id: 1,
            address,
            line: lines,
            is_folded: false,
        });
    }
    locations
}

/// Leaf-first stacks that share prefixes: each starts as a part of an earlier one.
fn stack_set(rng: &mut Rng, locations: usize, count: usize) -> Vec<Vec<u64>> {
    let mut stacks: Vec<Vec<u64>> = Vec::with_capacity(count);
    for _ in 0..count {
        let mut root_first: Vec<u64> = match stacks.len() {
            0 => vec![1, 2],
            made => {
                let model = &stacks[rng.below(made)];
                let kept = model.len() - rng.below(model.len() * 3 / 4);
                model.iter().rev().take(kept).copied().collect()
            }
        };
        let depth = 8 + rng.below(45);
        while root_first.len() < depth {
            root_first.push(1 + rng.below(locations) as u64);
        }
        root_first.reverse();
        stacks.push(root_first);
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_bytes_and_every_sample_resolves() {
        let bytes = Service::new(7, 300, 200).profile(900, 1, 2);
        assert_eq!(bytes, Service::new(7, 300, 200).profile(900, 1, 2));
        let profile = Profile::decode(bytes.as_slice()).unwrap();
        assert_eq!(profile.sample.iter().map(|s| s.value[0]).sum::<i64>(), 900);
        let locations: HashSet<u64> = profile.location.iter().map(|l| l.id).collect();
        assert!(
            profile
                .sample
                .iter()
                .flat_map(|s| &s.location_id)
                .all(|id| locations.contains(id))
        );
        let functions: HashSet<u64> = profile.function.iter().map(|f| f.id).collect();
        let lines = profile.location.iter().flat_map(|l| &l.line);
        assert!(
            lines
                .into_iter()
                .all(|line| functions.contains(&line.function_id))
        );
        assert!(profile.function.iter().all(|f| {
            let name = &profile.string_table[f.name as usize];
            name.ends_with(&format!(".func{}", f.id))
        }));
    }
}
