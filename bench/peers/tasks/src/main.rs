//! Prints nanoseconds a poll, `name value`: a future that is never ready, bare and wrapped.

use std::future::{Future, pending, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;

use pilotlight::{LabelExt, SpanExt, labels, spans};
use pilotlight_bench_kit::thread_cpu_ns;
use tracing::Instrument;
use tracing_subscriber::Registry;

const POLLS: u32 = 200_000;
const PASSES: usize = 15;

/// Smallest of several passes.
fn poll_ns<T>(future: impl Future<Output = T>) -> f64 {
    let mut future = pin!(future);
    let mut task = Context::from_waker(Waker::noop());
    let mut pass = || {
        let began = thread_cpu_ns();
        for _ in 0..POLLS {
            let polled = black_box(future.as_mut()).poll(&mut task);
            assert!(black_box(polled).is_pending());
        }
        (thread_cpu_ns() - began) as f64 / f64::from(POLLS)
    };
    (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min)
}

/// Not inlined, so that each wrapper meets the same call.
fn never() -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(poll_fn(|_| black_box(Poll::Pending)))
}

/// First poll and end of a spanned future, with its first and last wait.
fn life_ns() -> f64 {
    let mut task = Context::from_waker(Waker::noop());
    let mut pass = || {
        let began = thread_cpu_ns();
        for _ in 0..POLLS {
            let mut future = pin!(pending::<()>().span("life"));
            assert!(black_box(future.as_mut()).poll(&mut task).is_pending());
        }
        (thread_cpu_ns() - began) as f64 / f64::from(POLLS)
    };
    (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min)
}

/// The same span polled by two threads at once.
fn contended_ns() -> f64 {
    let threads = [(); 2].map(|()| thread::spawn(|| poll_ns(never().span("shared"))));
    threads
        .map(|t| t.join().unwrap_or(f64::NAN))
        .into_iter()
        .fold(0.0, f64::max)
}

fn main() {
    let bare = poll_ns(never());
    let say = |name: &str, ns: f64| println!("{name} {}", ns - bare);
    println!("bare {bare}");
    let three = || never().span("inner").span("middle").span("outer");
    say("span_off", poll_ns(never().span("one")));
    say("three_off", poll_ns(three()));
    println!("life_off {}", life_ns());
    spans::set_await_enabled(true);
    say("span_on", poll_ns(never().span("one")));
    say("three_on", poll_ns(three()));
    println!("life_on {}", life_ns());
    say("contended_on", contended_ns());
    let one = labels! { "route" => "/pay", "tenant" => 17 };
    say("labelled", poll_ns(never().labelled(one.clone())));
    let nested = never()
        .labelled(labels! { "step" => 1 })
        .labelled(one.clone());
    say("labelled_twice", poll_ns(nested));
    say(
        "labelled_span_on",
        poll_ns(never().span("one").labelled(one)),
    );
    say("async_backtrace", poll_ns(async_backtrace::frame!(never())));
    let subscriber = tracing::Dispatch::new(Registry::default());
    let traced = tracing::dispatcher::with_default(&subscriber, || {
        poll_ns(never().instrument(tracing::info_span!("one", route = "/pay")))
    });
    say("tracing", traced);
}
