//! Waits of threads for each other, in programs that know nothing of pilotlight.

#![cfg(feature = "lock-hooks")]
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use common::{Started, start_with};
use pilotlight::{Config, Profile};
use pilotlight_profile::LabelValue;

const ROUNDS: u32 = 12;
/// A program that holds its libc has its functions of pthreads untimed.
const PTHREADS_ARE_TIMED: bool = cfg!(not(target_feature = "crt-static"));
const HOLD: Duration = Duration::from_millis(30);

fn started(lock_rate_ns: u64) -> Started {
    start_with(Config::new("test").no_listener().lock_rate_ns(lock_rate_ns))
}

/// A C program's mutex.
struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made for it.
unsafe impl Sync for PthreadMutex {}

impl PthreadMutex {
    const fn new() -> PthreadMutex {
        PthreadMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    fn lock(&self) {
        // SAFETY: initialized, never moved while locked.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
    }

    fn unlock(&self) {
        // SAFETY: this thread holds it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

/// What a waiter saw around its calls.
fn measured(call: impl FnOnce()) -> u64 {
    let began = Instant::now();
    call();
    began.elapsed().as_nanos() as u64
}

/// Waits without waiting for a thread.
fn nap_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// `take` is called by another thread `ROUNDS` times, each time while this one holds the lock;
/// returns how long it took there.
fn contended<Held>(hold: impl Fn() -> Held, take: impl Fn() + Sync) -> u64 {
    let (held, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut waited = 0;
            for round in 1..=ROUNDS {
                nap_until(|| held.load(SeqCst) == round);
                waited += measured(&take);
                taken.store(round, SeqCst);
            }
            waited
        });
        for round in 1..=ROUNDS {
            let guard = hold();
            held.store(round, SeqCst);
            std::thread::sleep(HOLD);
            drop(guard);
            nap_until(|| taken.load(SeqCst) == round);
        }
        nap_until(|| waiter.is_finished());
        waiter.join().unwrap()
    })
}

/// Waits and their nanoseconds while `work` runs.
fn counted<T>(work: impl FnOnce() -> T) -> (u64, u64, T) {
    let before = pilotlight::stats();
    let result = work();
    let after = pilotlight::stats();
    (
        after.waits - before.waits,
        after.waits_ns - before.waits_ns,
        result,
    )
}

fn assert_close(seen: u64, expected: u64) {
    let ratio = seen as f64 / expected as f64;
    println!("{seen} of {expected}: {ratio:.4}");
    assert!(
        (0.95..=1.05).contains(&ratio),
        "{seen} of {expected}: {ratio}"
    );
}

/// One sample of a profile: names from the leaf on, labels, contentions and nanoseconds.
#[derive(Debug)]
struct Wait {
    names: Vec<String>,
    labels: Vec<(String, String)>,
    count: u64,
    ns: u64,
}

impl Wait {
    fn label(&self, key: &str) -> &str {
        let found = self.labels.iter().find(|(known, _)| known == key);
        found.map_or("", |(_, value)| value)
    }

    fn is_in(&self, function: &str) -> bool {
        self.names.iter().any(|name| name.contains(function))
    }
}

fn waits(profile: &Profile) -> Vec<Wait> {
    let columns: Vec<_> = profile
        .sample_types
        .iter()
        .map(|ty| {
            let text = |id| profile.strings.text(id).into_owned();
            (text(ty.ty), text(ty.unit))
        })
        .collect();
    let own = |text: (&str, &str)| (text.0.to_string(), text.1.to_string());
    assert_eq!(
        columns,
        [own(("contentions", "count")), own(("delay", "nanoseconds"))]
    );
    profile
        .iter_samples()
        .map(|sample| Wait {
            names: sample
                .stack
                .iter()
                .flat_map(|&at| profile.location(at as usize).lines.to_vec())
                .map(|line| {
                    let function = profile.functions[line.function.index()];
                    profile.strings.text(function.name).into_owned()
                })
                .collect(),
            labels: sample
                .labels
                .iter()
                .filter_map(|label| match label.value {
                    LabelValue::Str(value) => Some((
                        profile.strings.text(label.key).into_owned(),
                        profile.strings.text(value).into_owned(),
                    )),
                    LabelValue::Num { .. } => None,
                })
                .collect(),
            count: sample.values[0] as u64,
            ns: sample.values[1] as u64,
        })
        .collect()
}

fn taken(name: &str) -> Vec<Wait> {
    waits(&pilotlight::take(name, Duration::ZERO).unwrap())
}

/// Contentions and nanoseconds of waits inside a function.
fn sum(waits: &[Wait], function: &str) -> (u64, u64) {
    let of_function = waits.iter().filter(|wait| wait.is_in(function));
    of_function.fold((0, 0), |sum, wait| (sum.0 + wait.count, sum.1 + wait.ns))
}

