//! Sums of receipts.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sluice_contract::time::unix_micros;
use sluice_state::ledger::{Filter, GroupBy, GroupSum, Total, Unsettled, UsageTable};
use utoipa::{OpenApi, ToSchema};

use super::{Context, accounts};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::Query;
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(sums))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/api/v1/usage", get(sums))
}

/// Selection and grouping of sums.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UsageQuery {
    /// Grouping.
    #[serde(default)]
    by: Grouping,
    /// Account that pays; needed if the token has several.
    account: Option<String>,
    /// Run id.
    run_id: Option<String>,
    /// Requested model.
    model: Option<String>,
    /// Earliest time (UTC): `2026-11-01`, or `2026-11-01T10:00:00Z`.
    since: Option<String>,
    /// Time before which they are.
    until: Option<String>,
}

/// Grouping of sums.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Grouping {
    /// Account that pays.
    #[default]
    Account,
    /// Attempt of a run.
    Run,
    /// Requested model.
    Model,
    /// Day (UTC).
    Day,
}

/// Sums of receipts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
struct UsageView {
    by: Grouping,
    /// Sum of each group, as `sluice usage --json` prints them.
    #[schema(value_type = Vec<Object>)]
    groups: Vec<GroupSum>,
    /// Sum of all groups.
    #[schema(value_type = Object)]
    total: Total,
    /// Runs whose bill is not final.
    #[schema(value_type = Vec<Object>)]
    unsettled_runs: Vec<Unsettled>,
}

/// Sums up what calls have used and cost.
#[utoipa::path(
    get, path = "/api/v1/usage", params(UsageQuery),
    responses(
        (status = 200, body = UsageView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn sums(
    State(context): Context,
    principal: Principal,
    Query(query): Query<UsageQuery>,
) -> Result<Json<UsageView>, ApiError> {
    let scope = principal.require(Operation::Read)?;
    let filter = Filter {
        account: accounts::asked(scope, query.account)?,
        owner: scope.owner().map(str::to_owned),
        run_id: query.run_id,
        model: query.model,
        since_us: query.since.as_deref().map(|text| time_us("since", text)).transpose()?,
        until_us: query.until.as_deref().map(|text| time_us("until", text)).transpose()?,
        ..Filter::default()
    };
    let UsageTable { groups, total, unsettled } = context.store.usage(query.by.into(), filter).await?;
    Ok(Json(UsageView { by: query.by, groups: GroupSum::all(groups), total, unsettled_runs: unsettled }))
}

fn time_us(field: &str, text: &str) -> Result<i64, ApiError> {
    let is_day = text.len() == 10;
    let whole = if is_day { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let time = humantime::parse_rfc3339(&whole).ok().and_then(unix_micros);
    time.ok_or_else(|| ApiError::invalid(field, "write a day, 2026-11-01, or a time, 2026-11-01T10:00:00Z"))
}

impl From<Grouping> for GroupBy {
    fn from(by: Grouping) -> Self {
        match by {
            Grouping::Account => Self::Account,
            Grouping::Run => Self::Run,
            Grouping::Model => Self::Model,
            Grouping::Day => Self::Day,
        }
    }
}
