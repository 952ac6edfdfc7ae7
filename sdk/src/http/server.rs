//! The listener: one thread that accepts, one thread per connection, nothing asynchronous.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Options, connection};

/// Symbol tables and demangling recurse; pages that are not touched cost nothing.
const CONNECTION_STACK: usize = 1 << 20;

/// How long a stop waits for connections to end after they were shut down.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A running server. Dropping it closes the listener and all connections, captures included.
#[derive(Debug)]
pub struct ServerHandle {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Dropped to wake the accepting thread.
    wake: Option<UnixStream>,
    acceptor: Option<JoinHandle<()>>,
    process: u32,
}

#[derive(Debug)]
struct Shared {
    options: Options,
    open: Mutex<Open>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Open {
    next_id: u64,
    /// Second handles to the sockets, to shut them down from outside.
    connections: Vec<(u64, TcpStream)>,
}

/// Serves `/debug/pprof/` with the default limits.
pub(crate) fn serve(listener: TcpListener) -> io::Result<ServerHandle> {
    serve_with(listener, Options::default())
}

/// Serves `/debug/pprof/` on `listener`, on threads of its own, until the handle is dropped.
///
/// Whoever can connect can read the command line and make the process sample itself: keep the
/// listener on loopback unless the network is trusted.
///
/// # Errors
/// When the listener has no address, or a thread or a socket pair cannot be made.
pub fn serve_with(listener: TcpListener, options: Options) -> io::Result<ServerHandle> {
    let address = listener.local_addr()?;
    let (wake, woken) = UnixStream::pair()?;
    // A connection that is reset between poll and accept must not block the thread.
    listener.set_nonblocking(true)?;
    let shared = Arc::new(Shared {
        options,
        open: Mutex::default(),
        changed: Condvar::new(),
    });
    let acceptor = {
        let shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("pilotlight-http".into())
            .spawn(move || {
                crate::engine::note_own_thread();
                accept_until_woken(&listener, &woken, &shared);
            })?
    };
    Ok(ServerHandle {
        address,
        shared,
        wake: Some(wake),
        acceptor: Some(acceptor),
        process: std::process::id(),
    })
}

impl ServerHandle {
    /// Where the server listens; the port is the real one when port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a forked child: thread, locks and connections are the parent's.
            std::mem::forget(self.acceptor.take());
            return;
        }
        drop(self.wake.take());
        if let Some(acceptor) = self.acceptor.take() {
            // An acceptor that panicked has nothing left to stop.
            let _ = acceptor.join();
        }
        self.shared.close_all();
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_all(&self) {
        let open = self.open();
        for (_, stream) in &open.connections {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = self
            .changed
            .wait_timeout_while(open, STOP_PATIENCE, |open| !open.connections.is_empty());
    }
}

fn accept_until_woken(listener: &TcpListener, woken: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let mut polls = [listener.as_raw_fd(), woken.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: `polls` is an array of two valid pollfds that outlives the call.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
        if polls[1].revents != 0 {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => admit(stream, shared),
            Err(error) if is_transient(&error) => {}
            // Out of descriptors or memory: the connection stays queued, so do not spin on it.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | Interrupted | ConnectionAborted | ConnectionReset
    )
}

/// Gives the connection a thread, or refuses it.
fn admit(stream: TcpStream, shared: &Arc<Shared>) {
    let Some(registration) = Registration::new(&stream, shared) else {
        refuse(stream);
        return;
    };
    // On failure the closure is dropped, and with it the connection and its registration.
    let _ = std::thread::Builder::new()
        .name("pilotlight-http".into())
        .stack_size(CONNECTION_STACK)
        .spawn(move || {
            crate::engine::note_own_thread();
            connection::serve(stream, &registration.shared.options);
        });
}

/// Best effort and without waiting, for the accepting thread must go on.
fn refuse(mut stream: TcpStream) {
    const TEXT: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
        X-Go-Pprof: 1\r\nConnection: close\r\nContent-Length: 30\r\n\r\ntoo many profiling connections";
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(TEXT.as_bytes());
    let _ = stream.shutdown(Shutdown::Write);
}

/// An entry in the list of open connections, for as long as it lives.
struct Registration {
    id: u64,
    shared: Arc<Shared>,
}

impl Registration {
    fn new(stream: &TcpStream, shared: &Arc<Shared>) -> Option<Self> {
        stream.set_nonblocking(false).ok()?;
        let handle = stream.try_clone().ok()?;
        let mut open = shared.open();
        if open.connections.len() >= shared.options.max_connections {
            return None;
        }
        open.next_id += 1;
        let id = open.next_id;
        open.connections.push((id, handle));
        drop(open);
        Some(Registration {
            id,
            shared: Arc::clone(shared),
        })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared
            .open()
            .connections
            .retain(|(id, _)| *id != self.id);
        self.shared.changed.notify_all();
    }
}
