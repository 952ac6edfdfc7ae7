//! One request, one deadline, one byte limit.

use crate::error::chain;
use crate::guard::{Guard, GuardedResolver, RefusedAddresses};
#[cfg(feature = "client-tls")]
use crate::secure::Secure;
use crate::{Authorization, Error, Stage, Url, first_bytes};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Legacy, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Default byte limit of a body.
const MAX_BODY: u64 = 64 << 20;
/// Default time for a request as a whole.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A bad answer's body is only read for its message.
const MAX_MESSAGE: u64 = 16 << 10;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    timeout: Duration,
    max_body: u64,
}

impl Call {
    /// A GET.
    pub fn get(url: Url) -> Self {
        Self::new(Method::GET, url, Bytes::new())
    }

    /// A POST with this body; cloning the call does not copy it.
    pub fn post(url: Url, body: Bytes) -> Self {
        Self::new(Method::POST, url, body)
    }

    fn new(method: Method, url: Url, body: Bytes) -> Self {
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            body,
            timeout: TIMEOUT,
            max_body: MAX_BODY,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }

    /// Adds the header `Authorization`.
    ///
    /// # Errors
    /// [`Error::Credentials`].
    pub fn authorized(mut self, authorization: &Authorization) -> Result<Self, Error> {
        let header = authorization
            .header()
            .map_err(|reason| Error::Credentials {
                url: self.url.to_string(),
                reason,
            })?;
        self.headers.insert(http::header::AUTHORIZATION, header);
        Ok(self)
    }

    /// Time from the first byte sent to the last byte of the answer. Default 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The answer fails when its body has more bytes. Default 64 MiB.
    #[must_use]
    pub fn max_body(mut self, bytes: u64) -> Self {
        self.max_body = bytes;
        self
    }
}

/// What came back, whatever its status.
#[derive(Debug)]
pub struct Answer {
    /// What was asked for.
    pub url: Url,
    /// The status line's number.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body; of other statuses than 200 at most the first 16 KiB.
    pub body: Bytes,
}

impl Answer {
    /// Only 200 passes, as in Prometheus and `go tool pprof`.
    ///
    /// # Errors
    /// [`Error::Status`] with the profiler's own text where the target marked it with `X-Go-Pprof`.
    pub fn success(self) -> Result<Self, Error> {
        if self.status == StatusCode::OK {
            return Ok(self);
        }
        Err(Error::Status {
            url: self.url.to_string(),
            status: self.status,
            text: self.message(),
        })
    }

    fn message(&self) -> String {
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        if self.status.is_redirection() {
            return format!(
                "redirects to {:?}; name that address in the configuration",
                header("location").unwrap_or("?")
            );
        }
        let plain = header("content-type").is_some_and(|kind| kind.contains("text/plain"));
        if header("x-go-pprof").is_some() && plain {
            return String::from_utf8_lossy(&self.body)
                .trim()
                .chars()
                .take(512)
                .collect();
        }
        format!("the body begins with {}", first_bytes(&self.body))
    }
}

/// A pooled HTTP/1.1 client; clones share the pool.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Legacy<Connector, Full<Bytes>>,
    #[cfg(feature = "client-tls")]
    secure: Secure,
    guard: Guard,
    authorization: Option<Authorization>,
}

/// Connects where the guard allows it.
pub(crate) type Connector = HttpConnector<GuardedResolver>;

/// A connector as all clients of ours have it.
pub(crate) fn connector(guard: &Guard) -> Connector {
    let mut connector = HttpConnector::new_with_resolver(GuardedResolver::new(guard.clone()));
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(Duration::from_secs(10)));
    connector
}

