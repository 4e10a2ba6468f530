//! Budgets of accounts.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, put};
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_contract::{Account, RunKey};
use sluice_state::budget::{Balance, BudgetError, BudgetLog};
use sluice_state::control_log::ControlEntry;
use sluice_state::ledger::usd;
use sluice_state::store::now_us;
use utoipa::{OpenApi, ToSchema};

use super::quantity::Quantity;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

#[derive(OpenApi)]
#[openapi(paths(list, change))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new().route("/api/v1/budgets", get(list)).route("/api/v1/budgets/{account}", put(change))
}

/// Selection of budgets.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BudgetQuery {
    /// Only this account.
    account: Option<String>,
}

/// Budgets of accounts. An account without a budget has no limit, and is not listed.
#[derive(Debug, Serialize, ToSchema)]
struct Budgets {
    budgets: Vec<AccountBudget>,
}

/// The budget of an account. Amounts are strings: a reader's number may be a float.
#[derive(Debug, Serialize, ToSchema)]
struct AccountBudget {
    account: String,
    /// Granted since the budget was set.
    granted_usd: String,
    /// Spent since then.
    spent_usd: String,
    /// Held for runs.
    held_usd: String,
    /// Dollars that are left.
    left_usd: String,
    /// Own runs that hold some of it.
    holds: Vec<RunHold>,
}

/// An amount that is held for a run.
#[derive(Debug, Serialize, ToSchema)]
struct RunHold {
    /// `RUN.ATTEMPT`.
    run: String,
    /// Amount at the beginning of the run.
    hold_usd: String,
    /// Amount that is still held.
    held_usd: String,
    /// Reason that it is held.
    reason: String,
}

/// Lists the budgets of all accounts that the token has.
#[utoipa::path(
    get, path = "/api/v1/budgets", params(BudgetQuery),
    responses(
        (status = 200, body = Budgets), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    Query(query): Query<BudgetQuery>,
) -> Result<Json<Budgets>, ApiError> {
    let scope = principal.require(Operation::Read)?;
    let account = match query.account {
        Some(account) if !scope.has_account(&account) => return Err(ApiError::not_found()),
        Some(account) => {
            Some(account.parse::<Account>().map_err(|error| ApiError::invalid("account", error.to_string()))?)
        }
        None => None,
    };
    let mut budgets = budgets(&context, account.as_ref()).await?;
    budgets.retain(|budget| scope.has_account(&budget.account));
    if let Some(owner) = scope.owner() {
        keep_holds_of(&context, owner, &mut budgets).await?;
    }
    Ok(Json(Budgets { budgets }))
}

/// A change of a budget.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BudgetChange)]
struct BudgetChangeRequest {
    kind: ChangeKind,
    /// Amount in dollars; required for `set` and `add`.
    usd: Option<Quantity>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ChangeKind {
    /// The budget begins anew with this amount.
    Set,
    /// This amount is added.
    Add,
    /// The account has no limit any more.
    Remove,
}

/// Changes the budget of an account. Admins alone.
#[utoipa::path(
    put, path = "/api/v1/budgets/{account}", params(("account" = String, Path, description = "The billing account")),
    request_body = BudgetChangeRequest,
    responses(
        (status = 200, description = "The budget as it is now; none after a removal", body = Budgets),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 415, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn change(
    State(context): Context,
    principal: Principal,
    PathNames([account]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<BudgetChangeRequest>,
) -> Result<Json<Budgets>, ApiError> {
    principal.require(Operation::ChangeBudget)?;
    let account: Account = account.parse().map_err(|_| ApiError::not_found())?;
    let nanos = amount(&body.value)?;
    let before = context.store.budgets(Some(&account)).await?.into_iter().next().map(|(_, balance, _)| balance);
    if before.is_none() && body.value.kind != ChangeKind::Set {
        return Err(BudgetError::NoBudget(account).into());
    }
    let log = BudgetLog { layout: &context.layout, keys: &context.keys, store: &context.store };
    if let Some(error) = log.inspect().await.map_err(BudgetError::from)? {
        return Err(BudgetError::from(error).into());
    }
    let operation = format!("budget.{}", body.value.kind.as_str());
    let entry = ControlEntry {
        operation: operation.clone(),
        object: Some(account.to_string()),
        request: Some(body.digest),
        before: before.map(|balance| amounts(&balance)),
        after: Some(json!({ "kind": body.value.kind.as_str(), "usd": usd(nanos.into()) })),
        ..ControlEntry::default()
    };
    let seq = context.record(&principal, entry).await?;
    let changed = match body.value.kind {
        ChangeKind::Set => context.store.set_budget(&account, nanos).await,
        ChangeKind::Add => context.store.add_budget(&account, nanos).await,
        ChangeKind::Remove => context.store.remove_budget(&account).await,
    };
    if let Err(error) = changed {
        return Err(context.record_failure(&principal, &operation, seq, error.into()).await);
    }
    after_change(&context, &log, &account).await;
    Ok(Json(Budgets { budgets: budgets(&context, Some(&account)).await? }))
}

/// Writes a change to the budget log, and reports approvals that may fit now. The change has its effect already, so an
/// error here is only logged: a client that repeated the request would add the amount again. Before the next run of the
/// account, the daemon tries to write the log once more.
async fn after_change(context: &ApiContext, log: &BudgetLog<'_>, account: &Account) {
    if let Ok(Some(error)) | Err(error) = log.synchronize().await {
        (context.log)(&format!("the budget of {account} has changed, and the log has not: {}", error_chain(&error)));
    }
    if let Err(error) = context.store.announce_approvals(account.as_str(), now_us()).await {
        (context.log)(&format!("open approvals of {account} are not reported again: {}", error_chain(&error)));
    }
}

impl ChangeKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Remove => "remove",
        }
    }
}

