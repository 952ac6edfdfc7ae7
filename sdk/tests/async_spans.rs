//! Where the tasks of a tokio service wait, and what they are labelled with.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pilotlight::http::{Body, Request};
use pilotlight::spans::{self, TaskState};
use pilotlight::{LabelExt, Labels, Profile, SpanExt, labels};
use pilotlight_macros::span;
use pilotlight_profile::Mode;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::sleep;

/// Runs a test's future while no other test of this file runs: they look at all tasks.
fn run<T>(test: impl Future<Output = T>) -> T {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .build()
        .unwrap()
        .block_on(test)
}

/// Logical stacks, outermost first, with both columns.
fn rows(profile: &Profile) -> Vec<(String, i64, i64)> {
    let mut rows = HashMap::<String, [i64; 2]>::new();
    for column in 0..2 {
        let mut text = Vec::new();
        pilotlight_profile::to_collapsed(profile, column, &mut text).unwrap();
        for line in String::from_utf8(text).unwrap().lines() {
            let (stack, value) = line.rsplit_once(' ').unwrap();
            rows.entry(stack.into()).or_default()[column] = value.parse().unwrap();
        }
    }
    let row = |(stack, [count, sum]): (String, [i64; 2])| (stack, count, sum);
    rows.into_iter().map(row).collect()
}

fn row(rows: &[(String, i64, i64)], stack: &str) -> (i64, i64) {
    let found = rows.iter().find(|row| row.0 == stack);
    let found = found.unwrap_or_else(|| panic!("{stack} is not in {rows:?}"));
    (found.1, found.2)
}

const MS: i64 = 1_000_000;

/// Requests that have their price.
static ARRIVED: AtomicU32 = AtomicU32::new(0);

#[span]
async fn request(stock: Arc<Semaphore>) -> Result<u32, String> {
    let price = price(7).await?;
    ARRIVED.fetch_add(1, Ordering::SeqCst);
    let _permit = stock
        .acquire()
        .span("stock")
        .await
        .map_err(|e| e.to_string())?;
    Ok(price)
}

#[span("price of one")]
async fn price(item: u32) -> Result<u32, String> {
    sleep(Duration::from_millis(50)).await;
    Ok(item * 3)
}

#[test]
fn each_logical_stack_shows_how_long_its_requests_wait() {
    spans::set_await_enabled(true);
    let stock = Arc::new(Semaphore::new(0));
    run(async {
        let before = Instant::now();
        let requests: Vec<_> = (0..20)
            .map(|_| tokio::spawn(request(Arc::clone(&stock))))
            .collect();
        // A busy machine, or an emulator, gives the requests their turns late.
        while ARRIVED.load(Ordering::SeqCst) < 20 {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(200)).await;
        stock.add_permits(20);
        for request in requests {
            assert_eq!(request.await.unwrap(), Ok(21));
        }
        let most = before.elapsed().as_nanos() as i64;
        let rows = rows(&spans::await_profile());
        let (waits, price_ns) = row(&rows, "request;price of one");
        assert_eq!(waits, 20);
        // A timer is never early; how late is the machine's affair.
        assert!(price_ns >= 20 * 50 * MS, "{price_ns}");
        let (waits, stock_ns) = row(&rows, "request;stock");
        assert_eq!(waits, 20);
        // What passes inside a poll is no wait.
        assert!(stock_ns >= 20 * 200 * MS * 9 / 10, "{rows:?}");
        assert!(price_ns + stock_ns <= 20 * most, "{rows:?} in {most}");
        assert!(
            rows.iter().all(|row| row.0 != "request"),
            "only the innermost waits: {rows:?}"
        );
    });
}

