//! The client against listeners that behave badly.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions

use pilotlight_wire::{Call, Client, Error, Stage, StatusCode, Url};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answers every connection with these bytes, then keeps it open for `hold`.
async fn serve(answer: &'static [u8], hold: Duration) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "http://{}/debug/pprof/profile",
        listener.local_addr().unwrap()
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_one(stream, answer, hold));
        }
    });
    Url::parse(&url).unwrap()
}

async fn answer_one(mut stream: TcpStream, answer: &'static [u8], hold: Duration) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await;
    let _ = stream.write_all(answer).await;
    tokio::time::sleep(hold).await;
}

fn get(url: &Url) -> Call {
    Call::get(url.clone()).timeout(Duration::from_millis(400))
}

const HOLD: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_body_at_the_limit_passes_and_one_byte_more_does_not() {
    let url = serve(
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",
        HOLD,
    )
    .await;
    let client = Client::new();
    let answer = client
        .send(get(&url).max_body(10))
        .await
        .unwrap()
        .success()
        .unwrap();
    assert_eq!(&answer.body[..], b"0123456789");
    let error = Client::new().send(get(&url).max_body(9)).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 9, .. }), "{error}");
    assert!(error.to_string().starts_with(&url.to_string()), "{error}");
}

#[tokio::test]
async fn an_endless_body_is_stopped_at_the_limit_not_by_memory() {
    let url = serve(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n8\r\n01234567\r\n8\r\n01234567\r\n",
        HOLD,
    )
    .await;
    let error = Client::new()
        .send(get(&url).max_body(20))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn silence_and_a_stalled_body_are_told_apart() {
    let silent = serve(b"", HOLD).await;
    let error = Client::new().send(get(&silent)).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Timeout {
                stage: Stage::Answer,
                ..
            }
        ),
        "{error}"
    );
    let stalled = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123", HOLD).await;
    let error = Client::new().send(get(&stalled)).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Timeout {
                stage: Stage::Body { received: 4 },
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("after 4 bytes"), "{error}");
}

#[tokio::test]
async fn a_body_that_breaks_off_says_after_how_many_bytes() {
    let url = serve(
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123",
        Duration::ZERO,
    )
    .await;
    let error = Client::new().send(get(&url)).await.unwrap_err();
    assert!(
        matches!(error, Error::Broken { received: 4, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn the_words_of_a_go_profiler_reach_the_message() {
    let url = serve(
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain; charset=utf-8\r\nX-Go-Pprof: 1\r\n\
          Content-Length: 61\r\n\r\nCould not enable CPU profiling: cpu profiling already in use\n",
        HOLD,
    )
    .await;
    let error = Client::new()
        .send(get(&url))
        .await
        .unwrap()
        .success()
        .unwrap_err();
    let Error::Status { status, text, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        text,
        "Could not enable CPU profiling: cpu profiling already in use"
    );
}

#[tokio::test]
async fn a_page_that_is_no_profiler_is_shown_by_its_first_bytes() {
    let url = serve(
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\n<html>\xff\n</ht>",
        HOLD,
    )
    .await;
    let error = Client::new()
        .send(get(&url))
        .await
        .unwrap()
        .success()
        .unwrap_err();
    assert!(
        error.to_string().contains(r#""<html>\xff\n</ht>""#),
        "{error}"
    );
}

#[tokio::test]
async fn a_redirect_names_where_to() {
    let url = serve(
        b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
        HOLD,
    )
    .await;
    let error = Client::new()
        .send(get(&url))
        .await
        .unwrap()
        .success()
        .unwrap_err();
    assert!(
        error.to_string().contains("redirects to \"/login\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_closed_port_names_url_cause_and_what_to_try() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("http://{}/x", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let error = Client::new().send(get(&url)).await.unwrap_err().to_string();
    assert!(
        error.contains(&url.to_string()) && error.contains("refused") && error.contains("curl"),
        "{error}"
    );
}