/// A pool over a connector.
pub(crate) fn pool<C>(connector: C) -> Legacy<C, Full<Bytes>>
where
    C: hyper_util::client::legacy::connect::Connect + Clone,
{
    Legacy::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .pool_max_idle_per_host(2)
        .build(connector)
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// Needs no runtime yet; [`Client::send`] needs tokio's.
    pub fn new() -> Self {
        Self {
            inner: pool(connector(&Guard::default())),
            #[cfg(feature = "client-tls")]
            secure: Secure::default(),
            guard: Guard::default(),
            authorization: None,
        }
    }

    /// Checks servers as `tls` says, instead of by the system's authorities. The files are read at the
    /// first `https` call, and again when they change.
    #[cfg(feature = "client-tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: crate::TlsClient) -> Self {
        self.secure = Secure::new(tls, self.guard.clone());
        self
    }

    /// Connects only to addresses that `guard` allows: [`Error::Refused`] says so of others.
    #[must_use]
    pub fn guarded(mut self, guard: Guard) -> Self {
        self.inner = pool(connector(&guard));
        #[cfg(feature = "client-tls")]
        {
            self.secure = self.secure.guarded(guard.clone());
        }
        self.guard = guard;
        self
    }

    /// Shows this with each call: for a client that speaks to one server.
    #[must_use]
    pub fn authorized(mut self, authorization: Option<Authorization>) -> Self {
        self.authorization = authorization;
        self
    }

    /// Sends and reads the whole answer.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Refused`], [`Error::Timeout`], [`Error::TooLarge`] or [`Error::Broken`]; a bad
    /// status is no error here (see [`Answer::success`]).
    pub async fn send(&self, call: Call) -> Result<Answer, Error> {
        let mut opened = self.open(call).await?;
        let mut body = BytesMut::new();
        if opened.status == StatusCode::OK {
            while let Some(piece) = opened.next().await? {
                body.extend_from_slice(&piece);
            }
        } else {
            body = opened.message().await;
        }
        Ok(Answer {
            url: opened.call.url,
            status: opened.status,
            headers: opened.headers,
            body: body.freeze(),
        })
    }

    /// Sends; the answer's body is for the caller to read piece by piece, within the call's limits.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Refused`] or [`Error::Timeout`].
    pub async fn open(&self, mut call: Call) -> Result<Opened, Error> {
        if let Some(authorization) = &self.authorization {
            call = call.authorized(authorization)?;
        }
        let refused = |refused: &RefusedAddresses| Error::Refused {
            url: call.url.to_string(),
            addresses: refused.to_string(),
        };
        let checked = self.guard.check_host(call.url.host());
        checked.map_err(|error| refused(&error))?;
        let deadline = Instant::now() + call.timeout;
        let response = match timeout_at(deadline, self.request(&call)?).await {
            Err(_) => return Err(late(&call, Stage::Answer)),
            Ok(Err(error)) => {
                return Err(match RefusedAddresses::within(&error) {
                    Some(error) => refused(error),
                    None => Error::Connect {
                        url: call.url.to_string(),
                        reason: chain(&error),
                    },
                });
            }
            Ok(Ok(response)) => response,
        };
        let (head, body) = response.into_parts();
        Ok(Opened {
            status: head.status,
            headers: head.headers,
            body,
            call,
            deadline,
            received: 0,
        })
    }
}

fn late(call: &Call, stage: Stage) -> Error {
    Error::Timeout {
        url: call.url.to_string(),
        after: call.timeout,
        stage,
    }
}

impl Client {
    #[cfg(feature = "client-tls")]
    fn request(&self, call: &Call) -> Result<ResponseFuture, Error> {
        let request = request(call)?;
        if !call.url.is_secure() {
            return Ok(self.inner.request(request));
        }
        let pool = self.secure.pool().map_err(|reason| Error::Tls {
            url: call.url.to_string(),
            reason,
        })?;
        Ok(pool.request(request))
    }

    #[cfg(not(feature = "client-tls"))]
    fn request(&self, call: &Call) -> Result<ResponseFuture, Error> {
        Ok(self.inner.request(request(call)?))
    }
}

fn request(call: &Call) -> Result<Request<Full<Bytes>>, Error> {
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(call.url.to_string())
        .body(Full::new(call.body.clone()))
        .map_err(|error| Error::BadUrl {
            url: call.url.to_string(),
            reason: error.to_string(),
        })?;
    *request.headers_mut() = call.headers.clone();
    let agent = HeaderValue::from_static(concat!("pilotlight/", env!("CARGO_PKG_VERSION")));
    request
        .headers_mut()
        .insert(http::header::USER_AGENT, agent);
    Ok(request)
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub struct Opened {
    /// The status line's number.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    body: Incoming,
    call: Call,
    deadline: Instant,
    received: u64,
}

impl Opened {
    /// The next bytes, `None` at the end. Memory follows what arrived, never what a header or trailer
    /// promises.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::TooLarge`] (at once, when the length says so) or [`Error::Broken`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.received.saturating_add(self.body.size_hint().lower()) > self.call.max_body {
            return Err(self.too_large());
        }
        loop {
            let frame = timeout_at(self.deadline, self.body.frame()).await;
            let received = self.received;
            let frame = frame.map_err(|_| late(&self.call, Stage::Body { received }))?;
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| Error::Broken {
                url: self.call.url.to_string(),
                received,
                reason: chain(&error),
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.received += data.len() as u64;
            if self.received > self.call.max_body {
                return Err(self.too_large());
            }
            return Ok(Some(data));
        }
    }

    fn too_large(&self) -> Error {
        Error::TooLarge {
            url: self.call.url.to_string(),
            limit: self.call.max_body,
        }
    }

    /// The beginning of a bad answer's body. The status is the news: a late or broken message does
    /// not replace it.
    async fn message(&mut self) -> BytesMut {
        let read = timeout_at(self.deadline, read_message(&mut self.body));
        read.await.unwrap_or_default()
    }
}

async fn read_message(body: &mut Incoming) -> BytesMut {
    let mut out = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let room = (MAX_MESSAGE as usize).saturating_sub(out.len());
        out.extend_from_slice(data.get(..room).unwrap_or(&data));
        if out.len() >= MAX_MESSAGE as usize {
            break;
        }
    }
    out
}
