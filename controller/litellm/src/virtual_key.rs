//! Virtual keys: LiteLLM makes one for a run before its sidecar starts, and deletes it when the run is over.
//!
//! A key allows the run's models, a hundred times the run's cap (at least 10 dollars), and only model routes. LiteLLM
//! ends the key a little after the run must have ended. The sidecar enforces the cap itself: LiteLLM reserves the
//! maximum cost of a call against a key's budget and frees it some time after the answer, so a budget equal to the cap
//! would refuse calls that fit.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sluice_contract::{RunKey, Usd};
use zeroize::Zeroizing;

use crate::client::{KeyBound, Litellm, LitellmError};
use crate::secret::ApiKey;

/// Budget of a key as a multiple of its run's cap. LiteLLM frees the reservation of a call some time after the answer:
/// in measurements, twice the cap was enough for sequential calls, and four times the cap for two calls at once.
const KEY_BUDGET_CAPS: i64 = 100;
/// Minimum budget of a key in nano-USD: LiteLLM counts some documents at more than they cost.
const KEY_BUDGET_MIN: i64 = 10_000_000_000;

/// The rights of a virtual key.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct Grant<'a> {
    pub key: &'a RunKey,
    /// Name of the controller: run ids are unique within it.
    pub instance: &'a str,
    pub account: &'a str,
    pub graph_id: &'a str,
    pub models: &'a [String],
    /// Cap of the run, in nano-USD.
    pub max_cost: Option<i64>,
    /// Time until LiteLLM ends the key by itself.
    pub lifetime: Duration,
    /// Address of the LiteLLM that makes it.
    pub upstream: &'a str,
}

/// Error of a request for a virtual key.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// LiteLLM refused, or gave no answer.
    #[error(transparent)]
    Litellm(#[from] LitellmError),
    /// LiteLLM gave another answer than a key.
    #[error("LiteLLM's answer to POST /key/generate holds no key")]
    NoKey,
}

/// A trial of virtual keys that failed.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// LiteLLM made no key.
    #[error("cannot get a virtual key; --key-mode master uses the key of key_file")]
    Generate(#[from] GenerateError),
    /// LiteLLM made a key, and the key is still there.
    #[error("LiteLLM made a virtual key and did not delete it")]
    Delete(#[source] LitellmError),
}

#[derive(Serialize)]
struct GenerateRequest<'a> {
    key_alias: &'a str,
    duration: String,
    models: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_budget: Option<Box<RawValue>>,
    key_type: &'static str,
    metadata: KeyMetadata<'a>,
}

#[derive(Serialize)]
struct KeyMetadata<'a> {
    made_by: &'static str,
    run_id: &'a str,
    attempt: u32,
    account: &'a str,
    graph_id: &'a str,
}

#[derive(Deserialize)]
struct GenerateResponse {
    key: String,
}

#[derive(Serialize)]
struct DeleteRequest<'a> {
    key_aliases: [&'a str; 1],
}

#[derive(Serialize)]
struct UpdateRequest<'a> {
    key_alias: &'a str,
    duration: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_budget: Option<Box<RawValue>>,
}

impl Grant<'_> {
    /// Name of the key at LiteLLM.
    #[must_use]
    pub fn alias(&self) -> String {
        format!("sluice-{}-{}", &self.instance[..8.min(self.instance.len())], self.key)
    }
}

/// Makes a key. Where LiteLLM allows no key with such a budget, the key gets LiteLLM's default budget.
///
/// # Errors
/// [`GenerateError`]. LiteLLM may have made the key nevertheless, unless [`GenerateError::is_refusal`].
pub async fn generate(litellm: &Litellm, grant: &Grant<'_>) -> Result<ApiKey, GenerateError> {
    let alias = grant.alias();
    let budget = grant.max_cost.map(key_budget);
    let answer = match litellm.post("/key/generate", &request(grant, &alias, budget)).await {
        Err(LitellmError::Bound(_, _, KeyBound::MaxBudget)) if budget.is_some() => {
            litellm.post("/key/generate", &request(grant, &alias, None)).await
        }
        answer => answer,
    };
    key_in(&answer?)
}

/// Deletes a key.
///
/// # Errors
/// [`LitellmError`]; status 404 where LiteLLM has no such key.
pub async fn delete(litellm: &Litellm, alias: &str) -> Result<(), LitellmError> {
    litellm.post("/key/delete", &DeleteRequest { key_aliases: [alias] }).await.map(drop)
}

/// Raises the budget of a key to the budget for a run with this cap, and extends its life to this time from now. If LiteLLM
/// allows no key with such a budget, only its life changes: it has LiteLLM's default budget.
///
/// # Errors
/// [`LitellmError`].
pub async fn raise(
    litellm: &Litellm,
    alias: &str,
    max_cost: Option<i64>,
    lifetime: Duration,
) -> Result<(), LitellmError> {
    let budget = max_cost.map(key_budget);
    match litellm.post("/key/update", &update(alias, budget, lifetime)).await {
        Err(LitellmError::Bound(_, _, KeyBound::MaxBudget)) if budget.is_some() => {
            litellm.post("/key/update", &update(alias, None, lifetime)).await.map(drop)
        }
        answer => answer.map(drop),
    }
}

