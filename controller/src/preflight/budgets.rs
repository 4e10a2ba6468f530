//! Which budgets at LiteLLM would stop the calls of the account, as far as the key may read them.
//!
//! The key of `key_file` reads its own budget and those of its team and its user; the customer's takes an admin's key.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sluice_contract::Usd;
use sluice_contract::text::{error_chain, truncate};
use sluice_litellm::client::escaped;
use sluice_litellm::{Litellm, LitellmError};

use super::{Budget, Check, pass, warn};
use crate::settings::Settings;

const NAME: &str = "litellm budgets";

/// What was found at one place.
#[derive(Debug)]
enum Found {
    /// Budgets; there may be none.
    Budgets(Vec<Budget>),
    /// It could not be read: whose, and why.
    Unread(&'static str, String),
}

/// One check for each budget, one for what could not be read, and one where there is nothing to tell.
pub(super) async fn budgets(settings: &Settings) -> Vec<Check> {
    let (Some(upstream), Some(key)) = (&settings.upstream, &settings.key) else { return Vec::new() };
    let litellm = match Litellm::new(upstream, key.clone()) {
        Ok(litellm) => litellm,
        Err(error) => return vec![warn(NAME, error_chain(&error))],
    };
    told(settings.account.as_str(), all(&litellm, settings.account.as_str()).await)
}

async fn all(litellm: &Litellm, account: &str) -> Vec<Found> {
    let customer = format!("/customer/info?end_user_id={}", escaped(account));
    let (customer, key) =
        tokio::join!(ask::<Row>(litellm, "customer", &customer), ask::<KeyAnswer>(litellm, "key", "/key/info"),);
    let mut found = vec![customer.map_or_else(|found| found, |row| Found::Budgets(row.budgets("customer")))];
    let key = match key {
        Ok(key) => key.info,
        Err(none) => {
            found.push(none);
            return found;
        }
    };
    let (team, user) = (key.team_id.clone(), key.user_id.clone());
    found.push(Found::Budgets(key.budgets("key")));
    // LiteLLM counts the budget of a user for keys without a team alone.
    match (team, user) {
        (Some(team), user) => {
            let path = format!("/team/info?team_id={}", escaped(&team));
            let team = ask::<TeamAnswer>(litellm, "team", &path).await;
            found.push(team.map_or_else(|found| found, |team| Found::Budgets(team.budgets(user.as_deref()))));
        }
        (None, Some(user)) => {
            let path = format!("/user/info?user_id={}", escaped(&user));
            let user = ask::<UserAnswer>(litellm, "user", &path).await;
            found.push(user.map_or_else(|found| found, |user| Found::Budgets(user.user_info.budgets("user"))));
        }
        (None, None) => {}
    }
    found
}

/// The answer of one route, or what is to be said instead.
async fn ask<T: for<'a> Deserialize<'a>>(litellm: &Litellm, of: &'static str, path: &str) -> Result<T, Found> {
    match litellm.get(path).await {
        Ok(body) => serde_json::from_slice(&body)
            .map_err(|_| Found::Unread(of, format!("LiteLLM's answer to GET {} cannot be read", before_query(path)))),
        // It has no such customer, or the key is the master key: neither has a budget of its own.
        Err(LitellmError::Status(_, 404)) => Err(Found::Budgets(Vec::new())),
        Err(LitellmError::Budget(_, _, spent)) => Err(Found::Budgets(vec![Budget {
            of: spent.of,
            limit_usd: spent.limit_usd,
            spent_usd: spent.spent_usd,
            resets: None,
            is_used_up: true,
        }])),
        Err(LitellmError::Denied(_, status)) => Err(Found::Unread(of, format!("status {status}"))),
        Err(error) => Err(Found::Unread(of, error_chain(&error))),
    }
}

fn before_query(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

/// What is said of it.
fn told(account: &str, found: Vec<Found>) -> Vec<Check> {
    let (mut checks, mut unread) = (Vec::new(), Vec::new());
    for found in found {
        match found {
            Found::Budgets(budgets) => {
                for budget in budgets {
                    if !checks.iter().any(|check: &Check| check.budget.as_ref() == Some(&budget)) {
                        checks.push(of_budget(account, budget));
                    }
                }
            }
            Found::Unread(of, why) => unread.push((of, why)),
        }
    }
    let is_clear = checks.is_empty();
    if !unread.is_empty() {
        let parts: Vec<_> = unread.iter().map(|(of, why)| format!("of the {of} ({why})")).collect();
        let mut detail = format!("the key of key_file cannot read the budget {}", parts.join(", nor "));
        let _ = write!(detail, "; calls work, and LiteLLM refuses them once it is used up; an admin's key reads all");
        checks.push(pass(NAME, truncate(&detail)));
    } else if is_clear {
        checks.push(pass(NAME, format!("none for account {account}, its key, team or user")));
    }
    checks
}

fn of_budget(account: &str, budget: Budget) -> Check {
    let whose = match budget.of.as_str() {
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
    let amounts = format!("{whose}: {} spent of {}, {resets}", usd(&budget.spent_usd), usd(&budget.limit_usd));
    let check = if budget.is_used_up {
        warn(NAME, truncate(&format!("{amounts}; it is used up: LiteLLM refuses calls until it is raised or reset")))
    } else {
        pass(NAME, truncate(&amounts))
    };
    Check { budget: Some(budget), ..check }
}

/// Amounts as LiteLLM writes them: floats, of which only the text is exact.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Usd>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| Usd::parse(raw.get()).ok()))
}

/// A row with a budget: those of keys, teams, users and memberships have the same names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    #[serde(deserialize_with = "amount")]
    max_budget: Option<Usd>,
    #[serde(deserialize_with = "amount")]
    spend: Option<Usd>,
    budget_reset_at: Option<String>,
    team_id: Option<String>,
    user_id: Option<String>,
    litellm_budget_table: Option<Limit>,
    budget_limits: Option<Vec<Window>>,
}

/// A limit that stands in a row of its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Limit {
    #[serde(deserialize_with = "amount")]
    max_budget: Option<Usd>,
    budget_reset_at: Option<String>,
}

