//! `/debug/pprof/` as a hyper service, behind the feature `hyper`.
//!
//! ```no_run
//! # async fn routes(request: hyper::Request<hyper::body::Incoming>) -> Result<(), std::convert::Infallible> {
//! if request.uri().path().starts_with("/debug/pprof/") {
//!     let response = pilotlight::hyper::handle(request).await?;
//! #   let _ = response;
//! }
//! # Ok(()) }
//! ```
//!
//! Each request runs on a thread of its own: a capture waits for seconds and names are resolved from
//! files, and an async worker can do neither.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use ::hyper::http::HeaderValue;

use crate::http::{Body, MAX_BODY, Request, Response, respond};

/// Threads at once; more requests are answered 503.
const MAX_WORKERS: usize = 64;

/// Symbol tables and demangling recurse; pages that are not touched cost nothing.
const STACK: usize = 1 << 20;

static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// Answers one request, as [`crate::http::respond`] does.
///
/// # Errors
/// None: a body that cannot be read is answered 400, an oversized one 413, and 503 says that too
/// many requests run already or that no thread could be started.
pub async fn handle<B: HttpBody>(
    request: ::hyper::Request<B>,
) -> Result<::hyper::Response<ResponseBody>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = match collect(body).await {
        Ok(body) => body,
        Err(status) => return Ok(into_hyper(Head::plain(status), None)),
    };
    let exchange = Arc::new(Exchange::default());
    let Some(worker) = Worker::new(&exchange) else {
        return Ok(into_hyper(Head::plain(503), None));
    };
    let thread = std::thread::Builder::new()
        .name("pilotlight-http".into())
        .stack_size(STACK)
        .spawn(move || {
            crate::engine::note_own_thread();
            let query = parts.uri.query().unwrap_or_default();
            let header = |name| {
                parts
                    .headers
                    .get(name)
                    .and_then(|value| value.to_str().ok())
            };
            let request = Request::new(parts.method.as_str(), parts.uri.path(), query)
                .with_origin(header("origin"), header("host"));
            worker.run(respond(&request.with_body(&body)));
        });
    // The guard ends the capture should this future be dropped before the head is there.
    let body = ResponseBody { exchange };
    Ok(match thread {
        Ok(_) => {
            let head = poll_fn(|context| body.exchange.poll_head(context)).await;
            into_hyper(head, Some(body))
        }
        Err(_) => into_hyper(Head::plain(503), None),
    })
}

/// The whole body, or the status that refuses it.
async fn collect<B: HttpBody>(body: B) -> Result<Vec<u8>, u16> {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(data) = frame.map_err(|_| 400_u16)?.into_data() else {
            continue;
        };
        let mut data = data;
        while ::hyper::body::Buf::has_remaining(&data) {
            let chunk = ::hyper::body::Buf::chunk(&data);
            bytes.extend_from_slice(chunk);
            let length = chunk.len();
            ::hyper::body::Buf::advance(&mut data, length);
        }
        if bytes.len() > MAX_BODY {
            return Err(413);
        }
    }
    Ok(bytes)
}

/// Status and headers of a response.
struct Head {
    status: u16,
    headers: Vec<(&'static str, String)>,
}

impl Head {
    fn plain(status: u16) -> Self {
        Head {
            status,
            headers: Vec::new(),
        }
    }
}

fn into_hyper(head: Head, body: Option<ResponseBody>) -> ::hyper::Response<ResponseBody> {
    let mut response = ::hyper::Response::new(body.unwrap_or_default());
    // Statuses and headers are ours, so neither conversion fails.
    *response.status_mut() = head.status.try_into().unwrap_or_default();
    for (name, value) in head.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Between the thread that answers and the task that sends.
#[derive(Debug, Default)]
struct Exchange {
    state: Mutex<State>,
    /// Told when the receiver is gone.
    gone: Condvar,
}

#[derive(Default)]
struct State {
    head: Option<Head>,
    chunks: VecDeque<Vec<u8>>,
    progress: Progress,
    receiver_gone: bool,
    waker: Option<Waker>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Progress {
    #[default]
    Running,
    Complete,
    /// The thread ended before the body did.
    Broken,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("waiting_chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

impl Exchange {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the receiving task.
    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sleeps; false as soon as nobody reads any more.
    fn wait(&self, time: Duration) -> bool {
        let state = self.state();
        let (state, _) = self
            .gone
            .wait_timeout_while(state, time, |state| !state.receiver_gone)
            .unwrap_or_else(PoisonError::into_inner);
        !state.receiver_gone
    }

    fn poll_head(&self, context: &mut Context<'_>) -> Poll<Head> {
        let mut state = self.state();
        if let Some(head) = state.head.take() {
            return Poll::Ready(head);
        }
        if state.progress == Progress::Broken {
            state.progress = Progress::Complete;
            return Poll::Ready(Head::plain(500));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_chunk(&self, context: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        let mut state = self.state();
        if let Some(chunk) = state.chunks.pop_front() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        match state.progress {
            Progress::Complete => Poll::Ready(None),
            Progress::Broken => {
                state.progress = Progress::Complete;
                Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
            }
            Progress::Running => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The thread's end. Dropped without completing (a panic), it breaks the body off.
struct Worker(Arc<Exchange>);

impl Worker {
    fn new(exchange: &Arc<Exchange>) -> Option<Self> {
        let more = |n| (n < MAX_WORKERS).then_some(n + 1);
        WORKERS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Worker(Arc::clone(exchange)))
    }

    fn run(&self, response: Response) {
        let Response {
            status,
            headers,
            mut body,
        } = response;
        self.0
            .update(|state| state.head = Some(Head { status, headers }));
        match &mut body {
            Body::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0.update(|state| state.chunks.push_back(bytes));
            }
            Body::Stream(capture) => {
                while let Some(chunk) = capture.next_chunk(|time| self.0.wait(time)) {
                    self.0.update(|state| state.chunks.push_back(chunk));
                }
                if capture.has_failed() {
                    // Dropped as it is, it breaks the body off.
                    return;
                }
            }
        }
        self.0.update(|state| state.progress = Progress::Complete);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        WORKERS.fetch_sub(1, Ordering::Relaxed);
        self.0.update(|state| {
            if state.progress == Progress::Running {
                state.progress = Progress::Broken;
            }
        });
    }
}

/// Body of a response; dropping it ends the capture behind it.
#[derive(Debug)]
pub struct ResponseBody {
    exchange: Arc<Exchange>,
}

impl Default for ResponseBody {
    /// An empty body.
    fn default() -> Self {
        let exchange = Exchange::default();
        exchange.update(|state| state.progress = Progress::Complete);
        ResponseBody {
            exchange: Arc::new(exchange),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.exchange.state().receiver_gone = true;
        self.exchange.gone.notify_all();
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = self.exchange.poll_chunk(context);
        chunk.map(|chunk| chunk.map(|bytes| bytes.map(|bytes| Frame::data(bytes.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.exchange.state();
        match state.progress {
            Progress::Complete => {
                SizeHint::with_exact(state.chunks.iter().map(|chunk| chunk.len() as u64).sum())
            }
            _ => SizeHint::default(),
        }
    }
}
