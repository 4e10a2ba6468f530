//! The server: accepts connections, each with its peer, until the run ends.
//!
//! If all slots are taken, one more connection is accepted and waits here; the others wait in the listen backlog.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sluice_contract::record::Peer;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::connection::{ClientSocket, ConnState, Listener, WatchedStream};
use crate::exchange::exchange;
use crate::memory;
use crate::refusal::{Reason, Refusal};
use crate::run::RunContext;
use crate::slots::{SWEEP, Slot, Slots};

/// Maximum size of a head; a larger one is answered with 431.
pub const HEAD_MAX: usize = 64 * 1024;
/// Maximum number of bytes that one read takes from a client.
pub const READ_MAX: usize = 64 * 1024;
/// Maximum number of connections to the control socket at once: the controller needs one.
const CONTROL_CONNECTIONS: usize = 8;
/// Pause before another idle connection is closed, if the last one did not end, because its client does not read its
/// response.
const CLOSE_NEXT: Duration = Duration::from_millis(100);
/// Pause after an accept that failed for lack of descriptors or memory.
const BACKOFF: Duration = Duration::from_millis(50);

/// Stage of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Calls are carried.
    Open,
    /// New calls are refused, and open ones may end.
    Drain,
    /// Open calls are cut.
    Cut,
}

/// Input of the server: the listener, the slots, and a connection that was accepted and has no slot yet.
struct Acceptor<'a> {
    listener: &'a UnixListener,
    run: &'a Arc<RunContext>,
    slots: Arc<Slots>,
    waiting: Option<UnixStream>,
    /// For the control socket, the only user that may connect.
    owner: Option<u32>,
}

/// Serves until the last stage, and returns once no call is open.
pub async fn serve(
    listener: &UnixListener,
    run: &Arc<RunContext>,
    connections_max: usize,
    mut stage: watch::Receiver<Stage>,
) {
    let mut acceptor = Acceptor { listener, run, slots: Slots::new(connections_max), waiting: None, owner: None };
    let mut open = JoinSet::new();
    accept_until(&mut acceptor, &mut stage, Stage::Open, &mut open).await;
    run.shutdown.drain();

    // New connections get the refusal of a run that is ending; connections from before may finish.
    let (mut late, mut drains) = (JoinSet::new(), JoinSet::new());
    let finish = async {
        while open.join_next().await.is_some() {}
        drains = run.shutdown.take_drains();
        while drains.join_next().await.is_some() {}
    };
    tokio::select! {
        // Cancel-safe: both only wait, and what they wait for stays in `open` and `drains`.
        () = finish => {}
        () = accept_until(&mut acceptor, &mut stage, Stage::Drain, &mut late) => {}
    }
    // The open calls end: every task is dropped, and each open call writes its outcome then.
    run.journal.cut();
    for tasks in [&mut open, &mut late, &mut drains, &mut run.shutdown.take_drains()] {
        tasks.shutdown().await;
    }
}

/// Serves the control socket to this user, in every stage, until it is dropped.
pub async fn serve_control(
    listener: &UnixListener,
    owner: u32,
    run: &Arc<RunContext>,
    mut stage: watch::Receiver<Stage>,
) {
    let slots = Slots::new(CONTROL_CONNECTIONS);
    let mut acceptor = Acceptor { listener, run, slots, waiting: None, owner: Some(owner) };
    accept_until(&mut acceptor, &mut stage, Stage::Cut, &mut JoinSet::new()).await;
}

