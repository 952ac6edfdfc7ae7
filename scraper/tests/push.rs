//! The way to a server that fails, is slow, or refuses.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

mod common;

use common::{Act, Peer, ok, options, run, until};
use pilotlight_scraper::{Counters, Parcel, Pusher};
use pilotlight_wire::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn pusher(server: &Peer, queue: u64) -> (Pusher, Arc<Counters>) {
    let options = options(server.url());
    let counters = Arc::new(Counters::default());
    let pusher = Pusher::start(
        pilotlight_wire::Client::new(),
        options.server,
        options.retry,
        queue,
        options.clock,
        options.rng,
        Arc::clone(&counters),
    );
    (pusher, counters)
}

fn parcel(pusher: &Pusher) -> Parcel {
    Parcel {
        series: "{service_name=\"x\"}".to_owned(),
        name: "process_cpu".to_owned(),
        body: Bytes::from_static(b"0123456789"),
        window: None,
        id: pusher.id(),
    }
}

#[test]
fn a_server_that_fails_first_gets_the_same_id_and_bytes_again() {
    run(async {
        let server = Peer::start(|_, n| match n {
            0 => Act::Answer(503, "", b"starting".to_vec()),
            1 => Act::Answer(429, "Retry-After: 0\r\n", Vec::new()),
            _ => ok(b"{}".to_vec()),
        })
        .await;
        let (pusher, counters) = pusher(&server, 1000);
        pusher.push(parcel(&pusher));
        pusher.shutdown(Duration::from_secs(10)).await;
        let seen = server.seen();
        assert_eq!(seen.len(), 3);
        let ids: HashSet<_> = seen
            .iter()
            .map(|r| r.header("x-pilotlight-request-id").unwrap())
            .collect();
        assert_eq!(ids.len(), 1, "one id for all tries");
        assert!(seen.iter().all(|r| r.body == b"0123456789"));
        assert_eq!(counters.pushed.load(Ordering::Relaxed), 1);
        assert_eq!(counters.push_failures.load(Ordering::Relaxed), 2);
        assert_eq!(counters.retries.load(Ordering::Relaxed), 2);
        assert!(counters.dropped().is_empty());
    });
}

#[test]
fn a_refusal_is_final_and_quoted() {
    run(async {
        let server =
            Peer::start(|_, _| Act::Answer(422, "", b"{\"error\": \"no samples\"}".to_vec())).await;
        let (pusher, counters) = pusher(&server, 1000);
        pusher.push(parcel(&pusher));
        until("drop", || {
            (counters.dropped().get("rejected") == Some(&1)).then_some(())
        })
        .await;
        assert_eq!(server.seen().len(), 1);
        assert!(counters.push_error().unwrap().contains("no samples"));
    });
}

#[test]
fn a_server_that_stays_away_is_given_up_after_the_last_try() {
    run(async {
        let server = Peer::start(|_, _| Act::Answer(500, "", Vec::new())).await;
        let (pusher, counters) = pusher(&server, 1000);
        pusher.push(parcel(&pusher));
        until("drop", || {
            (counters.dropped().get("unavailable") == Some(&1)).then_some(())
        })
        .await;
        assert_eq!(server.seen().len(), 5);
    });
}

#[test]
fn a_full_queue_drops_and_counts_and_takes_again_when_there_is_room() {
    run(async {
        let server =
            Peer::start(|_, _| Act::Late(Duration::from_millis(300), b"{}".to_vec())).await;
        let (pusher, counters) = pusher(&server, 25);
        for _ in 0..5 {
            pusher.push(parcel(&pusher));
        }
        assert_eq!(pusher.waiting(), (20, 2));
        assert_eq!(counters.dropped().get("queue_full"), Some(&3));
        until("room", || (pusher.waiting().0 == 0).then_some(())).await;
        pusher.push(parcel(&pusher));
        pusher.shutdown(Duration::from_secs(10)).await;
        assert_eq!(counters.pushed.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn at_shutdown_acknowledgements_are_awaited_and_the_rest_is_counted() {
    run(async {
        let server = Peer::start(|_, n| {
            if n == 0 {
                Act::Late(Duration::from_millis(300), b"{}".to_vec())
            } else {
                Act::Silence
            }
        })
        .await;
        let (pusher, counters) = pusher(&server, 1000);
        pusher.push(parcel(&pusher));
        server.until(1).await;
        pusher.push(parcel(&pusher));
        pusher.shutdown(Duration::from_millis(900)).await;
        assert_eq!(counters.pushed.load(Ordering::Relaxed), 1);
        assert_eq!(counters.dropped().get("shutdown"), Some(&1));
        pusher.push(parcel(&pusher));
        assert_eq!(
            counters.dropped().get("shutdown"),
            Some(&2),
            "nothing is taken after that"
        );
    });
}
