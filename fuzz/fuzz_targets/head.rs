//! Any bytes to a server, as one connection: it answers or closes, within the limits of a head.
//! And any text as a URL.

#![no_main]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pilotlight_wire::serve::{Edge, Incoming, serve, service_fn};
use pilotlight_wire::{Bytes, Url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

const MAX_HEAD: usize = 8 << 10;

fuzz_target!(|data: &[u8]| {
    if let Ok(url) = str::from_utf8(data).map(Url::parse)
        && let Ok(url) = url
    {
        assert_eq!(Url::parse(&url.to_string()).ok(), Some(url));
    }
    let (runtime, address) = server();
    runtime.block_on(async {
        let answered = tokio::time::timeout(Duration::from_secs(20), talk(*address, data));
        answered.await.expect("the server answers or closes");
    });
});

async fn talk(address: SocketAddr, data: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return;
    };
    // No port waits for late packets.
    let _ = stream.set_zero_linger();
    // It may close before it has all.
    let _ = stream.write_all(data).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
}

fn server() -> &'static (Runtime, SocketAddr) {
    static SERVER: OnceLock<(Runtime, SocketAddr)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut edge = Edge::default();
        edge.max_head_bytes = MAX_HEAD;
        edge.head_timeout = Duration::from_millis(20);
        let service = service_fn(|request: http::Request<Incoming>| async move {
            let fields = request.headers().iter();
            let bytes: usize = fields
                .map(|(name, value)| name.as_str().len() + value.len())
                .sum();
            assert!(bytes <= MAX_HEAD + 1024, "a head of {bytes} bytes");
            Ok::<_, Infallible>(http::Response::new(http_body_util::Full::new(Bytes::new())))
        });
        runtime.spawn(serve(listener, edge, service, std::future::pending()));
        (runtime, address)
    })
}
