//! The socket by which the sidecar of a one-shot run sends its pushes.
//!
//! It has the same path, owner and token as the socket of a daemon's run: see docs/design/relay-socket.md.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::unistd::Uid;
use sluice_git::RunRepository;
use sluice_state::layout::RunPaths;
use sluice_state::run_tokens::RunTokenValue;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::PushTally;
use super::push_limit::PushLimit;
use super::push_routes::{answer_push, has_token, unauthorized};
use crate::rundir;

/// Maximum number of connections of one sidecar.
const CONNECTIONS: usize = 16;
/// Pause after a failure to accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket for pushes of one run. Its requests are ended when this is dropped.
#[derive(Debug)]
pub(super) struct PushRelay(#[allow(dead_code, reason = "the task ends with this value")] JoinSet<Infallible>);

#[derive(Clone)]
struct PushService {
    repository: RunRepository,
    token: sluice_contract::Hash,
    limit: Arc<PushLimit>,
    pushes: PushTally,
}

impl PushRelay {
    /// Binds the socket in the directory of the sidecar, and serves it.
    pub(super) fn start(
        paths: &RunPaths,
        repository: RunRepository,
        token: &RunTokenValue,
        pushes: PushTally,
    ) -> io::Result<Self> {
        let uid = rundir::sidecar_user(paths)?.map_or_else(|| Uid::effective().as_raw(), |user| user.uid);
        match fs::remove_file(&paths.relay) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&paths.relay)?;
        fs::set_permissions(&paths.relay, Permissions::from_mode(0o600))?;
        chown(&paths.relay, Some(uid), None)?;
        let service = PushService { repository, token: token.hash(), limit: Arc::default(), pushes };
        let mut task = JoinSet::new();
        task.spawn(serve(listener, uid, service));
        Ok(Self(task))
    }
}

async fn serve(listener: UnixListener, uid: u32, service: PushService) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Cancel-safe: an ended task and a new connection are each taken completely.
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) if is_sidecar(&stream, uid) => {
                    connections.spawn(connection(stream, service.clone()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
        }
    }
}

fn is_sidecar(stream: &UnixStream, uid: u32) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == uid || Uid::from_raw(peer.uid()).is_root())
}

async fn connection(stream: UnixStream, service: PushService) {
    let answer = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let service = service.clone();
        async move {
            if !has_token(request.headers(), service.token) {
                return Ok::<_, Infallible>(unauthorized());
            }
            let answer = answer_push(&service.repository, &service.limit, request).await;
            service.pushes.add(&answer);
            Ok(answer.response)
        }
    });
    // An error of a sidecar that closes the connection is not a fault of this host.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}
