//! Laws that hold for every profile, tried on generated ones.

#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

mod common;

use common::generate::{Rng, canonical, odd_wire, profile as random_profile};
use pilotlight_profile::{
    Limits, Mode, NO_MAPPING, Profile, ProfileBuilder, Tree, TreeBuilder, decode, merge,
    to_collapsed, top,
};

const ROUNDS: u64 = 200;

fn strict(bytes: &[u8]) -> Profile {
    let decoded = decode(bytes, Mode::Strict, &Limits::default());
    decoded.map(|d| d.profile).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn decoding_what_was_encoded_gives_the_same_profile() {
    let mut rng = Rng::new(1);
    for _ in 0..ROUNDS {
        let built = random_profile(&mut rng, 3);
        let decoded = strict(&built.to_pprof());
        assert_eq!(canonical(&built), canonical(&decoded));
        let again = strict(&decoded.to_pprof_gz());
        assert_eq!(decoded, again);
        assert_eq!(built.strings, again.strings);
        assert_eq!(built.locations, again.locations);
        assert_eq!(built.functions, again.functions);
        assert_eq!(built.mappings, again.mappings);
    }
}

#[test]
fn files_in_odd_forms_survive_encoding_with_their_ids() {
    let mut rng = Rng::new(2);
    for _ in 0..ROUNDS {
        let decoded = strict(&odd_wire(&mut rng));
        assert_eq!(decoded, strict(&decoded.to_pprof()));
    }
}

#[test]
fn tolerant_decoding_of_valid_files_changes_nothing() {
    let mut rng = Rng::new(3);
    for _ in 0..ROUNDS {
        let bytes = odd_wire(&mut rng);
        let tolerant = decode(&bytes, Mode::Tolerant, &Limits::default()).unwrap();
        assert_eq!(tolerant.profile, strict(&bytes));
        assert_eq!(tolerant.report.repaired().count(), 0);
    }
}

#[test]
fn merge_is_commutative_and_associative_up_to_order() {
    let mut rng = Rng::new(4);
    for _ in 0..ROUNDS {
        let [a, b, c] = [(); 3].map(|()| random_profile(&mut rng, 2));
        // The period's type must agree, the rest may differ.
        let both = |x: &Profile, y: &Profile| merge(&[x, y]).unwrap();
        assert_eq!(canonical(&both(&a, &b)), canonical(&both(&b, &a)));
        let left = both(&both(&a, &b), &c);
        let right = both(&a, &both(&b, &c));
        assert_eq!(canonical(&left), canonical(&right));
        let at_once = merge(&[&a, &b, &c]).unwrap();
        assert_eq!(canonical(&left), canonical(&at_once));
        assert_eq!(at_once.duration_ns, left.duration_ns);
        assert_eq!(at_once.period, right.period);
    }
}

#[test]
fn merging_a_profile_with_itself_doubles_it() {
    let mut rng = Rng::new(5);
    for _ in 0..ROUNDS {
        let p = strict(&odd_wire(&mut rng));
        let doubled = merge(&[&p, &p]).unwrap();
        assert_eq!(doubled.total(0), p.total(0).wrapping_mul(2));
        assert!(doubled.samples.len() <= p.samples.len());
    }
}

#[test]
fn merging_leaves_no_zero_samples_and_nothing_unused() {
    let mut rng = Rng::new(6);
    for _ in 0..ROUNDS {
        let merged = merge(&[&random_profile(&mut rng, 2)]).unwrap();
        let zero = merged
            .iter_samples()
            .any(|s| s.values.iter().all(|&v| v == 0));
        assert!(!zero);
        let mut used = vec![false; merged.locations.len()];
        let frames = merged.iter_samples().flat_map(|s| s.stack);
        frames.for_each(|&l| used[l as usize] = true);
        assert!(used.iter().all(|&used| used));
    }
}

#[test]
fn tree_top_and_collapsed_have_the_totals_of_the_profile() {
    let mut rng = Rng::new(7);
    for _ in 0..ROUNDS {
        let p = random_profile(&mut rng, 2);
        for column in 0..2 {
            let total = p.total(column);
            let tree = Tree::from_profile(&p, column);
            assert_eq!(tree.total(), total);
            assert_eq!(tree.totals()[0], total);
            let rows: i64 = top(&p, column).iter().map(|row| row.self_value).sum();
            assert_eq!(rows + tree.nodes.self_value[0], total);
            let mut text = Vec::new();
            to_collapsed(&p, column, &mut text).unwrap();
            let text = String::from_utf8_lossy(&text);
            let values = text
                .lines()
                .map(|l| l.rsplit(' ').next().unwrap().parse::<i64>());
            assert_eq!(values.map(Result::unwrap).sum::<i64>(), total);
        }
    }
}

#[test]
fn tree_of_a_merge_is_the_merge_of_trees() {
    let mut rng = Rng::new(8);
    for _ in 0..ROUNDS {
        // Merging two mappings into one renames the bare addresses in one of them.
        let [a, b] = [(); 2].map(|()| {
            let mut p = random_profile(&mut rng, 2);
            p.locations.mapping.fill(NO_MAPPING);
            p
        });
        let mut tree = Tree::from_profile(&a, 1);
        tree.merge(&Tree::from_profile(&b, 1));
        let of_merge = Tree::from_profile(&merge(&[&a, &b]).unwrap(), 1);
        assert!(paths(&tree) == paths(&of_merge));
    }
}

/// Nonzero own values by path; nodes that only zeros lead to may or may not be there.
fn paths(tree: &Tree) -> Vec<(Vec<Vec<u8>>, i64)> {
    let mut path: Vec<Vec<u8>> = Vec::new();
    let mut all = Vec::new();
    for node in 0..tree.len() {
        path.truncate(tree.nodes.depth[node] as usize);
        path.push(tree.name(node).to_vec());
        if tree.nodes.self_value[node] != 0 {
            all.push((path.clone(), tree.nodes.self_value[node]));
        }
    }
    all
}

#[test]
fn tree_builder_gives_the_same_tree_whatever_the_order_of_stacks() {
    let mut rng = Rng::new(9);
    for _ in 0..ROUNDS {
        let mut stacks: Vec<(Vec<u64>, i64)> = (0..rng.below(50))
            .map(|_| {
                let depth = rng.below(6);
                let frames = (0..depth).map(|_| rng.below(4)).collect();
                (frames, rng.below(100) as i64)
            })
            .collect();
        let build = |stacks: &[(Vec<u64>, i64)]| {
            let mut b = TreeBuilder::new();
            // All names first, so that their ids do not depend on the order of stacks.
            let names = [0, 1, 2, 3].map(|n: u64| b.name(format!("f{n}").as_bytes()));
            for (frames, value) in stacks {
                let path: Vec<_> = frames.iter().map(|&f| names[f as usize]).collect();
                b.add(&path, *value);
            }
            b.finish()
        };
        let as_given = build(&stacks);
        stacks.sort();
        assert_eq!(as_given, build(&stacks));
        let depth = &as_given.nodes.depth;
        assert!(depth.windows(2).all(|pair| pair[1] <= pair[0] + 1));
    }
}

#[test]
fn bytes_that_are_not_utf8_survive_everywhere() {
    let mut b = ProfileBuilder::new();
    b.sample_type("cpu", "nanoseconds");
    let name = b.string(b"caf\xe9\x80");
    let function = b.function(name, name, name, 0);
    let location = b.location(None, 1, &[(function, 1)]);
    let stack = b.stack(&[location]);
    b.sample(stack, Default::default(), &[1]);
    let built = b.finish();
    let decoded = decode(&built.to_pprof_gz(), Mode::Tolerant, &Limits::default()).unwrap();
    let merged = merge(&[&decoded.profile, &built]).unwrap();
    let name = |p: &Profile| p.strings.get(p.functions[0].name).to_vec();
    assert_eq!(name(&decoded.profile), b"caf\xe9\x80");
    assert_eq!(name(&merged), b"caf\xe9\x80");
    assert_eq!(Tree::from_profile(&merged, 0).name(1), b"caf\xe9\x80");
    assert_eq!(top(&merged, 0)[0].name, "caf\u{fffd}");
    let mut text = Vec::new();
    to_collapsed(&merged, 0, &mut text).unwrap();
    assert_eq!(text, b"caf\xe9\x80 2\n");
}

#[test]
fn builder_adds_up_equal_samples_and_keeps_different_ones_apart() {
    let mut b = ProfileBuilder::new();
    b.sample_type("samples", "count");
    b.sample_type("cpu", "nanoseconds");
    let (a, c) = (b.location(None, 1, &[]), b.location(None, 2, &[]));
    assert_eq!(b.location(None, 1, &[]), a);
    let (ac, ca) = (b.stack(&[a, c]), b.stack(&[c, a]));
    assert_ne!(ac, ca);
    assert_eq!(b.stack(&[a, c]), ac);
    let key = b.string(b"thread");
    let value = pilotlight_profile::LabelValue::Str(b.string(b"main"));
    let labels = b.label_set(&[pilotlight_profile::Label { key, value }]);
    b.sample(ac, Default::default(), &[1, 10]);
    b.sample(ca, Default::default(), &[1, 20]);
    b.sample(ac, labels, &[1, 40]);
    b.sample(ac, Default::default(), &[1, 80]);
    let p = b.finish();
    let values: Vec<_> = p.iter_samples().map(|s| s.values.to_vec()).collect();
    assert_eq!(values, [[2, 90], [1, 20], [1, 40]]);
    assert_eq!(p.sample(0).stack, [0, 1]);
    assert_eq!((p.total(0), p.total(1)), (4, 150));
}
