//! Upstreams that do not answer at all.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A port that is taken but on which nobody listens: connecting is refused.
#[derive(Debug)]
pub struct ClosedPort(TcpSocket);

impl ClosedPort {
    /// Takes the port.
    pub fn new() -> Self {
        Self(bound())
    }

    /// Its URL.
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

/// A port whose accept queue is full: connecting neither succeeds nor fails.
#[derive(Debug)]
pub struct FullAcceptQueue {
    listener: TcpListener,
    _fillers: Vec<TcpStream>,
}

impl FullAcceptQueue {
    /// Takes the port and fills its queue.
    pub async fn new() -> Self {
        let socket = bound();
        let listener = socket.listen(1).expect("a bound socket can listen");
        let address = listener.local_addr().expect("a bound listener has an address");
        let mut fillers = Vec::new();
        // Linux completes backlog + 1 connections that nobody accepts, and drops later SYNs.
        for _ in 0..2 {
            fillers.push(TcpStream::connect(address).await.expect("the queue still has room"));
        }
        Self { listener, _fillers: fillers }
    }

    /// Its URL.
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
