//! Checks of the budgets at LiteLLM that would stop the calls of the account, as far as the key may read them.
//!
//! The key of `key_file` may read its own budget and the budgets of its team and its user. The customer's budget needs
//! an admin's key.

use serde::Deserialize;
use sluice_contract::text::{error_chain, truncate};
use sluice_litellm::client::query_value;
use sluice_litellm::{Litellm, LitellmError};

use super::budget_rows::{BudgetRow, KeyAnswer, TeamAnswer, UserAnswer};
use super::{Check, LitellmBudget, pass, warn};
use crate::settings::Settings;

const NAME: &str = "litellm budgets";

/// The result of one route.
#[derive(Debug)]
enum RouteResult {
    /// Budgets; there may be none.
    Budgets(Vec<LitellmBudget>),
    /// LiteLLM has no database, so it has no budgets.
    NoDatabase,
    /// The key may not read the budget of this owner; the status of the answer.
    Denied(&'static str, u16),
    /// The budget of this owner could not be read, for this reason.
    Unreadable(&'static str, String),
}

/// Returns one check for each budget, one for all budgets that could not be read, and one if there are none.
pub(super) async fn budgets(settings: &Settings) -> Vec<Check> {
    let (Some(upstream), Some(key)) = (&settings.litellm.upstream, &settings.litellm.key) else { return Vec::new() };
    let litellm = match Litellm::new(upstream, key.clone()) {
        Ok(litellm) => litellm,
        Err(error) => return vec![warn(NAME, error_chain(&error))],
    };
    checks(settings.run.account.as_str(), read_all(&litellm, settings.run.account.as_str()).await)
}

async fn read_all(litellm: &Litellm, account: &str) -> Vec<RouteResult> {
    let customer = format!("/customer/info?end_user_id={}", query_value(account));
    let (customer, key) = tokio::join!(
        read::<BudgetRow>(litellm, "customer", &customer),
        read::<KeyAnswer>(litellm, "key", "/key/info"),
    );
    let mut found = vec![customer.map_or_else(|found| found, |row| RouteResult::Budgets(row.budgets("customer")))];
    let key = match key {
        Ok(key) => key.info,
        Err(none) => {
            found.push(none);
            return found;
        }
    };
    let (team, user) = (key.team_id.clone(), key.user_id.clone());
    found.push(RouteResult::Budgets(key.budgets("key")));
    // LiteLLM applies the budget of a user only to keys without a team.
    match (team, user) {
        (Some(team), user) => {
            let path = format!("/team/info?team_id={}", query_value(&team));
            let team = read::<TeamAnswer>(litellm, "team", &path).await;
            found.push(team.map_or_else(|found| found, |team| RouteResult::Budgets(team.budgets(user.as_deref()))));
        }
        (None, Some(user)) => {
            let path = format!("/user/info?user_id={}", query_value(&user));
            let user = read::<UserAnswer>(litellm, "user", &path).await;
            found.push(user.map_or_else(|found| found, |user| RouteResult::Budgets(user.user_info.budgets("user"))));
        }
        (None, None) => {}
    }
    found
}

/// Reads the answer of one route; returns a result without an answer as the error.
async fn read<T: for<'a> Deserialize<'a>>(litellm: &Litellm, of: &'static str, path: &str) -> Result<T, RouteResult> {
    match litellm.get(path).await {
        Ok(body) => serde_json::from_slice(&body).map_err(|_| {
            RouteResult::Unreadable(of, format!("LiteLLM's answer to GET {} cannot be read", before_query(path)))
        }),
        // LiteLLM has no such customer, or the key is the master key: neither has a budget.
        Err(LitellmError::Status(_, 404)) => Err(RouteResult::Budgets(Vec::new())),
        Err(LitellmError::Budget(_, _, spent)) => Err(RouteResult::Budgets(vec![LitellmBudget {
            of: spent.of,
            limit_usd: spent.limit_usd,
            spent_usd: spent.spent_usd,
            resets: None,
            is_used_up: true,
        }])),
        Err(LitellmError::NoDatabase(_) | LitellmError::NotMaster(_)) => Err(RouteResult::NoDatabase),
        Err(LitellmError::Denied(_, status)) => Err(RouteResult::Denied(of, status)),
        Err(error) => Err(RouteResult::Unreadable(of, error_chain(&error))),
    }
}

fn before_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// Returns the checks of all results.
fn checks(account: &str, results: Vec<RouteResult>) -> Vec<Check> {
    if results.iter().any(|result| matches!(result, RouteResult::NoDatabase)) {
        return vec![pass(NAME, "LiteLLM has no budgets, because it has no database".to_owned())];
    }
    let (mut checks, mut unread, mut remedy) = (Vec::new(), Vec::new(), "");
    for result in results {
        match result {
            RouteResult::Budgets(budgets) => {
                for budget in budgets {
                    if !checks.iter().any(|check: &Check| check.budget.as_ref() == Some(&budget)) {
                        checks.push(budget_check(account, budget));
                    }
                }
            }
            RouteResult::NoDatabase => {}
            RouteResult::Denied(of, status) => {
                unread.push(format!("of the {of} (status {status})"));
                remedy = "; an admin's key reads all";
            }
            RouteResult::Unreadable(of, why) => unread.push(format!("of the {of} ({why})")),
        }
    }
    let is_clear = checks.is_empty();
    if !unread.is_empty() {
        let detail = format!(
            "the key of key_file cannot read the budget {}; calls work, and LiteLLM refuses them once it is used up\
             {remedy}",
            unread.join(", nor ")
        );
        checks.push(pass(NAME, truncate(&detail)));
    } else if is_clear {
        checks.push(pass(NAME, format!("none for account {account}, its key, team or user")));
    }
    checks
}

fn budget_check(account: &str, budget: LitellmBudget) -> Check {
    let owner = match budget.of.as_str() {
        "customer" => format!("customer {account}"),
        "key" => "the key of key_file".to_owned(),
        "team" => "its team".to_owned(),
        "team_member" => "its member of the team".to_owned(),
        "user" => "its user".to_owned(),
        other => sluice_contract::budget::owner_in_words(other).to_owned(),
    };
    let unknown = || "an unknown amount".to_owned();
    let usd = |amount: &Option<String>| amount.as_ref().map_or_else(unknown, |amount| format!("${amount}"));
    let resets = budget.resets.as_ref().map_or("no reset is set".to_owned(), |at| format!("reset at {at}"));
    let amounts = format!("{owner}: {} spent of {}, {resets}", usd(&budget.spent_usd), usd(&budget.limit_usd));
    let check = if budget.is_used_up {
        warn(NAME, truncate(&format!("{amounts}; it is used up: LiteLLM refuses calls until it is raised or reset")))
    } else {
        pass(NAME, truncate(&amounts))
    };
    Check { budget: Some(budget), ..check }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: Vec<RouteResult>) -> Vec<(&'static str, String)> {
        checks("acct-1", found).into_iter().map(|check| (check.status.as_str(), check.detail)).collect()
    }

    fn row(text: &str) -> BudgetRow {
        serde_json::from_str(text).expect("a row")
    }

    #[test]
    fn a_budget_has_its_limit_and_its_reset() {
        let customer = row(r#"{"user_id":"acct-1","spend":0.000045,"models":[],
                "litellm_budget_table":{"max_budget":0.00001,"budget_duration":null,"budget_reset_at":null}}"#);
        let key = row(
            r#"{"spend":0.25,"max_budget":5e-1,"budget_reset_at":"2026-11-23T00:00:00+00:00","litellm_budget_table":null,
                "budget_limits":[{"budget_duration":"1h","max_budget":2.0,"reset_at":"2026-11-22T12:00:00Z"}]}"#,
        );
        let found = vec![RouteResult::Budgets(customer.budgets("customer")), RouteResult::Budgets(key.budgets("key"))];
        assert_eq!(
            lines(found),
            [
                (
                    "warn",
                    "customer acct-1: $0.000045 spent of $0.00001, no reset is set; it is used up: LiteLLM refuses calls until \
                     it is raised or reset"
                        .to_owned()
                ),
                ("pass", "the key of key_file: $0.25 spent of $0.5, reset at 2026-11-23T00:00:00+00:00".to_owned()),
                (
                    "pass",
                    "the key of key_file: an unknown amount spent of $2, reset at 2026-11-22T12:00:00Z".to_owned()
                ),
            ]
        );
    }

