//! The upstream's sockets: accept, read requests, play scripts.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use nix::sys::socket::Shutdown;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::{Choose, Hook, ReceivedRequest, Step};
use crate::board::SharedState;
use crate::http1::{Body, take_head};

/// Everything that an upstream has received and sent.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) requests: Vec<ReceivedRequest>,
    /// Number of requests that `received()` has returned.
    pub(super) returned: usize,
    pub(super) begun: usize,
    /// One entry for each connection: true once it has ended.
    pub(super) closed: Vec<bool>,
    pub(super) sent: u64,
    /// Reason for the test to fail: a malformed request, or a closure of the test that panicked.
    pub(super) fault: Option<String>,
}

pub(super) struct Serving {
    pub(super) choose: Choose,
    pub(super) on_accept: Hook,
    pub(super) on_request: Hook,
    pub(super) board: Arc<SharedState<State>>,
}

#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
        }
    }
}

/// Accepts connections until it is aborted; they end with it.
pub(super) async fn accept(listener: Listener, serving: Arc<Serving>) {
    let mut connections = JoinSet::new();
    loop {
        // Both arms are cancel-safe: accept and join_next lose nothing when dropped.
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(socket) => {
                    let number = serving.board.update(|state| {
                        state.closed.push(false);
                        state.closed.len() - 1
                    });
                    connections.spawn(connection(socket, number, serving.clone()));
                }
                Err(error) => serving.board.update(|state| state.fault = Some(format!("upstream accept: {error}"))),
            },
            Some(ended) = connections.join_next() => if let Err(error) = ended && error.is_panic() {
                let panic = error.into_panic();
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let text = format!("a closure of the scripted upstream panicked: {}", text.unwrap_or_default());
                serving.board.update(|state| state.fault = Some(text));
            },
        }
    }
}

async fn connection(socket: Socket, number: usize, serving: Arc<Serving>) {
    (serving.on_accept)(number);
    let (requests, pending) = unbounded_channel();
    // The connection ends when the peer has left, or when the script has dropped it.
    tokio::select! {
        read = read(&socket, number, &serving, &requests) => if let Err(fault) = read {
            serving.board.update(|state| state.fault = Some(format!("malformed request to the upstream: {fault}")));
        },
        () = answer(&socket, &serving, pending) => {}
    }
    drop(socket);
    serving.board.update(|state| state.closed[number] = true);
}

/// Reads and records requests until the peer closes. A malformed request is an error.
async fn read(
    socket: &Socket,
    connection: usize,
    serving: &Serving,
    requests: &UnboundedSender<ReceivedRequest>,
) -> Result<(), String> {
    let mut buffer = BytesMut::new();
    loop {
        if buffer.is_empty() && !socket.read(&mut buffer).await {
            return Ok(());
        }
        (serving.on_request)(connection);
        serving.board.update(|state| state.begun += 1);
        let head = loop {
            match take_head(&mut buffer)? {
                Some(head) => break head,
                None if !socket.read(&mut buffer).await => return Ok(()),
                None => {}
            }
        };
        let parts: Vec<&str> = head.first.split(' ').collect();
        let [method, target, "HTTP/1.1"] = parts[..] else {
            return Err(format!("request line {:?}", head.first));
        };
        let (method, target) = (method.to_owned(), target.to_owned());
        let mut framing = Body::of_request(&head.headers)?;
        let mut body = Vec::new();
        while !framing.take(&mut buffer, &mut body)? {
            if !socket.read(&mut buffer).await {
                return Ok(());
            }
        }
        let received = ReceivedRequest { connection, method, target, headers: head.headers, head: head.raw, body };
        serving.board.update(|state| state.requests.push(received.clone()));
        if requests.send(received).is_err() {
            return Ok(());
        }
    }
}

/// Plays the scripts of the requests in order; returns when the connection must be dropped.
async fn answer(socket: &Socket, serving: &Serving, mut pending: UnboundedReceiver<ReceivedRequest>) {
    while let Some(request) = pending.recv().await {
        for step in (serving.choose)(&request).shape(&request).render() {
            if !play(step, socket, &serving.board).await {
                return;
            }
        }
    }
}

/// Returns false when the connection must be dropped.
async fn play(step: Step, socket: &Socket, board: &SharedState<State>) -> bool {
    match step {
        Step::Send(bytes) => socket.write(&bytes, board).await,
        Step::Trickle(bytes) => {
            for byte in bytes.chunks(1) {
                if !socket.write(byte, board).await {
                    return false;
                }
                tokio::task::yield_now().await;
            }
            true
        }
        Step::Hold(gate) => {
            gate.pass().await;
            true
        }
        Step::Flood(bytes, copies) => flood(&bytes, copies, socket, board).await,
        Step::Close => {
            socket.finish();
            std::future::pending().await
        }
        Step::Reset => {
            socket.linger_zero();
            false
        }
        Step::Never => std::future::pending().await,
    }
}

async fn flood(bytes: &Bytes, copies: usize, socket: &Socket, board: &SharedState<State>) -> bool {
    // Small copies are written in blocks of 64 KiB; else a flood would measure the test kit.
    let batch = (65_536 / bytes.len().max(1)).clamp(1, copies.max(1));
    let block = bytes.repeat(batch);
    let mut left = copies;
    while left > 0 {
        let now = batch.min(left);
        if !socket.write(&block[..now * bytes.len()], board).await {
            return false;
        }
        left -= now;
    }
    true
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Returns false at the end of the connection, orderly or not.
    async fn read(&self, buffer: &mut BytesMut) -> bool {
        buffer.reserve(65_536);
        loop {
            let (ready, read) = match self {
                Self::Tcp(stream) => (stream.readable().await, stream.try_read_buf(buffer)),
                Self::Unix(stream) => (stream.readable().await, stream.try_read_buf(buffer)),
            };
            match (ready, read) {
                (Ok(()), Ok(count)) => return count > 0,
                (Ok(()), Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return false,
            }
        }
    }

    /// Returns false when the peer no longer reads.
    async fn write(&self, mut bytes: &[u8], board: &SharedState<State>) -> bool {
        while !bytes.is_empty() {
            let (ready, wrote) = match self {
                Self::Tcp(stream) => (stream.writable().await, stream.try_write(bytes)),
                Self::Unix(stream) => (stream.writable().await, stream.try_write(bytes)),
            };
            match (ready, wrote) {
                (Ok(()), Ok(count)) => {
                    board.update(|state| state.sent += count as u64);
                    bytes = &bytes[count..];
                }
                (Ok(()), Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return false,
            }
        }
        // A flood must not starve the other tasks of a current-thread test.
        tokio::task::coop::consume_budget().await;
        true
    }

    /// Sends FIN. The descriptor stays open for reading.
    fn finish(&self) {
        let fd = match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        };
        // An error means that the peer closed first.
        let _ = nix::sys::socket::shutdown(fd.as_raw_fd(), Shutdown::Write);
    }

    fn linger_zero(&self) {
        if let Self::Tcp(stream) = self {
            stream.set_zero_linger().expect("a TCP socket takes SO_LINGER");
        }
    }
}
