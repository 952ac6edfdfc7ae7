//! HTTP/1 or HTTP/2, by the first bytes; nothing is taken from the connection.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use tokio::net::TcpStream;

/// RFC 9113 §3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Waits until the bytes decide; the caller limits the time.
pub(super) async fn is_http2(stream: &TcpStream) -> Result<bool, Error> {
    let mut seen = [0; PREFACE.len()];
    loop {
        let length = stream.peek(&mut seen).await?;
        let (Some(said), Some(expected)) = (seen.get(..length), PREFACE.get(..length)) else {
            return Ok(false);
        };
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if said != expected || length == PREFACE.len() {
            return Ok(said == expected);
        }
        // There is no event for "more than before".
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