#[span]
async fn both(ms: u64) {
    let left = sleep(Duration::from_millis(ms)).span("left");
    let right = sleep(Duration::from_millis(2 * ms)).span("right");
    let (mut left, mut right) = (Box::pin(left), Box::pin(right));
    let (mut left_done, mut right_done) = (false, false);
    std::future::poll_fn(|task| {
        left_done = left_done || left.as_mut().poll(task).is_ready();
        right_done = right_done || right.as_mut().poll(task).is_ready();
        match left_done && right_done {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

#[test]
fn joined_branches_wait_side_by_side_and_dropped_ones_until_they_are_dropped() {
    spans::set_await_enabled(true);
    run(async {
        both(30).await;
        let never = std::future::pending::<()>().span("never");
        let late = tokio::time::timeout(Duration::from_millis(60), never).span("with timeout");
        assert!(late.await.is_err());
        let rows = rows(&spans::await_profile());
        // A wait begins when the poll ends that began it: under an emulator some milliseconds later.
        assert!(row(&rows, "both;left").1 >= 20 * MS);
        assert!(row(&rows, "both;right").1 >= 45 * MS);
        assert!(rows.iter().all(|row| row.0 != "both"), "{rows:?}");
        let (waits, ns) = row(&rows, "with timeout;never");
        assert!(waits >= 1 && ns >= 45 * MS, "{rows:?}");
    });
}

#[test]
fn a_wait_that_lasts_is_in_the_sum_and_tasks_show_it_with_its_age() {
    spans::set_await_enabled(true);
    run(async {
        let (send, mut receive) = mpsc::channel::<u32>(1);
        let worker = async move { receive.recv().span("next job").await };
        let worker = worker
            .span("worker")
            .labelled(labels! { "queue" => "mail" });
        let worker = tokio::spawn(worker);
        let unspanned = tokio::spawn(sleep(Duration::from_millis(1)));
        sleep(Duration::from_millis(80)).await;
        unspanned.await.unwrap();
        let (first, _) = (
            rows(&spans::await_profile()),
            sleep(Duration::from_millis(50)).await,
        );
        let second = rows(&spans::await_profile());
        let (before, after) = (
            row(&first, "worker;next job"),
            row(&second, "worker;next job"),
        );
        assert_eq!((before.0, after.0), (0, 0));
        assert!(
            before.1 >= 60 * MS && after.1 - before.1 >= 40 * MS,
            "{before:?} {after:?}"
        );

        let tasks = spans::tasks();
        let [task] = &tasks[..] else {
            panic!("{tasks:?}")
        };
        assert!(task.age >= Duration::from_millis(130));
        assert!(matches!(task.state, TaskState::Waiting(Some(time)) if time <= task.age));
        assert_eq!(
            task.stack.iter().map(|f| f.name).collect::<Vec<_>>(),
            ["worker", "next job"]
        );
        assert_eq!(task.stack[1].file, file!());
        assert!(task.root < task.id);
        let text = spans::tasks_text(true);
        for part in [
            "tasks: total 1\n",
            "[waiting for ",
            "# queue=\"mail\"\n",
            "#\tnext job (sdk/tests/",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let rows = rows(&spans::tasks_profile());
        let (count, age_ns) = row(&rows, "worker;next job");
        assert!(count == 1 && age_ns >= 130 * MS);

        send.send(4).await.unwrap();
        assert_eq!(worker.await.unwrap(), Some(4));
        assert!(spans::tasks().is_empty());
        assert_eq!(spans::tasks_text(false), "tasks: total 0\n");
    });
}

#[test]
fn labels_follow_a_task_from_thread_to_thread() {
    run(async {
        let follow = async |n: u32| {
            let mut threads = std::collections::HashSet::new();
            for _ in 0..50 {
                threads.insert(std::thread::current().id());
                assert_eq!(
                    Labels::current(),
                    labels! { "request" => n, "zone" => "eu" }
                );
                let inner = async { Labels::current() }.labelled(labels! { "step" => 1 });
                assert_eq!(
                    inner.await,
                    labels! { "request" => n, "zone" => "eu", "step" => 1 }
                );
                tokio::task::yield_now().await;
                sleep(Duration::from_micros(200)).await;
            }
            threads.len()
        };
        let tasks: Vec<_> = (0..30)
            .map(|n| {
                let labels = labels! { "request" => n };
                let task = async move { follow(n).labelled(labels).await };
                tokio::spawn(task.labelled(labels! { "zone" => "eu", "request" => "none" }))
            })
            .collect();
        let mut threads = 0;
        for task in tasks {
            threads = threads.max(task.await.unwrap());
        }
        assert!(
            threads > 1,
            "no task changed threads: this test saw nothing"
        );
        assert_eq!(Labels::current(), labels! {});
    });
}

#[test]
fn a_spawned_task_gets_the_callers_context_when_asked() {
    run(async {
        let seen = async || {
            let stack = spans::current().iter().map(|f| f.name).collect::<Vec<_>>();
            (Labels::current(), stack)
        };
        let outer = async {
            let bare = tokio::spawn(seen().span("inner")).await.unwrap();
            let task = tokio::spawn(seen().span("inner").in_current_context());
            (bare, task.await.unwrap())
        };
        let labels = labels! { "route" => "/" };
        let (bare, with) = outer.span("outer").labelled(labels.clone()).await;
        assert_eq!(bare, (labels! {}, vec!["inner"]));
        assert_eq!(with, (labels, vec!["outer", "inner"]));
    });
}

#[test]
fn a_poll_that_panics_leaves_nothing_behind() {
    run(async {
        let dies = async { panic!("on purpose") };
        let task = dies.span("dies").labelled(labels! { "a" => 1 });
        let (sender, receiver) = oneshot::channel();
        let local = async move {
            let caught = std::panic::AssertUnwindSafe(task);
            let mut caught = Box::pin(caught.0);
            let poll = std::future::poll_fn(move |cx| {
                let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    caught.as_mut().poll(cx).is_ready()
                }));
                std::task::Poll::Ready(polled.is_err())
            });
            let died = poll.await;
            sender.send((died, Labels::current())).unwrap();
        };
        local.await;
        assert_eq!(receiver.await.unwrap(), (true, labels! {}));
        assert!(spans::tasks().is_empty());
    });
}

#[test]
fn the_profiles_are_at_their_endpoints() {
    let get = |path: &str, query: &str| {
        let response = pilotlight::http::respond(&Request::get(path, query));
        let Body::Full(body) = response.body else {
            panic!("a stream at {path}")
        };
        (response.status, body)
    };
    run(async {
        pilotlight::set_enabled("await", false).unwrap();
        let (status, why) = get("/debug/pprof/await", "");
        let why = String::from_utf8(why).unwrap();
        assert!(
            status >= 400 && why.contains("set_enabled(\"await\", true)"),
            "{status} {why}"
        );
        pilotlight::set_enabled("await", true).unwrap();
        for _ in 0..2 {
            // Waits from before the window until inside of it.
            let (go, gone) = oneshot::channel::<()>();
            let task = tokio::spawn(gone.span("endpoint"));
            let (begins, begun) = oneshot::channel();
            let window = tokio::task::spawn_blocking(move || {
                begins.send(()).unwrap();
                rows(&pilotlight::take("await", Duration::from_millis(600)).unwrap())
            });
            begun.await.unwrap();
            sleep(Duration::from_millis(200)).await;
            go.send(()).unwrap();
            task.await.unwrap().unwrap();
            let rows = window.await.unwrap();
            let (count, ns) = row(&rows, "endpoint");
            // A difference holds its own waits only.
            assert!(count == 1 && ns >= 100 * MS, "{rows:?}");
        }
        let never = tokio::spawn(std::future::pending::<()>().span("never ends"));
        sleep(Duration::from_millis(10)).await;
        let (status, text) = get("/debug/pprof/tasks", "debug=2");
        let text = String::from_utf8(text).unwrap();
        assert!(status == 200 && text.contains("#\tnever ends"), "{text}");
        let (status, body) = get("/debug/pprof/tasks", "");
        let limits = pilotlight_profile::Limits::default();
        let decoded = pilotlight_profile::decode(&body, Mode::Strict, &limits).unwrap();
        assert_eq!((status, decoded.profile.total(0)), (200, 1));
        never.abort();
    });
}

#[cfg(feature = "tracing")]
#[test]
fn spans_of_tracing_are_logical_spans_and_their_idle_time_is_a_wait() {
    use pilotlight::otel::TraceContext;
    use tracing::{Instrument, info_span};
    use tracing_subscriber::layer::SubscriberExt;

    const IDS: TraceContext = TraceContext {
        trace_id: [1; 16],
        span_id: [2; 8],
        flags: 1,
    };
    spans::set_await_enabled(true);
    let layer = pilotlight::tracing::layer().trace_ids(|_| Some(IDS));
    let subscriber = tracing_subscriber::registry::Registry::default().with(layer);
    let names = || spans::current().iter().map(|f| f.name).collect::<Vec<_>>();
    // The runtime's threads get the subscriber from the process.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    run(async move {
        let inner = async move {
            let before = names();
            sleep(Duration::from_millis(40)).await;
            let labelled = async move { names() }.labelled(labels! { "a" => 1 }).await;
            (before, labelled, TraceContext::current())
        };
        let outer = async move {
            let seen = inner.instrument(info_span!("traced query")).await;
            (seen, names())
        };
        let task = tokio::spawn(outer.instrument(info_span!("traced request")));
        let ((before, after, ids), outside) = task.await.unwrap();
        assert_eq!(before, ["traced request", "traced query"]);
        assert_eq!((after, ids), (before, Some(IDS)));
        assert_eq!(outside, ["traced request"]);
        assert_eq!((names(), TraceContext::current()), (vec![], None));
        let rows = rows(&spans::await_profile());
        let (waits, ns) = row(&rows, "traced request;traced query");
        assert!(waits >= 1 && ns >= 40 * MS, "{rows:?}");
        // Between its last poll and its drop it is left for a moment, which counts.
        let outer = rows.iter().find(|row| row.0 == "traced request");
        assert!(outer.is_none_or(|row| row.2 < 40 * MS), "{rows:?}");
    });
    let (a, b) = (info_span!("a"), info_span!("b"));
    let (left, right) = (a.enter(), b.enter());
    drop(left);
    assert_eq!(spans::current().last().unwrap().name, "b");
    drop(right);
    assert!(spans::current().is_empty());
}

#[span]
fn blocking(depth: u32) -> usize {
    if depth > 0 {
        blocking(depth - 1)
    } else {
        spans::tasks().len()
    }
}

#[test]
fn spans_of_functions_end_with_them_also_when_they_recurse() {
    let seen = run(async {
        let guard = spans::enter("outer");
        blocking(500);
        let under = async { spans::tasks()[0].stack.len() };
        let under_outer = under.span("future").await;
        drop(guard);
        (
            under_outer,
            async { spans::tasks()[0].stack.len() }.span("future").await,
        )
    });
    assert_eq!(seen, (2, 1));
}
