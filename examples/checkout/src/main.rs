//! A small checkout service: the example to copy from, and the service of known CPU shares that the
//! end-to-end tests profile. What pilotlight needs is one line in `main`; the allocator, the settings and
//! the spans are for those profiles that are off without them.

mod archive;
mod basket;
mod payment;
mod receipt;
mod recommend;
mod truth;

use std::error::Error;

use axum::Json;
use axum::routing::{get, post};
use pilotlight::SpanExt;
use serde::Serialize;

use basket::{Basket, Price};
use truth::Truth;

/// For `heap` and `allocs`.
#[global_allocator]
static ALLOCATOR: pilotlight::Alloc = pilotlight::Alloc::system();

/// The answer to a checkout.
#[derive(Serialize)]
struct Confirmation {
    price: Price,
    receipt_bytes: usize,
    receipt_hash: String,
    also_bought: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let _pilotlight = pilotlight::Config::new("checkout")
        .version(env!("CARGO_PKG_VERSION"))
        .lock_rate_ns(100_000) // for `mutex` and `block`
        .await_profile(true)
        .start()?;

    if let Some(address) = _pilotlight.address() {
        println!("pilotlight: http://{address}/debug/pprof/");
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(serve())
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let app = axum::Router::new()
        .route(
            "/",
            get(async || "POST a basket to /checkout; GET /truth for the CPU shares\n"),
        )
        .route("/checkout", post(checkout))
        .route("/truth", get(async || Json(truth::read())));
    let listener = tokio::net::TcpListener::bind(listen_address()).await?;
    println!("checkout: http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(interrupted())
        .await?;
    Ok(())
}

/// `--listen ADDRESS`, else `CHECKOUT_LISTEN`, else port 8080 on loopback.
fn listen_address() -> String {
    let mut arguments = std::env::args()
        .skip_while(|argument| argument != "--listen")
        .skip(1);
    arguments
        .next()
        .or_else(|| std::env::var("CHECKOUT_LISTEN").ok())
        .unwrap_or_else(|| "127.0.0.1:8080".into())
}

async fn interrupted() {
    // Without the handler the signal still ends the process, only less tidily.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn checkout(Json(basket): Json<Basket>) -> Json<Confirmation> {
    Json(order(basket).span("checkout").await)
}

/// The work is well below a millisecond, so it may run on the async worker.
async fn order(basket: Basket) -> Confirmation {
    let price = Truth::measure(|| basket::price_basket(&basket));
    let text = receipt::render(&basket, &price);
    let hash = receipt::hash(text.as_bytes());
    payment::pay().span("pay").await;
    Confirmation {
        price,
        receipt_bytes: archive::keep(&text),
        receipt_hash: format!("{hash:016x}"),
        also_bought: recommend::also_bought(&basket),
    }
}
