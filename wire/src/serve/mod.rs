//! The way into a server of ours: connections, heads and streams within limits, TLS by choice.
//!
//! A connection that is slow to say what it wants is closed ([`Edge::head_timeout`]); one that asks for
//! much at once is held to [`Edge::max_streams`]. Bodies are the service's to limit.

mod peek;
#[cfg(feature = "tls")]
pub mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body;
pub use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
pub use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a connection may take.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Edge {
    /// From the connection, or the end of the answer before, to the end of a request's head; also for
    /// a TLS handshake. Default 15 s.
    pub head_timeout: Duration,
    /// Bytes of a request's head. Default 32 KiB.
    pub max_head_bytes: usize,
    /// Connections at a time; more wait in the system's queue. Default 4,096.
    pub max_connections: usize,
    /// Requests at a time on one HTTP/2 connection. Default 64.
    pub max_streams: u32,
    /// How long answers under way may take once the server stops. Default 5 s.
    pub stop_timeout: Duration,
    /// TLS on every connection.
    #[cfg(feature = "tls")]
    pub tls: Option<tls::Tls>,
}

impl Default for Edge {
    fn default() -> Self {
        Edge {
            head_timeout: Duration::from_secs(15),
            max_head_bytes: 32 << 10,
            max_connections: 4096,
            max_streams: 64,
            stop_timeout: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// Who is on the other side; an extension of each request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address of the connection.
    pub address: SocketAddr,
    /// The certificate it showed (DER), checked against the authority that was configured.
    pub certificate: Option<Arc<[u8]>>,
}

/// Answers requests until `stop` is done, then at most [`Edge::stop_timeout`] longer.
pub async fn serve<S, B>(
    listener: TcpListener,
    edge: Edge,
    service: S,
    stop: impl Future<Output = ()>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut stop = pin!(stop);
    let room = Arc::new(Semaphore::new(edge.max_connections));
    let connections = GracefulShutdown::new();
    let edge = Arc::new(edge);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = &mut stop => break,
        };
        let (stream, address, room) = accepted;
        let connection = Connection {
            edge: edge.clone(),
            service: service.clone(),
            watcher: connections.watcher(),
            _room: room,
        };
        tokio::spawn(connection.run(stream, address));
    }
    drop(listener);
    let _ = tokio::time::timeout(edge.stop_timeout, connections.shutdown()).await;
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
    // Closed by nobody: there is always a permit in the end.
    let permit = room.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (stream, address, permit),
            // Out of files, or the peer has gone again: others may end meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

struct Connection<S> {
    edge: Arc<Edge>,
    service: S,
    watcher: Watcher,
    _room: Option<OwnedSemaphorePermit>,
}

impl<S, B> Connection<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn run(self, stream: TcpStream, address: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let peer = Peer {
            address,
            certificate: None,
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.edge.tls {
            let shaken = tokio::time::timeout(self.edge.head_timeout, tls.accept(stream)).await;
            if let Ok(Ok((stream, is_http2, certificate))) = shaken {
                let peer = Peer {
                    certificate,
                    ..peer
                };
                self.speak(stream, is_http2, peer).await;
            }
            return;
        }
        let first = peek::is_http2(&stream);
        if let Ok(Ok(is_http2)) = tokio::time::timeout(self.edge.head_timeout, first).await {
            self.speak(stream, is_http2, peer).await;
        }
    }

    async fn speak<I>(self, io: I, is_http2: bool, peer: Peer)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = WithPeer {
            inner: self.service,
            peer,
        };
        let io = TokioIo::new(io);
        // An error is the peer's: it left, or broke the protocol. It has its answer already.
        if is_http2 {
            let connection = two(&self.edge).serve_connection(io, service);
            let _ = self.watcher.watch(connection).await;
        } else {
            let connection = one(&self.edge).serve_connection(io, service);
            let _ = self.watcher.watch(connection).await;
        }
    }
}

fn one(edge: &Edge) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(edge.head_timeout)
        .max_buf_size(edge.max_head_bytes.max(8 << 10));
    builder
}

fn two(edge: &Edge) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(edge.max_streams)
        .max_header_list_size(u32::try_from(edge.max_head_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(2 << 20)
        .keep_alive_interval(edge.head_timeout)
        .keep_alive_timeout(edge.head_timeout);
    builder
}

/// Tells the service whom it answers.
#[derive(Clone)]
struct WithPeer<S> {
    inner: S,
    peer: Peer,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for WithPeer<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.inner.call(request)
    }
}
