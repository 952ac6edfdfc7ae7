//! `#[pilotlight::span]` and `#[pilotlight::main]` leave functions as they are, but for what they add.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pilotlight::{Error, spans};
use pilotlight_macros::span;

/// The names of the logical stack.
fn names() -> Vec<&'static str> {
    spans::current().iter().map(|frame| frame.name).collect()
}

/// Runs a future that needs no runtime.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut task = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut task) {
            return value;
        }
    }
}

struct Shop<T> {
    name: T,
}

impl<T: Display + Sync> Shop<T> {
    /// Borrowed, generic, with a bound of its own.
    #[span]
    async fn sell<'a, N>(
        &'a self,
        items: &'a [N],
    ) -> Result<(&'a N, String), Box<dyn std::error::Error>>
    where
        N: Display + PartialOrd,
    {
        let Some(first) = items.first() else {
            return Err("nothing to sell".into());
        };
        let parsed: u32 = first.to_string().parse()?;
        assert_eq!(names(), ["sell"]);
        Ok((
            first,
            format!("{} for {}", self.name, self.price(parsed).await),
        ))
    }

    #[span(name = "price of one")]
    async fn price(&self, mut item: u32) -> impl Display + use<T> {
        item *= 3;
        assert_eq!(names(), ["sell", "price of one"]);
        item
    }

    #[span("renamed")]
    fn into_name(self) -> T {
        assert_eq!(names(), ["renamed"]);
        self.name
    }
}

trait Sells {
    async fn sold(&self) -> u32;
}

impl<T: Sync> Sells for Shop<T> {
    #[span]
    async fn sold(&self) -> u32 {
        assert_eq!(names(), ["sold"]);
        unfinished(3).await
    }
}

#[span]
async fn unfinished(left: u32) -> u32 {
    if left == 0 {
        0
    } else {
        1 + Box::pin(unfinished(left - 1)).await
    }
}

#[span]
async fn returns_nothing() {
    if names().is_empty() {
        return;
    }
    assert_eq!(names(), ["returns_nothing"]);
}

#[span]
async fn never_returns() -> ! {
    std::future::pending().await
}

#[span]
fn r#match<const N: usize>(bytes: [u8; N]) -> usize {
    assert_eq!(names(), ["match"]);
    bytes.len()
}

#[test]
fn functions_of_all_kinds_keep_their_types_and_values() {
    let shop = Shop { name: "shop" };
    let (item, text) = run(shop.sell(&[7, 8])).unwrap();
    assert_eq!((*item, text.as_str()), (7, "shop for 21"));
    let none: [u8; 0] = [];
    assert_eq!(
        run(shop.sell(&none)).unwrap_err().to_string(),
        "nothing to sell"
    );
    assert_eq!(run(shop.sold()), 3);
    run(returns_nothing());
    assert_eq!(r#match([0; 5]), 5);
    assert_eq!(shop.into_name(), "shop");
    assert!(names().is_empty());
    let mut never = pin!(never_returns());
    let mut task = Context::from_waker(Waker::noop());
    assert!(never.as_mut().poll(&mut task).is_pending());
    assert_eq!(spans::tasks().len(), 1);
}

mod program {
    use super::Error;

    #[pilotlight_macros::main("the program")]
    pub fn main() -> Result<&'static str, Error> {
        super::profile_one()?;
        // A second start is refused, said, and no reason to end.
        second::main();
        Ok("done")
    }

    mod second {
        #[pilotlight_macros::main]
        pub fn main() {}
    }
}

fn profile_one() -> Result<(), Error> {
    pilotlight::Capture::begin().map(drop)
}

#[test]
fn the_profiler_runs_as_long_as_main() {
    // SAFETY: no other thread reads the environment.
    unsafe { std::env::set_var("PILOTLIGHT_LISTEN", "none") };
    assert_eq!(program::main().unwrap(), "done");
    assert!(matches!(profile_one(), Err(Error::NotStarted)));
}
