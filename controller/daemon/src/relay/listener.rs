//! The relay socket of one attempt.
//!
//! It is in a directory of its own, below directories that only root can enter. The sidecar has the directory as its
//! working directory, so it connects by a path that begins there. The socket belongs to the sidecar's user, with mode
//! 0600, and its connections are accepted only from that user and from root.

use std::io;
use std::os::unix::fs::chown;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Uid;
use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::rundir;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::front::RelayFront;
use crate::access::RemotePeer;
use crate::connection::serve;
use crate::context::ApiContext;
use crate::unix_socket::{DaemonSocket, SocketError};

/// Maximum number of connections of one sidecar: the requests that it relays at once, and the idle ones that it keeps.
const CONNECTIONS: usize = 16;
/// Time between two tries to bind, while the directory is made.
const AGAIN: Duration = Duration::from_millis(20);
/// Pause after a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The relay socket of one attempt. Its file is removed, and its connections are closed, when the future of
/// [`Self::serve`] is dropped.
#[derive(Debug)]
pub(crate) struct RelayListener {
    context: Arc<ApiContext>,
    key: RunKey,
}

impl RelayListener {
    /// Returns the listener of an attempt. Nothing is bound yet.
    pub(crate) fn new(context: Arc<ApiContext>, key: RunKey) -> Self {
        Self { context, key }
    }

    /// Binds the socket as soon as its directory exists, and serves the sidecar until this future is dropped.
    pub(crate) async fn serve(self) -> std::convert::Infallible {
        let (socket, uid) = self.bound().await;
        let front = Arc::new(RelayFront::new(Arc::clone(&self.context), self.key.clone()));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                Some(_) = connections.join_next() => continue,
                accepted = socket.listener.accept(), if connections.len() < CONNECTIONS => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let peer = stream.peer_cred().ok().map(|credentials| credentials.uid());
                    if peer.is_some_and(|peer| peer == uid || Uid::from_raw(peer).is_root()) {
                        let (front, stop) = (Arc::clone(&front), self.context.stop.clone());
                        connections.spawn(serve(
                            stream,
                            RemotePeer { uid: peer, address: None, end: None },
                            None,
                            front,
                            stop,
                        ));
                    }
                }
                Err(error) => {
                    (self.context.log)(&format!("run {}: cannot accept a connection: {error}", self.key));
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Binds the socket, and returns the user of the sidecar.
    async fn bound(&self) -> (DaemonSocket, u32) {
        let mut is_reported = false;
        loop {
            let paths = self.context.layout.run(&self.key);
            let is_there = paths.relay.parent().is_some_and(Path::is_dir);
            match is_there.then(|| bind(&paths.relay, rundir::sidecar_user(&paths))) {
                Some(Ok(bound)) => return bound,
                Some(Err(error)) if !is_reported => {
                    let error = error_chain(&error);
                    (self.context.log)(&format!("run {}: its sandbox cannot report anything: {error}", self.key));
                    is_reported = true;
                }
                _ => {}
            }
            sleep(if is_reported { PAUSE * 10 } else { AGAIN }).await;
        }
    }
}

fn bind(
    path: &Path,
    user: io::Result<Option<sluice_runs::sidecar_user::SidecarUser>>,
) -> Result<(DaemonSocket, u32), SocketError> {
    let failed = |error| SocketError::System(path.to_owned(), error);
    let uid = user.map_err(failed)?.map_or_else(|| Uid::effective().as_raw(), |user| user.uid);
    let socket = DaemonSocket::bind(path, 0o600)?;
    chown(path, Some(uid), None).map_err(failed)?;
    Ok((socket, uid))
}