#[test]
fn waits_for_locks_of_std_parking_lot_and_pthreads_are_timed() {
    let _guard = started(1);
    let own = std::sync::Mutex::new(());
    let lot = parking_lot::Mutex::new(());
    let c = PthreadMutex::new();
    struct Held<'a>(&'a PthreadMutex);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.unlock();
        }
    }
    let hold_c = || {
        c.lock();
        Held(&c)
    };
    let of_own = || counted(|| contended(|| own.lock().unwrap(), || drop(own.lock().unwrap())));
    let of_lot = || counted(|| contended(|| lot.lock(), || drop(lot.lock())));
    let of_c = || counted(|| contended(hold_c, || drop(hold_c())));
    timed_as_measured(of_own);
    timed_as_measured(of_lot);
    if PTHREADS_ARE_TIMED {
        timed_as_measured(of_c);
    }
}

/// A lock spins before it waits, and on a busy machine a yield takes long: that is no wait, so some
/// tries may be off.
fn timed_as_measured(mut once: impl FnMut() -> (u64, u64, u64)) {
    let is_close = |(waits, seen, expected): (u64, u64, u64)| {
        println!("{waits} waits, {seen} of {expected}");
        let all_waited =
            waits >= u64::from(ROUNDS) && expected > u64::from(ROUNDS) * HOLD.as_nanos() as u64 / 2;
        all_waited && seen.abs_diff(expected) * 20 <= expected
    };
    assert!((0..5).any(|_| is_close(once())), "within 5 %");
}

#[inline(never)]
fn take_orders(orders: &std::sync::Mutex<u32>) {
    *orders.lock().unwrap() += 1;
}

#[inline(never)]
fn take_stock(stock: &parking_lot::Mutex<u32>) {
    *stock.lock() += 1;
}

#[inline(never)]
fn take_prices(prices: &pilotlight::sync::RwLock<u32>) {
    *prices.write().unwrap() += 1;
}

#[test]
fn known_waits_of_known_threads_are_in_the_profile_under_their_stacks() {
    let _guard = started(1_000_000);
    let orders = std::sync::Mutex::new(0);
    let stock = parking_lot::Mutex::new(0);
    let prices = pilotlight::sync::RwLock::new("prices", 0);
    let (for_orders, for_stock, for_prices) = std::thread::scope(|scope| {
        let orders = scope.spawn(|| contended(|| orders.lock().unwrap(), || take_orders(&orders)));
        let stock = scope.spawn(|| contended(|| stock.lock(), || take_stock(&stock)));
        let prices = scope.spawn(|| contended(|| prices.read().unwrap(), || take_prices(&prices)));
        (
            orders.join().unwrap(),
            stock.join().unwrap(),
            prices.join().unwrap(),
        )
    });
    let mutex = taken("mutex");
    for (function, expected) in [
        ("take_orders", for_orders),
        ("take_stock", for_stock),
        ("take_prices", for_prices),
    ] {
        let (count, ns) = sum(&mutex, function);
        // On a busy machine a thread may come so late that the lock is free again.
        assert!(
            (u64::from(ROUNDS) * 2 / 3..=u64::from(ROUNDS) + 2).contains(&count),
            "{count}"
        );
        assert_close(ns, expected);
    }
    assert!(
        mutex.iter().all(|wait| wait.label("wait") == "lock"),
        "{mutex:?}"
    );
    let named: Vec<_> = mutex
        .iter()
        .filter(|wait| wait.label("lock") == "prices")
        .collect();
    assert!(!named.is_empty() && named.iter().all(|wait| wait.is_in("take_prices")));
    assert!(
        mutex
            .iter()
            .all(|wait| wait.is_in("Thread>::new::thread_start")),
        "{mutex:?}"
    );
    // What happens in pilotlight's hooks is not shown.
    assert!(
        !mutex
            .iter()
            .any(|wait| wait.names[0].contains("pilotlight")),
        "{mutex:?}"
    );
    // All of them are waits.
    let block = taken("block");
    assert_eq!(sum(&block, "take_orders"), sum(&mutex, "take_orders"));
}

