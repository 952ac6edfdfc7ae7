//! A small checkout service: the example to copy from, and the service of known CPU shares that the
//! end-to-end tests profile. What pilotlight needs is one line in `main`.

mod basket;
mod receipt;
mod recommend;
mod truth;

use std::error::Error;

use axum::Json;
use axum::routing::{get, post};
use serde::Serialize;

use basket::{Basket, Price};
use truth::Truth;

/// The answer to a checkout.
#[derive(Serialize)]
struct Confirmation {
    price: Price,
    receipt_bytes: usize,
    receipt_hash: String,
    also_bought: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let _pilotlight = pilotlight::start("checkout")?;

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

/// The request handler. The work is well below a millisecond, so it may run on the async worker.
async fn checkout(Json(basket): Json<Basket>) -> Json<Confirmation> {
    let price = Truth::measure(|| basket::price_basket(&basket));
    let text = receipt::render(&basket, &price);
    Json(Confirmation {
        price,
        receipt_bytes: receipt::compress(text.as_bytes()).len(),
        receipt_hash: format!("{:016x}", receipt::hash(text.as_bytes())),
        also_bought: recommend::also_bought(&basket),
    })
}
