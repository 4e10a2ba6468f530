//! Starts a chat, in either form: chooses the agent, creates the run, and registers the client that follows it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::json;
use sluice_contract::{Hash, RunId};
use sluice_runs::verdict::Contract;
use sluice_state::agents::Agent;
use sluice_state::chats::NewChat;
use sluice_state::idempotency::IdempotencyKey;

use super::chat_session::{NewTurn, new_turn};
use super::chat_worker::give_turn;
use super::idempotent::{IdempotentRepeat, RequestKey, release};
use super::sandboxes::{ChatTurnRequest, create_chat, record_removed};
use crate::api_error::ApiError;
use crate::chat::catalog::{ChosenAgent, choose};
use crate::chat::cursor::ChatCursor;
use crate::chat::follow::ChatFollower;
use crate::chat::header_names::add_names;
use crate::chat::prompt;
use crate::chat::request::{ChatRequest, MODEL_PREFIX};
use crate::chat::workers::STAY_MARGIN;
use crate::chat_followers::ChatPresence;
use crate::context::ApiContext;
use crate::identity::RequestOrigin;
use crate::permission::Operation;
use crate::principal::{Principal, Role};
use crate::run_policy::RunPolicy;
use crate::stream_count::CountedStream;

/// Maximum number of registered agents in a list.
const AGENTS: u32 = 500;

/// Form of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatForm {
    /// Events with ids: a client that was cut off may reconnect.
    Events,
    /// The OpenAI format: a client can reconnect only with its idempotency key.
    OpenAi,
}

/// A chat and its client.
#[derive(Debug)]
pub(super) struct StartedChat {
    pub(super) run_id: RunId,
    /// Number of the turn, if it is the second or a later turn of a worker.
    pub(super) turn: Option<u32>,
    pub(super) follower: ChatFollower,
}

/// Begins a chat. The same key follows the same run again.
///
/// # Errors
/// The request is refused; then no run is created.
pub(super) async fn start(
    context: Arc<ApiContext>,
    principal: Principal,
    key: RequestKey,
    headers: &HeaderMap,
    request: ChatRequest,
    digest: Hash,
    form: ChatForm,
) -> Result<StartedChat, ApiError> {
    principal.require(Operation::Chat)?;
    let mut request = request;
    add_names(&mut request.metadata, headers)?;
    // Checked before the run is created: a run without a follower would still cost money, and a retry would create another.
    let counted = admit_client(&context, &principal)?;
    let is_resumable = form == ChatForm::Events || key.is_present();
    let key = match key.reserve(&context, &principal, digest_of(digest, &request)).await? {
        IdempotentRepeat::Done(id) => {
            // A later turn of a worker is known by its message.
            let (run_id, after) = match context.store.chat_turn_of_message(&id).await? {
                Some((run_id, begin_seq)) => (run_id, Some(begin_seq)),
                None => (id.parse().map_err(|_| ApiError::not_found())?, Some(0)),
            };
            return follow(context, principal, &run_id, ChatCursor::default(), (counted, after)).await;
        }
        IdempotentRepeat::New(key) => key,
    };
    match create(&context, &principal, (request, RequestOrigin::of(headers)), digest, is_resumable, key.clone()).await {
        Ok((run_id, turn)) => {
            let (after, _presence) = turn.unzip();
            follow(context, principal, &run_id, ChatCursor::default(), (counted, after)).await
        }
        Err(error) => {
            release(&context, key).await;
            Err(error)
        }
    }
}

/// Counts one more client that follows a chat.
///
/// # Errors
/// 429: too many.
pub(super) fn admit_client(context: &ApiContext, principal: &Principal) -> Result<CountedStream, ApiError> {
    let message = "this token, or the daemon, follows too many chats; wait for some to end";
    context.chat_streams.admit(&principal.id).ok_or_else(|| ApiError::too_many("too_many_chats", message, 5))
}

/// Returns the digest of a request with the names from its headers, so that a key of one user finds no run of another.
fn digest_of(body: Hash, request: &ChatRequest) -> Hash {
    Hash::of(format!("{body}\n{:?}\n{:?}", request.end_user(), request.session_id()).as_bytes())
}