/// Returns the amount of a change in nano-USD; 0 for a removal.
fn amount(change: &BudgetChangeRequest) -> Result<i64, ApiError> {
    match (&change.usd, change.kind) {
        (None, ChangeKind::Remove) => Ok(0),
        (Some(_), ChangeKind::Remove) => Err(ApiError::invalid("usd", "a removal has no amount; leave usd out")),
        (None, _) => Err(ApiError::invalid("usd", "set and add need an amount of dollars, such as \"0.25\"")),
        (Some(amount), _) => amount.usd("usd"),
    }
}

async fn budgets(context: &ApiContext, account: Option<&Account>) -> Result<Vec<AccountBudget>, ApiError> {
    let found = context.store.budgets(account).await?;
    let budget = |(account, balance, holds): (String, Balance, Vec<sluice_state::budget::BudgetHold>)| AccountBudget {
        account,
        granted_usd: usd(balance.granted),
        spent_usd: usd(balance.spent),
        held_usd: usd(balance.held),
        left_usd: usd(balance.left()),
        holds: holds
            .into_iter()
            .map(|hold| RunHold {
                run: hold.run,
                hold_usd: hold.hold_usd,
                held_usd: hold.held_usd,
                reason: hold.reason,
            })
            .collect(),
    };
    Ok(found.into_iter().map(budget).collect())
}

/// Removes the runs of others, which may spend from the same account.
async fn keep_holds_of(context: &ApiContext, owner: &str, budgets: &mut [AccountBudget]) -> Result<(), ApiError> {
    for budget in budgets {
        let mut own = Vec::new();
        for hold in std::mem::take(&mut budget.holds) {
            let Ok(key) = hold.run.parse::<RunKey>() else { continue };
            if context.store.find_sandbox(Some(owner), &key.run_id).await?.is_some() {
                own.push(hold);
            }
        }
        budget.holds = own;
    }
    Ok(())
}

fn amounts(balance: &Balance) -> Value {
    json!({ "granted_usd": usd(balance.granted), "held_usd": usd(balance.held), "spent_usd": usd(balance.spent) })
}

impl From<BudgetError> for ApiError {
    fn from(error: BudgetError) -> Self {
        match &error {
            BudgetError::Insufficient(_) => {
                let message =
                    "the budget of the account has too little left; wait for runs that hold some, or ask for more";
                Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient_credits", message)
            }
            BudgetError::NoBudget(_) | BudgetError::NothingToRemove(_) => {
                let message = "the account has no budget; set one first, with the kind set";
                Self::new(StatusCode::CONFLICT, "no_budget", message)
            }
            BudgetError::TooMuch => {
                Self::invalid("usd", "a budget of more than nine billion dollars cannot be counted")
            }
            BudgetError::Ledger(_) | BudgetError::Log(_) => Self::of_state(&error, error.is_retryable()),
        }
    }
}
