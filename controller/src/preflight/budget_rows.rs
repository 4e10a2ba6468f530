//! Budgets in the answers of LiteLLM's routes.
//!
//! Pure.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sluice_contract::Usd;

use super::LitellmBudget;

/// Reads an amount that LiteLLM writes as a float, from its text, because only the text is exact.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Usd>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| Usd::parse(raw.get()).ok()))
}

/// A row with a budget: rows of keys, teams, users and memberships have the same members.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct BudgetRow {
    #[serde(deserialize_with = "amount")]
    max_budget: Option<Usd>,
    #[serde(deserialize_with = "amount")]
    spend: Option<Usd>,
    budget_reset_at: Option<String>,
    pub(super) team_id: Option<String>,
    pub(super) user_id: Option<String>,
    litellm_budget_table: Option<LinkedLimit>,
    budget_limits: Option<Vec<LimitWindow>>,
}

/// A limit in its own row.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LinkedLimit {
    #[serde(deserialize_with = "amount")]
    max_budget: Option<Usd>,
    budget_reset_at: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct KeyAnswer {
    pub(super) info: BudgetRow,
}

#[derive(Deserialize)]
pub(super) struct UserAnswer {
    pub(super) user_info: BudgetRow,
}

#[derive(Deserialize)]
pub(super) struct TeamAnswer {
    team_info: BudgetRow,
    #[serde(default)]
    team_memberships: Vec<BudgetRow>,
}

/// A budget that is reset after each duration. No route states the amount that is spent.
#[derive(Debug, Deserialize)]
struct LimitWindow {
    #[serde(default, deserialize_with = "amount")]
    max_budget: Option<Usd>,
    #[serde(default)]
    reset_at: Option<String>,
}

impl BudgetRow {
    /// Returns the budgets of the row: one without a duration, and one for each duration.
    pub(super) fn budgets(self, of: &str) -> Vec<LitellmBudget> {
        let usd = |usd: &Usd| Usd::from_nanos(usd.to_nanos()).to_string();
        let of_table = self.litellm_budget_table.unwrap_or_default();
        let limit = self.max_budget.or(of_table.max_budget);
        let scalar = limit.map(|limit| {
            let spent = self.spend.unwrap_or_else(|| Usd::from_nanos(0));
            LitellmBudget {
                of: of.to_owned(),
                is_used_up: spent.to_nanos() >= limit.to_nanos(),
                limit_usd: Some(usd(&limit)),
                spent_usd: Some(usd(&spent)),
                resets: self.budget_reset_at.or(of_table.budget_reset_at),
            }
        });
        let windows = self.budget_limits.unwrap_or_default().into_iter().map(|window| LitellmBudget {
            of: of.to_owned(),
            is_used_up: false,
            limit_usd: window.max_budget.as_ref().map(usd),
            spent_usd: None,
            resets: window.reset_at,
        });
        scalar.into_iter().chain(windows).collect()
    }
}

impl TeamAnswer {
    /// Returns the budgets of the team, and the budgets of the key's user as its member.
    pub(super) fn budgets(self, user: Option<&str>) -> Vec<LitellmBudget> {
        let mut budgets = self.team_info.budgets("team");
        let is_member = |member: &BudgetRow| user.is_some() && member.user_id.as_deref() == user;
        let member = self.team_memberships.into_iter().find(is_member);
        budgets.extend(member.into_iter().flat_map(|member| member.budgets("team_member")));
        budgets
    }
}
