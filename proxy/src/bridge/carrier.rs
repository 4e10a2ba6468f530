//! Connections from `localhost` to the sidecar's socket.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::{BridgeError, SIDECAR_WITHIN};

/// Maximum number of connections at once; later ones wait in the kernel's queue. Each needs two descriptors.
const CONNECTIONS: usize = 512;
/// Size of a buffer for one direction of a connection.
const BUFFER: usize = 16 << 10;
/// Time between two looks for the sidecar's socket.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Time between two tries to accept a connection when there is no descriptor for it.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Listeners on `localhost`, and the socket that they lead to.
#[derive(Debug)]
pub(super) struct Carrier {
    listeners: Vec<TcpListener>,
    socket: PathBuf,
}

impl Carrier {
    /// Listens on a port, and waits for the sidecar.
    pub(super) async fn open(port: u16, socket: &Path) -> Result<Self, BridgeError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await.map_err(|error| BridgeError::Listen(address, error))?;
        let mut listeners = vec![listener];
        // A sandbox may have no IPv6.
        listeners.extend(TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await);
        wait_for(socket).await.map_err(|error| BridgeError::NoSidecar(socket.to_owned(), error))?;
        Ok(Self { listeners, socket: socket.to_owned() })
    }

    /// Carries connections; never returns.
    pub(super) async fn carry(self) -> Infallible {
        let (slots, socket) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(self.socket));
        for listener in self.listeners {
            tokio::spawn(accept(listener, Arc::clone(&socket), Arc::clone(&slots)));
        }
        std::future::pending().await
    }
}

/// Waits until a socket accepts connections. Returns the last error when the time is up.
async fn wait_for(socket: &Path) -> io::Result<()> {
    let deadline = Instant::now() + SIDECAR_WITHIN;
    loop {
        match UnixStream::connect(socket).await {
            Err(_) if Instant::now() < deadline => sleep(LOOK_AGAIN).await,
            connected => return connected.map(drop),
        }
    }
}

async fn accept(listener: TcpListener, socket: Arc<PathBuf>, slots: Arc<Semaphore>) {
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let socket = Arc::clone(&socket);
        tokio::spawn(async move {
            // A connection that fails is closed: its client notices.
            let _ = connect(client, &socket).await;
            drop(slot);
        });
    }
}

/// Carries one connection to its end. If one side ends its stream, the other may still send.
async fn connect(mut client: TcpStream, socket: &Path) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut sidecar = UnixStream::connect(socket).await?;
    copy_bidirectional_with_sizes(&mut client, &mut sidecar, BUFFER, BUFFER).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_half_closed_client_gets_its_answer() {
        let dir = std::env::temp_dir().join(format!("sluice-carrier-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("it is not there yet");
        let socket = dir.join("s");
        let sidecar = UnixListener::bind(&socket).expect("it is free");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(accept(listener, Arc::new(socket), Arc::new(Semaphore::new(1))));
        // The second connection takes the slot of the first.
        for length in [1_usize, 3 << 20] {
            let ask = async {
                let mut client = TcpStream::connect(address).await.expect("it listens");
                client.write_all(&vec![b'x'; length]).await.expect("it is carried");
                client.shutdown().await.expect("it is open");
                let mut got = Vec::new();
                client.read_to_end(&mut got).await.expect("it is read to its end");
                got.len()
            };
            let ((), got) = tokio::join!(answer_once(&sidecar), ask);
            assert_eq!(got, length);
        }
        std::fs::remove_dir_all(dir).expect("it is ours");
    }

    async fn answer_once(sidecar: &UnixListener) {
        let (mut call, _) = sidecar.accept().await.expect("it is connected");
        let mut request = Vec::new();
        call.read_to_end(&mut request).await.expect("it is read to its end");
        call.write_all(&vec![b'y'; request.len()]).await.expect("it is carried");
    }
}