    #[test]
    fn a_team_and_its_member_have_budgets() {
        let team: TeamAnswer = serde_json::from_str(
            r#"{"team_info":{"max_budget":5.0,"spend":1},"team_memberships":[
                {"user_id":"u8","spend":9,"litellm_budget_table":{"max_budget":1}},
                {"user_id":"u9","spend":2.0,"litellm_budget_table":{"max_budget":2.0}}]}"#,
        )
        .expect("an answer");
        let budgets = team.budgets(Some("u9"));
        let lines: Vec<_> = budgets.iter().map(|it| (it.of.as_str(), it.limit_usd.as_deref(), it.is_used_up)).collect();
        assert_eq!(lines, [("team", Some("5"), false), ("team_member", Some("2"), true)]);
    }

    #[test]
    fn a_budget_that_cannot_be_read_is_named() {
        assert_eq!(lines(vec![]), [("pass", "none for account acct-1, its key, team or user".to_owned())]);
        let text = |other: &str, remedy: &str| {
            format!(
                "the key of key_file cannot read the budget {other}; calls work, and LiteLLM refuses them once it is \
                 used up{remedy}"
            )
        };
        let late = || RouteResult::Unreadable("key", "no answer".into());
        for (found, expected) in [
            (vec![late(), RouteResult::Budgets(vec![])], text("of the key (no answer)", "")),
            (
                vec![RouteResult::Denied("customer", 403), late()],
                text("of the customer (status 403), nor of the key (no answer)", "; an admin's key reads all"),
            ),
        ] {
            assert_eq!(lines(found), [("pass", expected)]);
        }
    }

    #[test]
    fn without_a_database_there_are_no_budgets() {
        let found = vec![RouteResult::NoDatabase, RouteResult::Unreadable("key", "status 500".into())];
        assert_eq!(lines(found), [("pass", "LiteLLM has no budgets, because it has no database".to_owned())]);
    }

    #[test]
    fn the_same_refusal_of_two_routes_is_reported_once() {
        let spent = || {
            let (limit_usd, spent_usd) = (Some("1".to_owned()), Some("1.5".to_owned()));
            RouteResult::Budgets(vec![LitellmBudget {
                of: "team".into(),
                limit_usd,
                spent_usd,
                resets: None,
                is_used_up: true,
            }])
        };
        let lines = lines(vec![spent(), spent()]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].0 == "warn" && lines[0].1.starts_with("its team: $1.5 spent of $1, "), "{lines:?}");
    }
}
