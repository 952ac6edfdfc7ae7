use super::*;

const SECOND: i64 = 1_000_000_000;
const T: i64 = 1_767_225_600 * SECOND;

fn policy(rules: IngestRules) -> Policy {
    Policy::new(rules, Some(Duration::from_secs(86_400)))
}

fn labels(of: &str) -> Labels {
    vec![("service_name".to_owned(), of.to_owned())]
}

/// A sequence of numbers with good bits in all places.
fn random(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn rule(selector: &str, keep: Keep) -> Policy {
    policy(IngestRules {
        sampling: vec![Rule::new(selector, keep).unwrap()],
        ..IngestRules::default()
    })
}

#[test]
fn a_rate_lets_through_what_it_says_and_says_when_to_return() {
    let policy = policy(IngestRules {
        bytes_per_second: 1000,
        ..IngestRules::default()
    });
    assert_eq!(policy.admit(1500, T), Ok(()));
    let refused = Refusal::Rate {
        what: "bytes",
        per_second: 1000,
        retry_s: 2,
    };
    assert_eq!(policy.admit(2000, T), Err(refused));
    assert_eq!(policy.admit(2000, T + 3 * SECOND / 2), Ok(()), "full again");
    // Over ten minutes at ten times the rate: the rate, and the burst at the start.
    let mut bytes = 0;
    for step in 0..60_000 {
        if policy
            .admit(100, T + 10 * SECOND + step * SECOND / 100)
            .is_ok()
        {
            bytes += 100;
        }
    }
    assert!((600_000..=602_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_push_larger_than_the_burst_passes_when_the_bucket_is_full() {
    let policy = policy(IngestRules {
        bytes_per_second: 10,
        ..IngestRules::default()
    });
    assert_eq!(policy.admit(1000, T), Ok(()));
    assert!(
        policy.admit(1, T + SECOND).is_err(),
        "it has to be paid back"
    );
    assert_eq!(policy.admit(1, T + 100 * SECOND), Ok(()));
}

#[test]
fn the_refused_take_no_tokens() {
    let policy = policy(IngestRules {
        bytes_per_second: 1000,
        profiles_per_second: 1,
        ..IngestRules::default()
    });
    assert!(policy.admit(10, T).is_ok() && policy.admit(10, T).is_ok());
    for _ in 0..1000 {
        assert!(matches!(
            policy.admit(10, T),
            Err(Refusal::Rate {
                what: "profiles",
                retry_s: 1,
                ..
            })
        ));
    }
    assert!(
        policy.admit(1900, T + SECOND).is_ok(),
        "bytes were not taken"
    );
}

#[test]
fn a_clock_that_jumps_back_neither_opens_nor_shuts_a_rate() {
    let policy = policy(IngestRules {
        profiles_per_second: 1,
        ..IngestRules::default()
    });
    assert!(policy.admit(1, T).is_ok() && policy.admit(1, T).is_ok());
    assert!(policy.admit(1, T - 3600 * SECOND).is_err());
    assert!(policy.admit(1, T - 3598 * SECOND).is_ok());
}

#[test]
fn known_series_go_on_when_new_ones_are_too_many() {
    let policy = policy(IngestRules {
        series: 2,
        ..IngestRules::default()
    });
    assert_eq!(policy.series(1, T), Ok(()));
    assert_eq!(policy.series(2, T), Ok(()));
    assert_eq!(policy.series(3, T), Err(Refusal::Series { limit: 2 }));
    assert_eq!(policy.series(1, T + 3000 * SECOND), Ok(()));
    assert_eq!(policy.series(3, T + 3601 * SECOND), Ok(()), "2 is gone");
    assert_eq!(policy.active_series(), 2);
}

#[test]
fn times_ahead_are_mended_and_times_too_old_refused() {
    let policy = policy(IngestRules::default());
    assert_eq!(
        policy.time(T + 600 * SECOND, T),
        Ok((T + 600 * SECOND, false))
    );
    assert_eq!(policy.time(T + 601 * SECOND, T), Ok((T, true)));
    assert_eq!(policy.time(i64::MAX, T), Ok((T, true)));
    assert_eq!(
        policy.time(T - 86_400 * SECOND, T),
        Ok((T - 86_400 * SECOND, false))
    );
    let old = Refusal::TooOld {
        age_s: 86_401,
        limit_s: 86_400,
    };
    assert_eq!(policy.time(T - 86_401 * SECOND, T), Err(old));
}

#[test]
fn the_first_matching_rule_decides() {
    let policy = policy(IngestRules {
        sampling: vec![
            Rule::new(r#"{service_name="a"}"#, Keep::Share(1.0)).unwrap(),
            Rule::new("{}", Keep::Share(0.0)).unwrap(),
        ],
        ..IngestRules::default()
    });
    assert_eq!(policy.thinned(&labels("a"), 1, T, u64::MAX), None);
    assert_eq!(policy.thinned(&labels("b"), 1, T, 0), Some("share"));
}

#[test]
fn a_share_keeps_its_share() {
    let policy = rule("{}", Keep::Share(0.1));
    let kept = (0..100_000).filter(|&n| policy.thinned(&labels("a"), 1, T, random(n)).is_none());
    let kept = kept.count();
    // Three deviations of a binomial.
    assert!((9_715..=10_285).contains(&kept), "{kept}");
}

#[test]
fn a_share_of_series_keeps_all_or_nothing_of_each() {
    let policy = rule("{}", Keep::Series(0.25));
    let mut whole = 0;
    for series in 0..4000 {
        let id = u128::from(random(series)) << 64;
        let kept = (0..5).filter(|&n| policy.thinned(&labels("a"), id, T, random(n)).is_none());
        match kept.count() {
            0 => {}
            5 => whole += 1,
            some => panic!("{some} of 5"),
        }
    }
    assert!((918..=1082).contains(&whole), "{whole}");
}

#[test]
fn a_window_keeps_its_number_from_all_of_its_length_and_of_every_sender() {
    let keep = Keep::PerWindow {
        profiles: 60,
        window: Duration::from_secs(60),
    };
    let policy = rule("{}", keep);
    // 20 senders in the same order every second, for an hour: 72,000 profiles.
    let (mut by_sender, mut by_half, mut total) = ([0; 20], [0; 2], 0);
    for second in 0..3600 {
        for sender in 0..20 {
            let now = T + second * SECOND + sender * SECOND / 20;
            let draw = random((second * 20 + sender) as u64);
            if policy.thinned(&labels("a"), 1, now, draw).is_none() {
                by_sender[sender as usize] += 1;
                by_half[usize::from(second % 60 >= 30)] += 1;
                total += 1;
            }
        }
    }
    assert!((3300..=3600).contains(&total), "{total}");
    let fair = total / 20;
    assert!(
        by_sender.iter().all(|&n| n > fair / 2 && n < fair * 2),
        "{by_sender:?}"
    );
    assert!(
        by_half[0] * 2 > by_half[1] && by_half[1] * 2 > by_half[0],
        "{by_half:?}"
    );
}

#[test]
fn a_window_with_few_profiles_keeps_them() {
    let keep = Keep::PerWindow {
        profiles: 60,
        window: Duration::from_secs(60),
    };
    let policy = rule("{}", keep);
    let busy = (0..6000).filter(|n| {
        let now = T + n * SECOND / 100;
        policy
            .thinned(&labels("a"), 1, now, random(*n as u64))
            .is_none()
    });
    assert!(busy.count() <= 60);
    // Ten times fewer than before, just as many as are wanted.
    let calm = (0..60).filter(|n| {
        let now = T + 60 * SECOND + n * SECOND;
        policy
            .thinned(&labels("a"), 1, now, random(*n as u64))
            .is_none()
    });
    let calm = calm.count();
    assert!(calm >= 55, "{calm}");
}
