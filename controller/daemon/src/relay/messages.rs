//! `GET …/messages`: the messages for the agent.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use sluice_state::messages::{Afterwards, StoredMessage, TakeMode, type_word};
use sluice_state::store::now_us;
use tokio::time::{Instant, sleep_until};

use super::RelayCaller;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::conversations::Counted;
use crate::extract::Query;
use crate::timestamp::timestamp;

/// Maximum time that a request waits for a message, in seconds.
const WAIT_MAX: u64 = 25;
/// Maximum number of messages in one answer.
const LIMIT_MAX: u32 = 100;
/// Time after which a waiting request checks again for messages whose lease may be over.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Query of a request that takes messages.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeQuery {
    wait: Option<u64>,
    ack: Option<Acknowledgement>,
    limit: Option<u32>,
}

/// When messages count as delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Acknowledgement {
    /// With the answer.
    Auto,
    /// With `POST …/messages/ack`.
    Manual,
}

/// A message as an agent gets it.
#[derive(Debug, Serialize)]
pub(super) struct MessageForAgent {
    id: String,
    content: String,
    message_type: &'static str,
    timestamp: String,
    /// For an interrupt that starts no turn: `wait` or `end`.
    #[serde(rename = "then", skip_serializing_if = "Option::is_none")]
    afterwards: Option<&'static str>,
}

impl MessageForAgent {
    fn of(message: StoredMessage) -> Self {
        Self {
            id: message.id,
            content: message.content,
            message_type: type_word(message.message_type),
            timestamp: timestamp(message.created_us),
            afterwards: message.afterwards.map(Afterwards::as_str),
        }
    }
}

/// Gives the agent its messages; waits for one if there is none.
pub(super) async fn take(
    State(context): State<Arc<ApiContext>>,
    caller: RelayCaller,
    Query(query): Query<TakeQuery>,
) -> Result<Json<Vec<MessageForAgent>>, ApiError> {
    let wait = query.wait.unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(ApiError::invalid("wait", format!("wait is 0 to {WAIT_MAX} seconds")));
    }
    let limit = query.limit.unwrap_or(LIMIT_MAX);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(ApiError::invalid("limit", format!("limit is 1 to {LIMIT_MAX}")));
    }
    let mode = if query.ack == Some(Acknowledgement::Manual) { TakeMode::Lease } else { TakeMode::Consume };
    caller.count(&context, Counted::Poll)?;
    caller.note_worker(&context).await?;
    let until = Instant::now() + Duration::from_secs(wait);
    let (mut committed, mut stop) = (context.store.events_committed(), context.stop.clone());
    loop {
        // The state is marked before the check, so that the wait notices a message that arrives after the check.
        committed.mark_unchanged();
        if context.store.has_messages_for_worker(&caller.key.run_id, now_us()).await? {
            let taken = context.store.take_messages(&caller.key, mode, limit, now_us()).await?;
            if !taken.is_empty() {
                return Ok(Json(taken.into_iter().map(MessageForAgent::of).collect()));
            }
        }
        if Instant::now() >= until || stop.is_stopped() {
            return Ok(Json(Vec::new()));
        }
        tokio::select! {
            // An error means that the store is gone; the next read reports it.
            _ = committed.changed() => {}
            () = sleep_until(until.min(Instant::now() + LOOK_AGAIN)) => {}
            () = stop.stopped() => {}
        }
    }
}