/// Makes a key and deletes it again, as for a run. Nothing is recorded: a key that is not deleted ends with its lifetime.
///
/// # Errors
/// [`TrialError`].
pub async fn try_out(litellm: &Litellm, grant: &Grant<'_>) -> Result<(), TrialError> {
    let generated = generate(litellm, grant).await;
    let deleted = delete(litellm, &grant.alias()).await;
    generated?;
    deleted.map_err(TrialError::Delete)
}

fn key_budget(max_cost: i64) -> i64 {
    max_cost.saturating_mul(KEY_BUDGET_CAPS).max(KEY_BUDGET_MIN)
}

fn key_in(answer: &Zeroizing<Vec<u8>>) -> Result<ApiKey, GenerateError> {
    let response: GenerateResponse = serde_json::from_slice(answer).map_err(|_| GenerateError::NoKey)?;
    ApiKey::new(response.key).filter(|key| key.bearer().is_some()).ok_or(GenerateError::NoKey)
}

fn update(alias: &str, budget: Option<i64>, lifetime: Duration) -> UpdateRequest<'_> {
    let duration = format!("{}s", lifetime.as_secs().max(1));
    UpdateRequest { key_alias: alias, duration, max_budget: budget.map(dollars) }
}

fn dollars(nanos: i64) -> Box<RawValue> {
    RawValue::from_string(Usd::from_nanos(nanos).to_string()).expect("a decimal is JSON")
}

fn request<'a>(grant: &Grant<'a>, alias: &'a str, budget: Option<i64>) -> GenerateRequest<'a> {
    GenerateRequest {
        key_alias: alias,
        duration: format!("{}s", grant.lifetime.as_secs().max(1)),
        models: grant.models.iter().map(String::as_str).collect(),
        max_budget: budget.map(dollars),
        // Excludes routes that make keys or read the spending of others, whatever the models are.
        key_type: "llm_api",
        metadata: KeyMetadata {
            made_by: "sluice",
            run_id: grant.key.run_id.as_str(),
            attempt: grant.key.attempt,
            account: grant.account,
            graph_id: grant.graph_id,
        },
    }
}

impl GenerateError {
    /// Returns whether LiteLLM certainly made no key.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NoKey => false,
            Self::Litellm(error) => match error {
                LitellmError::Address(_)
                | LitellmError::Key
                | LitellmError::Unreachable(..)
                | LitellmError::Denied(..)
                | LitellmError::NoDatabase(_)
                | LitellmError::NotMaster(_) => true,
                LitellmError::Status(_, status)
                | LitellmError::Budget(_, status, _)
                | LitellmError::Bound(_, status, _) => *status < 500,
                LitellmError::Broken(..) | LitellmError::Late(..) | LitellmError::TooLong(..) => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant<'a>(key: &'a RunKey, models: &'a [String], max_cost: Option<i64>) -> Grant<'a> {
        Grant {
            key,
            instance: "0123456789abcdef",
            account: "acct-1",
            graph_id: "sandbox:agent",
            models,
            max_cost,
            lifetime: Duration::from_millis(300_500),
            upstream: "http://127.0.0.1:4000",
        }
    }

    #[test]
    fn a_request_has_the_rights_of_its_run() {
        let key = "r1.2".parse().expect("a key");
        let models = ["m".to_owned()];
        let text = |grant: Grant<'_>| {
            let budget = grant.max_cost.map(key_budget);
            serde_json::to_string(&request(&grant, "a", budget)).expect("plain data")
        };
        assert_eq!(
            text(grant(&key, &models, Some(250_000_001))),
            concat!(
                r#"{"key_alias":"a","duration":"300s","models":["m"],"max_budget":25.0000001,"key_type":"llm_api","#,
                r#""metadata":{"made_by":"sluice","run_id":"r1","attempt":2,"account":"acct-1","graph_id":"sandbox:agent"}}"#
            )
        );
        let least = text(grant(&key, &models, Some(1_000)));
        assert!(least.contains(r#""max_budget":10,"#), "{least}");
        let open = text(grant(&key, &[], None));
        assert!(open.contains(r#""models":[],"key_type""#), "{open}");
    }

    #[test]
    fn a_raise_names_key_budget_and_life() {
        let text =
            |budget| serde_json::to_string(&update("a", budget, Duration::from_millis(90_500))).expect("plain data");
        assert_eq!(text(Some(25_000_000_000)), r#"{"key_alias":"a","duration":"90s","max_budget":25}"#);
        assert_eq!(text(None), r#"{"key_alias":"a","duration":"90s"}"#);
    }

    #[test]
    fn only_a_certain_refusal_means_no_key() {
        let status = |status| LitellmError::Status(String::new(), status);
        for (error, refused) in [
            (LitellmError::NoDatabase(String::new()), true),
            (LitellmError::NotMaster(String::new()), true),
            (LitellmError::Denied(String::new(), 403), true),
            (LitellmError::Unreachable(String::new(), std::io::Error::other("x")), true),
            (status(404), true),
            (status(422), true),
            (LitellmError::Bound(String::new(), 400, KeyBound::Duration), true),
            (status(500), false),
            (status(504), false),
            (LitellmError::Late(String::new(), Duration::from_secs(60)), false),
            (LitellmError::Broken(String::new(), std::io::Error::other("x")), false),
            (LitellmError::TooLong(String::new(), 1), false),
        ] {
            let error = GenerateError::from(error);
            assert_eq!(error.is_refusal(), refused, "{error:?}");
        }
        assert!(!GenerateError::NoKey.is_refusal());
    }
}
