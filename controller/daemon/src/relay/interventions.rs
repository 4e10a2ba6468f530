//! `GET …/interventions`: the interventions for the agent, which it also gets as messages.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use sluice_state::messages::{MessageFilter, TAKEN_BYTES_MAX, fitting, intervention_text};

use super::RelayCaller;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::conversations::Counted;
use crate::timestamp::timestamp;

/// Maximum number of interventions in an answer.
const LIMIT: u32 = 100;

/// An intervention as an agent sees it.
#[derive(Debug, Serialize)]
pub(super) struct InterventionForAgent {
    id: String,
    message: String,
    steering_type: String,
    priority: &'static str,
    status: &'static str,
    timestamp: String,
}

/// Lists the newest interventions, newest first. Nothing is consumed.
pub(super) async fn list(
    State(context): State<Arc<ApiContext>>,
    caller: RelayCaller,
) -> Result<Json<Vec<InterventionForAgent>>, ApiError> {
    caller.count(&context, Counted::Poll)?;
    let filter = MessageFilter { interventions: true, ..MessageFilter::default() };
    let mut newest = context.store.list_messages(&caller.key.run_id, filter, LIMIT).await?.messages;
    newest.truncate(fitting(&newest, TAKEN_BYTES_MAX));
    let shown = newest.into_iter().map(|message| {
        let steering_type = message.steering_type.unwrap_or_default();
        InterventionForAgent {
            message: intervention_text(&message.content, &steering_type).to_owned(),
            id: message.id,
            steering_type,
            priority: if message.urgent { "urgent" } else { "normal" },
            status: message.state.as_str(),
            timestamp: timestamp(message.created_us),
        }
    });
    Ok(Json(shown.collect()))
}