/// Creates a run for a turn, or gives the turn to a live worker. Returns the run, and the event log's position before the
/// worker's turn.
async fn create(
    context: &ApiContext,
    principal: &Principal,
    (request, origin): (ChatRequest, RequestOrigin),
    digest: Hash,
    is_resumable: bool,
    key: Option<IdempotencyKey>,
) -> Result<(RunId, Option<(i64, ChatPresence)>), ApiError> {
    let policy = context.policy_of(principal).ok_or_else(super::sandboxes::sandbox_disabled)?;
    let chosen = chosen(context, principal, &policy, &request.agent).await?;
    let ChosenAgent { graph, agent_id } = chosen.ok_or_else(|| unknown(&request.agent))?;
    if let Some(model) = request.model.as_ref().filter(|model| !graph.models.contains(model))
        && (principal.role == Role::Chat || !graph.models.is_empty())
    {
        return Err(unknown(&format!("{}@{model}", request.agent)));
    }
    // No graph has a name with `agent:`, so a registered agent shares no session with an agent of the configuration.
    let agent = agent_id.as_ref().map_or_else(|| graph.graph_id.clone(), |id| format!("agent:{id}"));
    // A registered agent has one live run: a waiting worker would keep it from all other clients.
    let may_stay = agent_id.is_none();
    let NewTurn { turn, workspace_from, worker } = new_turn(context, principal, &request, agent, may_stay).await?;
    if let Some(worker) = worker {
        let run_id = worker.key.run_id.clone();
        // The client is registered before the turn exists, because a turn without a client is ended.
        let presence = context.followers.follow((run_id.clone(), worker.turn.number + 1), Duration::ZERO);
        let begin_seq = give_turn(context, principal, (&worker, &request), (digest, is_resumable), key).await?;
        return Ok((run_id, Some((begin_seq, presence))));
    }
    let has_worker = turn.as_ref().is_some_and(|turn| turn.has_worker);
    let chat = NewChat {
        principal: principal.chat_holder(),
        end_user: request.end_user().map(str::to_owned),
        session_id: request.session_id().map(str::to_owned),
        is_resumable,
        turn,
    };
    let turn = ChatTurnRequest {
        agent_id,
        graph_id: graph.graph_id.clone(),
        model: request.model,
        messages: prompt::for_program(request.messages, graph.takes_one_message),
        metadata: request.metadata,
        chat,
        workspace_from,
        stay: has_worker.then(|| context.chat.sessions.idle + STAY_MARGIN),
        digest,
        origin,
    };
    Ok((create_chat(context, principal, turn, key).await?.key.run_id, None))
}

/// Follows the chat of a run from a position on. For a worker, that is the turn of the position, otherwise the turn
/// that begins after `after`, otherwise the newest turn.
///
/// # Errors
/// 404: the run does not exist. 410: its record was removed.
pub(super) async fn follow(
    context: Arc<ApiContext>,
    principal: Principal,
    run_id: &RunId,
    cursor: ChatCursor,
    (counted, after): (CountedStream, Option<i64>),
) -> Result<StartedChat, ApiError> {
    let chat = context.store.find_chat(run_id).await?.ok_or_else(ApiError::not_found)?;
    let run = context.store.find_sandbox(Some(&chat.owner), run_id).await?.ok_or_else(ApiError::not_found)?;
    if run.state.is_ended() && run.started_us.is_some() && !context.layout.records().of(&run.key).exists() {
        return Err(record_removed());
    }
    let position = if cursor.event > 0 { cursor.event } else { after.map_or(i64::MAX, |seq| seq.saturating_add(1)) };
    let turn = context.store.chat_turn(run_id, position).await?;
    let is_resumable = turn.as_ref().map_or(chat.new.is_resumable, |turn| turn.is_resumable);
    let resume = if is_resumable { context.chat.resume } else { Duration::ZERO };
    let number = turn.as_ref().map_or(1, |turn| turn.number);
    let presence = context.followers.follow((run_id.clone(), number), resume);
    let graph_id = context.stored_request(run_id).await?.graph_id;
    let policy = context.policy.as_ref().map(|policy| policy.of_account(Some(&run.account)));
    let contract = policy.and_then(|policy| policy.graph(&graph_id).map(|graph| graph.output));
    let contract = contract.unwrap_or(Contract::Plain);
    let counted = (counted, presence);
    let follower = ChatFollower::new(context, principal, &run, (contract, turn), cursor, counted).await?;
    Ok(StartedChat { run_id: run_id.clone(), turn: Some(number).filter(|number| *number > 1), follower })
}

/// Returns the agent of a name: one of the configuration first, otherwise a registered one of the caller's owner, by its id
/// or by the model that names it.
async fn chosen<'a>(
    context: &ApiContext,
    principal: &Principal,
    policy: &'a RunPolicy,
    name: &str,
) -> Result<Option<ChosenAgent<'a>>, ApiError> {
    if let Some(graph) = policy.graph(name) {
        return Ok(Some(ChosenAgent { graph, agent_id: None }));
    }
    for id in [Some(name), name.strip_prefix(MODEL_PREFIX)].into_iter().flatten() {
        let registered = context.store.find_agent(&principal.owner, id).await?;
        if let Some(chosen) = registered.and_then(|registered| choose(policy, registered)) {
            return Ok(Some(chosen));
        }
    }
    Ok(None)
}

/// Returns the registered agents of a caller's owner, for a list.
pub(super) async fn registered(context: &ApiContext, principal: &Principal) -> Result<Vec<Agent>, ApiError> {
    Ok(context.store.list_agents(Some(&principal.owner), None, AGENTS).await?)
}

fn unknown(name: &str) -> ApiError {
    let message = format!("there is no agent {name} here; GET /v1/models and GET /ai/agents list those that there are");
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message).with_details(json!({ "field": "model" }))
}
