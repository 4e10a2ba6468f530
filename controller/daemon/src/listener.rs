//! A listener of the daemon: it accepts connections until the daemon stops, and then waits until the open ones end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access::RemotePeer;
use crate::connection::serve;
use crate::connection_count::{ConnectionCount, CountedConnection};
use crate::front::RequestFront;
use crate::stop_signal::StopSignal;
use crate::unix_socket::DaemonSocket;

/// A bound listener.
pub(crate) enum DaemonListener {
    /// A unix socket.
    Unix(DaemonSocket),
    /// TCP, with or without TLS.
    Tcp(TcpListener, Option<TlsAcceptor>),
}

/// An accepted connection.
enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr),
}

/// Pause after a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

impl DaemonListener {
    /// Accepts connections until the stop, and then waits until the open ones end.
    pub(crate) async fn run(self, front: Arc<RequestFront>, count: Arc<ConnectionCount>, mut stop: StopSignal) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.stopped() => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => self.begin(accepted, &front, &count, &stop, &mut connections),
                Err(error) => {
                    (front.context().log)(&format!("cannot accept a connection: {error}"));
                    sleep(PAUSE).await;
                }
            }
        }
        // New clients are refused while the last requests are finished.
        drop(self);
        while connections.join_next().await.is_some() {}
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Unix(socket) => socket.listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
            Self::Tcp(listener, _) => listener.accept().await.map(|(stream, address)| Accepted::Tcp(stream, address)),
        }
    }

    fn begin(
        &self,
        accepted: Accepted,
        front: &Arc<RequestFront>,
        count: &Arc<ConnectionCount>,
        stop: &StopSignal,
        connections: &mut JoinSet<()>,
    ) {
        let (front, stop) = (Arc::clone(front), stop.clone());
        match accepted {
            Accepted::Unix(stream) => {
                // A peer whose uid is unknown is never root.
                let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
                let Some(counted) = count.admit(None) else { return };
                let served = serve(stream, RemotePeer { uid, ..RemotePeer::default() }, None, front, stop);
                connections.spawn(with(counted, served));
            }
            Accepted::Tcp(stream, address) => {
                let Some(counted) = count.admit(Some(address.ip())) else { return };
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr().ok();
                let peer = RemotePeer { uid: None, address: Some(address.ip()), end: Some(address) };
                match self {
                    Self::Tcp(_, Some(tls)) => {
                        let handshake = timeout(front.context().limits.handshake_time, tls.accept(stream));
                        connections.spawn(with(counted, async move {
                            // A client without TLS, or one that is too slow, is dropped.
                            if let Ok(Ok(stream)) = handshake.await {
                                serve(stream, peer, local, front, stop).await;
                            }
                        }));
                    }
                    _ => drop(connections.spawn(with(counted, serve(stream, peer, local, front, stop)))),
                }
            }
        }
    }
}

/// Counts a connection as long as it is served.
async fn with(counted: CountedConnection, served: impl Future<Output = ()>) {
    served.await;
    drop(counted);
}