/// Accepts for as long as the stage lasts.
async fn accept_until(
    acceptor: &mut Acceptor<'_>,
    stage: &mut watch::Receiver<Stage>,
    during: Stage,
    tasks: &mut JoinSet<()>,
) {
    let slots = Arc::clone(&acceptor.slots);
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while *stage.borrow_and_update() <= during {
        if let Some(stream) = acceptor.waiting.take() {
            match slots.take(stream.as_raw_fd()) {
                Some(slot) => {
                    let listener = if acceptor.owner.is_some() { Listener::Control } else { Listener::Calls };
                    let run = Arc::clone(acceptor.run);
                    tasks.spawn(connection(run, stream, slot, listener, during, stage.clone()));
                }
                None => {
                    acceptor.waiting = Some(stream);
                    slots.close_longest_idle();
                }
            }
        }
        let waits = acceptor.waiting.is_some();
        tokio::select! {
            // Cancel-safe: a changed stage, a finished task and a new connection are each taken whole; the rest only
            // wait.
            changed = stage.changed() => if changed.is_err() { return },
            Some(_) = tasks.join_next() => {}
            () = slots.one_became_idle(), if waits => {}
            () = tokio::time::sleep(CLOSE_NEXT), if waits => {}
            _ = sweep.tick(), if !slots.is_empty() => slots.close_expired(),
            accepted = acceptor.listener.accept(), if !waits => match accepted {
                Ok((stream, _)) if is_admitted(acceptor, &stream) => acceptor.waiting = Some(stream),
                Ok(_) => tracing::warn!("closed a control connection of another user than the one that started the sidecar"),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    tokio::time::sleep(BACKOFF).await;
                }
            },
        }
    }
}

/// Returns true if a connection is served. A peer that may not use the call socket is served too: it gets a refusal.
fn is_admitted(acceptor: &Acceptor<'_>, stream: &UnixStream) -> bool {
    acceptor.owner.is_none_or(|owner| peer_of(stream).uid == owner)
}

/// Serves one connection to its end.
async fn connection(
    run: Arc<RunContext>,
    stream: UnixStream,
    slot: Slot,
    listener: Listener,
    since: Stage,
    mut stage: watch::Receiver<Stage>,
) {
    let peer = peer_of(&stream);
    let stream = match stream.into_std().and_then(ClientSocket::new) {
        Ok(stream) => stream,
        Err(error) => return tracing::warn!(%error, "cannot watch a connection; it is closed"),
    };
    let state = Arc::new(ConnState::new(&slot, listener));
    let service = service_fn(|request| exchange(Arc::clone(&run), peer, request, state.open_call()));
    let mut conn = pin!(
        http1::Builder::new()
            .max_header_size(HEAD_MAX)
            .max_buf_size(READ_MAX)
            .serve_connection(TokioIo::new(WatchedStream::new(stream, Arc::clone(&state), slot)), service)
    );
    let mut stopping = pin!(async {
        // The sender lives as long as the process.
        let _ = stage.wait_for(|stage| *stage > Stage::Open).await;
    });
    // A connection that came while the run was ending stays for the refusal; an earlier one is told to end.
    let mut told = since > Stage::Open;
    let ended = poll_fn(|cx| {
        if !told && stopping.as_mut().poll(cx).is_ready() {
            told = true;
            state.close();
            conn.as_mut().graceful_shutdown();
        }
        conn.as_mut().poll(cx)
    })
    .await;
    // hyper drops an error that came before the first byte of a request; the connection state keeps the reason. Only
    // refusals of the sandbox's requests are in the audit log.
    if listener == Listener::Calls
        && let Some(reason) = state.fault().or_else(|| ended.err().as_ref().and_then(unparsed))
    {
        // A request that could not be parsed is refused too, and recorded.
        let _ = run.journal.refused("", "", &Refusal::new(reason, "")).await;
    }
}

/// Returns the reason for which hyper answered a head by itself, with the same status and an empty body.
fn unparsed(error: &hyper::Error) -> Option<Reason> {
    if error.is_parse_too_large() { Some(Reason::HeadTooLarge) } else { error.is_parse().then_some(Reason::BadRequest) }
}

/// Returns the peer as the kernel names it.
fn peer_of(stream: &UnixStream) -> Peer {
    match stream.peer_cred() {
        Ok(cred) => Peer { pid: cred.pid(), uid: cred.uid() },
        // `u32::MAX` is not a user, so a list of allowed ones refuses it.
        Err(_) => Peer { pid: None, uid: u32::MAX },
    }
}

/// Returns the maximum number of connections at once: as many as `--max-concurrency` needs, or fewer if there are not
/// enough descriptors for each call to reach its upstream.
///
/// # Errors
/// The error of the system, if the limit cannot be read.
pub fn connections_max(concurrency: usize) -> io::Result<usize> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // As high as allowed: a raised soft limit costs nothing. If the system refuses, the old limit holds.
    let limit = if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // A connection whose client does not read has a second descriptor.
    Ok((limit.saturating_sub(concurrency + 32) / 2).clamp(16, memory::connections(concurrency)))
}