#[derive(Deserialize)]
struct KeyAnswer {
    info: Row,
}

#[derive(Deserialize)]
struct UserAnswer {
    user_info: Row,
}

#[derive(Deserialize)]
struct TeamAnswer {
    team_info: Row,
    #[serde(default)]
    team_memberships: Vec<Row>,
}

/// A budget that begins anew after each duration. What is spent of it is told by no route.
#[derive(Debug, Deserialize)]
struct Window {
    #[serde(default, deserialize_with = "amount")]
    max_budget: Option<Usd>,
    #[serde(default)]
    reset_at: Option<String>,
}

impl Row {
    fn budgets(self, of: &str) -> Vec<Budget> {
        let usd = |usd: &Usd| Usd::from_nanos(usd.to_nanos()).to_string();
        let of_table = self.litellm_budget_table.unwrap_or_default();
        let limit = self.max_budget.or(of_table.max_budget);
        let scalar = limit.map(|limit| {
            let spent = self.spend.unwrap_or_else(|| Usd::from_nanos(0));
            Budget {
                of: of.to_owned(),
                is_used_up: spent.to_nanos() >= limit.to_nanos(),
                limit_usd: Some(usd(&limit)),
                spent_usd: Some(usd(&spent)),
                resets: self.budget_reset_at.or(of_table.budget_reset_at),
            }
        });
        let windows = self.budget_limits.unwrap_or_default().into_iter().map(|window| Budget {
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
    /// That of the team, and that of the key's user in it.
    fn budgets(self, user: Option<&str>) -> Vec<Budget> {
        let mut budgets = self.team_info.budgets("team");
        let is_member = |member: &Row| user.is_some() && member.user_id.as_deref() == user;
        let member = self.team_memberships.into_iter().find(is_member);
        budgets.extend(member.into_iter().flat_map(|member| member.budgets("team_member")));
        budgets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: Vec<Found>) -> Vec<(&'static str, String)> {
        told("acct-1", found).into_iter().map(|check| (check.status.as_str(), check.detail)).collect()
    }

    fn row(text: &str) -> Row {
        serde_json::from_str(text).expect("a row")
    }

    #[test]
    fn a_budget_is_told_with_its_limit_and_its_reset() {
        let customer = row(r#"{"user_id":"acct-1","spend":0.000045,"models":[],
                "litellm_budget_table":{"max_budget":0.00001,"budget_duration":null,"budget_reset_at":null}}"#);
        let key = row(
            r#"{"spend":0.25,"max_budget":5e-1,"budget_reset_at":"2026-11-23T00:00:00+00:00","litellm_budget_table":null,
                "budget_limits":[{"budget_duration":"1h","max_budget":2.0,"reset_at":"2026-11-22T12:00:00Z"}]}"#,
        );
        let found = vec![Found::Budgets(customer.budgets("customer")), Found::Budgets(key.budgets("key"))];
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
    fn a_team_has_a_budget_and_so_has_its_member() {
        let team: TeamAnswer = serde_json::from_str(
            r#"{"team_info":{"max_budget":5.0,"spend":1},"team_memberships":[
                {"user_id":"u8","spend":9,"litellm_budget_table":{"max_budget":1}},
                {"user_id":"u9","spend":2.0,"litellm_budget_table":{"max_budget":2.0}}]}"#,
        )
        .expect("an answer");
        let budgets = team.budgets(Some("u9"));
        let told: Vec<_> = budgets.iter().map(|it| (it.of.as_str(), it.limit_usd.as_deref(), it.is_used_up)).collect();
        assert_eq!(told, [("team", Some("5"), false), ("team_member", Some("2"), true)]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert_eq!(lines(vec![]), [("pass", "none for account acct-1, its key, team or user".to_owned())]);
        let unread = lines(vec![Found::Unread("customer", "status 403".into()), Found::Budgets(vec![])]);
        assert_eq!(unread.len(), 1);
        assert!(unread[0].1.contains("of the customer (status 403)"), "{unread:?}");
    }

    #[test]
    fn the_same_refusal_of_two_questions_is_told_once() {
        let spent = || {
            let (limit_usd, spent_usd) = (Some("1".to_owned()), Some("1.5".to_owned()));
            Found::Budgets(vec![Budget { of: "team".into(), limit_usd, spent_usd, resets: None, is_used_up: true }])
        };
        let told = lines(vec![spent(), spent()]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0 == "warn" && told[0].1.starts_with("its team: $1.5 spent of $1, "), "{told:?}");
    }
}
