//! The session of a new turn of a chat: the turn that it follows, and the workspace that it begins with.

use sluice_contract::RunKey;
use sluice_runs::exchange::KeptWorkspace;
use sluice_state::chats::{ChatSession, ChatWorker, SessionBusy, SessionTurn};
use tokio::task::spawn_blocking;

use crate::api_error::ApiError;
use crate::chat::request::ChatRequest;
use crate::chat::worker_upkeep::end_worker;
use crate::chat::workers::{WorkerSlot, is_free, room};
use crate::chat_settings::{HangUp, SessionCarry};
use crate::context::ApiContext;
use crate::principal::Principal;

/// Position of a new turn in its session.
#[derive(Debug, Default)]
pub(super) struct NewTurn {
    /// `None` for a turn without a session, and for a turn that a live worker gets.
    pub(super) turn: Option<SessionTurn>,
    /// Attempt whose workspace the turn begins with; `None` for the first turn.
    pub(super) workspace_from: Option<RunKey>,
    /// Worker of the session, which gets the turn.
    pub(super) worker: Option<ChatWorker>,
}

/// Finds the position of a new turn. Sessions of another principal, another end user or another agent are never found: then
/// the turn begins a new session.
///
/// # Errors
/// 409 `session_busy`: another turn is in progress. A turn without a client is cancelled at once. 429: all workers of the
/// principal have a turn.
pub(super) async fn new_turn(
    context: &ApiContext,
    principal: &Principal,
    request: &ChatRequest,
    agent: String,
    may_stay: bool,
) -> Result<NewTurn, ApiError> {
    let carried = context.chat.sessions.carried;
    let Some(session_id) = request.session_id().filter(|_| carried != SessionCarry::Nothing) else {
        return Ok(NewTurn::default());
    };
    let has_worker = carried == SessionCarry::Worker && may_stay;
    // A worker has the model that it began with.
    let agent = match request.model.as_ref().filter(|_| has_worker) {
        Some(model) => format!("{agent}@{model}"),
        None => agent,
    };
    let session = ChatSession {
        principal: principal.chat_holder(),
        end_user: request.end_user().map(str::to_owned),
        session_id: session_id.to_owned(),
        agent: agent.clone(),
    };
    let state = context.store.chat_session(session).await?;
    let workers = if has_worker { context.store.chat_workers().await? } else { Vec::new() };
    if let Some(live) = state.newest.as_ref().filter(|_| state.is_live) {
        if let Some(worker) = workers.into_iter().find(|worker| worker.key.run_id == *live && is_free(worker)) {
            return Ok(NewTurn { worker: Some(worker), ..NewTurn::default() });
        }
        if context.chat.hang_up == HangUp::Cancel {
            context.followers.expect_none(live);
        }
        return Err(SessionBusy.into());
    }
    if has_worker {
        make_room(context, &workers, &principal.chat_holder()).await?;
    }
    let workspace_from = match state.workspace {
        Some(key) => is_kept(context, &key).await?.then_some(key),
        None => None,
    };
    let turn = SessionTurn { agent, previous: state.newest, has_worker };
    Ok(NewTurn { turn: Some(turn), workspace_from, worker: None })
}

/// Makes room for another worker of a principal: requests the end of its longest idle worker.
async fn make_room(context: &ApiContext, workers: &[ChatWorker], principal: &str) -> Result<(), ApiError> {
    match room(workers, principal, context.chat.sessions.count) {
        WorkerSlot::Free => Ok(()),
        WorkerSlot::InPlaceOf(run_id) => {
            if end_worker(context, &run_id).await.is_err() {
                (context.log)(&format!("run {run_id}: it makes room for another chat at the next look alone"));
            }
            Ok(())
        }
        WorkerSlot::None => {
            let message = "all agents that this token may keep running are at work; wait for one of their answers";
            Err(ApiError::too_many("too_many_workers", message, 5))
        }
    }
}

/// Returns whether a kept workspace still exists; it may have been removed by hand.
async fn is_kept(context: &ApiContext, key: &RunKey) -> Result<bool, ApiError> {
    let (key, paths) = (key.clone(), context.layout.run(key));
    let opened = spawn_blocking(move || KeptWorkspace::open(&key, &paths).map(|kept| kept.is_some()));
    Ok(opened.await.map_err(|error| ApiError::internal(&error))??)
}