#[test]
fn locks_condition_variables_parks_channels_and_joins_are_told_apart() {
    const TIME: Duration = Duration::from_millis(30);

    #[inline(never)]
    fn on_condvar(pair: &(std::sync::Mutex<bool>, std::sync::Condvar)) {
        let guard = pair.0.lock().unwrap();
        drop(pair.1.wait_while(guard, |done| !*done).unwrap());
    }
    #[inline(never)]
    fn on_lot_condvar(pair: &(parking_lot::Mutex<bool>, parking_lot::Condvar)) {
        pair.1.wait_while(&mut pair.0.lock(), |done| !*done);
    }
    #[inline(never)]
    fn on_park() {
        std::thread::park_timeout(TIME);
        // A call that is the last thing of a function would take its place.
        std::hint::black_box(());
    }
    #[inline(never)]
    fn on_channel(channel: std::sync::mpsc::Receiver<()>) {
        channel.recv().unwrap();
    }
    #[inline(never)]
    fn on_once(once: &std::sync::OnceLock<()>) {
        once.get_or_init(|| std::thread::sleep(TIME));
        std::hint::black_box(());
    }
    #[inline(never)]
    fn on_join(thread: std::thread::JoinHandle<()>) {
        thread.join().unwrap();
    }

    let _guard = started(1_000_000);
    let pair = (std::sync::Mutex::new(false), std::sync::Condvar::new());
    let lot = (parking_lot::Mutex::new(false), parking_lot::Condvar::new());
    let once = std::sync::OnceLock::new();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| on_condvar(&pair));
        scope.spawn(|| on_lot_condvar(&lot));
        scope.spawn(on_park);
        scope.spawn(|| on_channel(receive));
        scope.spawn(|| on_once(&once));
        scope.spawn(|| on_once(&once));
        std::thread::sleep(TIME);
        *pair.0.lock().unwrap() = true;
        pair.1.notify_all();
        *lot.0.lock() = true;
        lot.1.notify_all();
        send.send(()).unwrap();
    });
    on_join(std::thread::spawn(|| std::thread::sleep(TIME)));

    let (block, mutex) = (taken("block"), taken("mutex"));
    for (function, label, in_mutex) in [
        ("on_condvar", "condvar", false),
        ("on_lot_condvar", "condvar", false),
        ("on_park", "park", false),
        ("on_channel", "channel", false),
        ("on_once", "lock", true),
        ("on_join", "join", false),
    ] {
        if label == "join" && !PTHREADS_ARE_TIMED {
            continue;
        }
        let longest = block
            .iter()
            .filter(|wait| wait.is_in(function))
            .max_by_key(|wait| wait.ns);
        let longest = longest.unwrap_or_else(|| panic!("{function} is not in {block:?}"));
        assert_eq!(longest.label("wait"), label, "{longest:?}");
        assert!(longest.ns >= 15_000_000, "{longest:?}");
        let shown = mutex
            .iter()
            .any(|wait| wait.is_in(function) && wait.ns == longest.ns);
        assert_eq!(shown, in_mutex, "{longest:?}");
    }
    // pilotlight's own thread waits all the time.
    assert!(
        !block.iter().any(|wait| wait.is_in("Background")),
        "{block:?}"
    );
}

#[test]
fn sums_of_short_waits_are_right_though_few_are_kept() {
    const WAITS: u64 = 4000;
    const RATE_NS: u64 = 2_000_000;

    #[inline(never)]
    fn nap_on_park() -> u64 {
        measured(|| std::thread::park_timeout(Duration::from_micros(150)))
    }

    let _guard = started(RATE_NS);
    let before = pilotlight::stats();
    let expected_ns: u64 = std::thread::scope(|scope| {
        let all = scope.spawn(|| (0..WAITS).map(|_| nap_on_park()).sum());
        all.join().unwrap()
    });
    let kept = pilotlight::stats().waits_kept - before.waits_kept;
    let (count, ns) = sum(&taken("block"), "nap_on_park");
    println!("{kept} kept: {count} of {WAITS} waits, {ns} of {expected_ns} ns");
    assert!(kept > 100 && kept < WAITS, "{kept}");
    // Five standard errors, and what lies around the wait itself.
    let bound = 5.0 / (kept as f64).sqrt() + 0.05;
    assert!((ns as f64 / expected_ns as f64 - 1.0).abs() < bound);
    // Waits of different lengths weigh differently.
    assert!((count as f64 / WAITS as f64 - 1.0).abs() < 2.0 * bound);
}

#[test]
fn the_profiles_are_switched_while_the_program_runs_and_differences_are_of_their_time() {
    #[inline(never)]
    fn before_the_difference(lock: &std::sync::Mutex<()>) {
        drop(lock.lock().unwrap());
    }
    #[inline(never)]
    fn meanwhile(lock: &std::sync::Mutex<()>) {
        drop(lock.lock().unwrap());
    }

    let _guard = started(0);
    let lock = std::sync::Mutex::new(());
    let off = pilotlight::take("mutex", Duration::ZERO)
        .unwrap_err()
        .to_string();
    assert!(off.contains("set_enabled(\"mutex\", true)"), "{off}");
    let (seen, _, _) = counted(|| contended(|| lock.lock(), || before_the_difference(&lock)));
    assert_eq!(seen, 0);

    pilotlight::set_enabled("mutex", true).unwrap();
    assert!(pilotlight::take("block", Duration::ZERO).is_err());
    let first = contended(|| lock.lock(), || before_the_difference(&lock));
    assert_close(sum(&taken("mutex"), "before_the_difference").1, first);
    let (gained, second) = std::thread::scope(|scope| {
        let window = Duration::from_millis(1500);
        let gained = scope.spawn(move || pilotlight::take("mutex", window).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let second = contended(|| lock.lock(), || meanwhile(&lock));
        (waits(&gained.join().unwrap()), second)
    });
    assert_close(sum(&gained, "meanwhile").1, second);
    assert_eq!(sum(&gained, "before_the_difference"), (0, 0));

    pilotlight::set_enabled("mutex", false).unwrap();
    let (seen, _, _) = counted(|| contended(|| lock.lock(), || meanwhile(&lock)));
    assert_eq!(seen, 0);
}
