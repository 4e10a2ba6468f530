//! `POST …/messages/ack`: the agent acknowledges messages that it got on lease.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use sluice_state::store::now_us;

use super::RelayCaller;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::extract::JsonBody;

/// Maximum number of messages in one request.
const IDS_MAX: usize = 100;

/// Ids of messages that the agent has received.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageIds {
    message_ids: Vec<String>,
}

/// Messages that count as delivered.
#[derive(Debug, Serialize)]
pub(super) struct Acknowledged {
    acknowledged: Vec<String>,
}

/// Records that messages are delivered. A repetition changes nothing.
pub(super) async fn acknowledge(
    State(context): State<Arc<ApiContext>>,
    caller: RelayCaller,
    body: JsonBody<MessageIds>,
) -> Result<Json<Acknowledged>, ApiError> {
    let ids = body.value.message_ids;
    if ids.len() > IDS_MAX {
        return Err(ApiError::invalid("message_ids", format!("message_ids has at most {IDS_MAX} ids")));
    }
    caller.note_worker(&context).await?;
    let acknowledged = context.store.acknowledge_messages(&caller.key, ids, now_us()).await?;
    Ok(Json(Acknowledged { acknowledged }))
}
