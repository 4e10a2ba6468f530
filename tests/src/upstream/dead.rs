//! Upstreams that do not answer at all.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A bound port without a listener: it refuses connections.
#[derive(Debug)]
pub struct ClosedPort(TcpSocket);

impl ClosedPort {
    /// Binds the port.
    pub fn new() -> Self {
        Self(bound())
    }

    /// URL of the port.
    pub fn url(&self) -> String {
        url(self.0.local_addr())
    }

    pub(super) fn listen(self) -> TcpListener {
        self.0.listen(1024).expect("a bound socket can listen")
    }
}

impl Default for ClosedPort {
    fn default() -> Self {
        Self::new()
    }
}

/// A port whose accept queue is full: a connection attempt neither succeeds nor fails.
#[derive(Debug)]
pub struct FullAcceptQueue {
    listener: TcpListener,
    _fillers: Vec<TcpStream>,
}

impl FullAcceptQueue {
    /// Binds the port and fills its accept queue.
    pub async fn new() -> Self {
        let socket = bound();
        let listener = socket.listen(1).expect("a bound socket can listen");
        let address = listener.local_addr().expect("a bound listener has an address");
        let mut fillers = Vec::new();
        // Linux completes backlog + 1 connections without an accept, and drops later SYNs.
        for _ in 0..2 {
            fillers.push(TcpStream::connect(address).await.expect("the queue still has room"));
        }
        Self { listener, _fillers: fillers }
    }

    /// URL of the port.
    pub fn url(&self) -> String {
        url(self.listener.local_addr())
    }
}

fn bound() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("sockets are to be had");
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback has a free port");
    socket
}

fn url(address: std::io::Result<SocketAddr>) -> String {
    format!("http://{}", address.expect("a bound socket has an address"))
}
