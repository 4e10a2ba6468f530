//! Interventions: messages of the operator's rules and of admins, with their kind before the text.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use sluice_contract::control::MessageType;
use sluice_state::messages::{
    InjectMode, MessageFilter, MessageToSend, StoredMessage, intervention_id, intervention_text,
};
use utoipa::ToSchema;

use super::sending::{SentTo, send_message};
use super::{DeliveryMode, MessageQuery, states};
use crate::api::idempotent::RequestKey;
use crate::api::names::check_text;
use crate::api::sandboxes::lookup;
use crate::api::{Context, NoQuery, paging};
use crate::api_error::{ApiError, ErrorBody};
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::timestamp::{timestamp, timestamp_of};

/// Maximum length of a source in characters.
const SOURCE_MAX: usize = 64;

/// Body of an intervention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum SteeringType {
    #[default]
    Guidance,
    Prioritize,
    Refocus,
    Stop,
    AddConstraint,
    StatusReminder,
}

/// Place of an intervention among the messages that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum InterventionPriority {
    #[default]
    Normal,
    Urgent,
}

impl SteeringType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Guidance => "guidance",
            Self::Prioritize => "prioritize",
            Self::Refocus => "refocus",
            Self::Stop => "stop",
            Self::AddConstraint => "add_constraint",
            Self::StatusReminder => "status_reminder",
        }
    }
}

/// An intervention to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InterventionRequest {
    /// 1 to 10,000 characters.
    #[schema(min_length = 1, max_length = 10000)]
    message: String,
    /// The program or the rule behind it, for people: 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    source: String,
    #[serde(default)]
    steering_type: SteeringType,
    #[serde(default)]
    priority: InterventionPriority,
    #[serde(default)]
    inject_mode: DeliveryMode,
}

/// An intervention that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MadeIntervention {
    /// `int-…`.
    id: String,
    /// `queued`; for a request that is repeated, what became of it.
    status: &'static str,
    inject_mode: &'static str,
    /// About how long it takes until the agent has it.
    estimated_delivery_ms: u32,
}

/// Makes an intervention: the agent gets a message of the type guardian_nudge, whose text begins with the kind.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/interventions", request_body = InterventionRequest,
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key makes one")
    ),
    responses(
        (status = 200, body = MadeIntervention), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn intervene(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
    body: JsonBody<InterventionRequest>,
) -> Result<Json<MadeIntervention>, ApiError> {
    let InterventionRequest { message, source, steering_type, priority, inject_mode } = body.value;
    let sandbox = lookup::named(&context, &principal, Operation::Steer, &id).await?;
    check_text("source", &source, SOURCE_MAX)?;
    let new = MessageToSend {
        id: intervention_id(),
        content: message,
        message_type: MessageType::GuardianNudge,
        urgent: priority == InterventionPriority::Urgent,
        inject_mode: inject_mode.of_state(),
        steering_type: Some(steering_type.as_str().to_owned()),
        source: Some(source),
        sender: principal.id.clone(),
        idempotency: None,
    };
    let to = SentTo { context: &context, principal: &principal, sandbox: &sandbox, digest: body.digest };
    let made = send_message(to, "intervention.make", new, key).await?;
    Ok(Json(MadeIntervention {
        status: made.state.as_str(),
        inject_mode: made.inject_mode.as_str(),
        estimated_delivery_ms: if made.inject_mode == InjectMode::Immediate { 1000 } else { 5000 },
        id: made.id,
    }))
}

/// An intervention as people see it.
#[derive(Debug, Serialize, ToSchema)]
struct InterventionView {
    id: String,
    message: String,
    source: Option<String>,
    steering_type: Option<String>,
    /// `normal` or `urgent`.
    priority: &'static str,
    inject_mode: &'static str,
    status: &'static str,
    created_at: String,
    delivered_at: Option<String>,
}

impl InterventionView {
    fn of(message: StoredMessage) -> Self {
        let kind = message.steering_type.as_deref().unwrap_or_default();
        Self {
            message: intervention_text(&message.content, kind).to_owned(),
            id: message.id,
            source: message.source,
            priority: if message.urgent { "urgent" } else { "normal" },
            inject_mode: message.inject_mode.as_str(),
            status: message.state.as_str(),
            created_at: timestamp(message.created_us),
            delivered_at: timestamp_of(message.delivered_us),
            steering_type: message.steering_type,
        }
    }
}

/// A page of interventions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Interventions {
    interventions: Vec<InterventionView>,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<i64>,
    /// True if more follow.
    has_more: bool,
}

/// Lists the interventions in a run, newest first.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/interventions",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), MessageQuery),
    responses(
        (status = 200, body = Interventions), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn list(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<MessageQuery>,
) -> Result<Json<Interventions>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let states = query.status.as_deref().map_or(Ok(Vec::new()), states)?;
    let filter = MessageFilter { states, interventions: true, before: query.cursor };
    let limit = paging::limit(query.limit, paging::LIST_MAX)?;
    let page = context.store.list_messages(&sandbox.key.run_id, filter, limit).await?;
    Ok(Json(Interventions {
        interventions: page.messages.into_iter().map(InterventionView::of).collect(),
        has_more: page.next.is_some(),
        next_cursor: page.next,
    }))
}
