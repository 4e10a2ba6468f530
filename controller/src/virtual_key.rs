//! A key of its own for a run: made by LiteLLM before the run's sidecar starts, deleted when the run is over.
//!
//! It can name one model, spend a hundred times the run's cap, call no route but those of models, and ends by itself a
//! little after the run must have. The cap itself is the sidecar's to keep: LiteLLM reserves what a call could cost at most
//! against a key's budget, and frees it some time after the answer, so a budget of the cap refuses calls that fit. The name
//! under which LiteLLM deletes it is in the database before LiteLLM is asked to make it, so that whoever comes after a kill
//! finds it; the key itself is in the memory of two processes and nowhere else.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sluice_contract::Usd;
use zeroize::Zeroizing;

use crate::litellm::{Bound, Litellm, LitellmError};
use crate::secret::Key;
use crate::store::{Store, StoreError, now_us};
use sluice_contract::RunKey;
use sluice_contract::text::error_chain;

mod record;

pub use record::Asked;

/// Whose key the sidecar of a run gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMode {
    /// The operator's.
    Master,
    /// One of its own, or there is no run.
    PerRun,
    /// One of its own where LiteLLM makes one, else the operator's, and that is said.
    Auto,
}

/// What a key is to be good for.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct Grant<'a> {
    pub key: &'a RunKey,
    /// The controller's name: run ids are unique to it.
    pub instance: &'a str,
    pub account: &'a str,
    pub graph_id: &'a str,
    pub models: &'a [String],
    /// The run's cap, in nano-USD.
    pub max_cost: Option<i64>,
    /// How long it is good at all.
    pub lifetime: Duration,
    /// The LiteLLM that makes it.
    pub upstream: &'a str,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// LiteLLM did not make one, or did not say so.
    #[error("cannot get a virtual key for the run; --key-mode master uses the key of key_file")]
    Asked(#[from] LitellmError),
    /// It answered with something else.
    #[error("LiteLLM's answer to POST /key/generate holds no key; --key-mode master uses the key of key_file")]
    NoKey,
    /// It cannot be written down, and nobody would find it.
    #[error("cannot record a virtual key")]
    Record(#[from] StoreError),
}

/// After so long no request of ours is still under way in LiteLLM.
const UNDER_WAY: Duration = Duration::from_secs(60);
/// So long after its end a key that cannot be deleted is left to LiteLLM.
const GIVEN_UP: Duration = Duration::from_secs(3600);

/// The budget of a key is so many times the cap of its run. What LiteLLM has not freed yet of earlier calls is no more
/// than the cap for each time in which all calls of the run are answered; four times was enough in bursts of calls without
/// a bound, and two times back to back.
const KEY_BUDGET_CAPS: i64 = 100;
/// It is not less than this, in nano-USD: LiteLLM counts some documents at more than they cost.
const KEY_BUDGET_MIN: i64 = 10_000_000_000;

#[derive(Serialize)]
struct Generate<'a> {
    key_alias: &'a str,
    duration: String,
    models: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_budget: Option<Box<RawValue>>,
    key_type: &'static str,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    made_by: &'static str,
    run_id: &'a str,
    attempt: u32,
    account: &'a str,
    graph_id: &'a str,
}

#[derive(Deserialize)]
struct Generated {
    key: String,
}

#[derive(Serialize)]
struct Delete<'a> {
    key_aliases: [&'a str; 1],
}

/// Has LiteLLM make a key.
///
/// # Errors
/// [`MintError`]. It may have been made all the same; [`revoke`] deletes it then.
pub async fn mint(store: &Store, litellm: &Litellm, grant: &Grant<'_>) -> Result<Key, MintError> {
    let now = now_us();
    let alias = alias(grant);
    let lifetime = i64::try_from(grant.lifetime.as_micros()).unwrap_or(i64::MAX);
    let asked = Asked {
        alias: alias.clone(),
        key: grant.key.clone(),
        upstream: grant.upstream.to_owned(),
        asked_us: now,
        expires_us: now.saturating_add(lifetime),
    };
    store.key_asked(asked).await?;
    match ask(litellm, grant, &alias).await {
        Ok(answer) => key_in(&answer),
        Err(error) => {
            if was_refused(&error) {
                store.key_ended(&alias, "refused").await?;
            }
            Err(error.into())
        }
    }
}

/// Has LiteLLM make a key and delete it again, as it would for a run. Nothing is written down: one that stays behind
/// ends with its lifetime.
///
/// # Errors
/// In words.
pub async fn try_out(litellm: &Litellm, grant: &Grant<'_>) -> Result<(), String> {
    let alias = alias(grant);
    let answer = ask(litellm, grant, &alias).await;
    let made = answer.map_err(MintError::from).and_then(|answer| key_in(&answer));
    let deleted = litellm.post("/key/delete", &Delete { key_aliases: [&alias] }).await;
    made.map_err(|error| error_chain(&error))?;
    deleted.map(drop).map_err(|error| format!("LiteLLM has made one, and does not delete it: {}", error_chain(&error)))
}

/// Asks for a key. Where LiteLLM allows none with such a budget, it gets the one that LiteLLM gives to keys without.
async fn ask(litellm: &Litellm, grant: &Grant<'_>, alias: &str) -> Result<Zeroizing<Vec<u8>>, LitellmError> {
    let budget = grant.max_cost.map(key_budget);
    match litellm.post("/key/generate", &generate(grant, alias, budget)).await {
        Err(LitellmError::Bound(_, _, Bound::MaxBudget)) if budget.is_some() => {
            litellm.post("/key/generate", &generate(grant, alias, None)).await
        }
        answer => answer,
    }
}

/// The budget of a key, for a run with this cap; both in nano-USD.
fn key_budget(cap: i64) -> i64 {
    cap.saturating_mul(KEY_BUDGET_CAPS).max(KEY_BUDGET_MIN)
}

fn alias(grant: &Grant<'_>) -> String {
    format!("sluice-{}-{}", &grant.instance[..8.min(grant.instance.len())], grant.key)
}

fn key_in(answer: &[u8]) -> Result<Key, MintError> {
    let generated: Generated = serde_json::from_slice(answer).map_err(|_| MintError::NoKey)?;
    Key::new(generated.key).filter(|key| key.bearer().is_some()).ok_or(MintError::NoKey)
}

fn generate<'a>(grant: &Grant<'a>, alias: &'a str, budget: Option<i64>) -> Generate<'a> {
    let dollars = |nanos| RawValue::from_string(Usd::from_nanos(nanos).to_string()).expect("a decimal is JSON");
    Generate {
        key_alias: alias,
        duration: format!("{}s", grant.lifetime.as_secs().max(1)),
        models: grant.models.iter().map(String::as_str).collect(),
        max_budget: budget.map(dollars),
        // Whatever its models are: no route that makes keys, or reads what others spent.
        key_type: "llm_api",
        metadata: Metadata {
            made_by: "sluice",
            run_id: grant.key.run_id.as_str(),
            attempt: grant.key.attempt,
            account: grant.account,
            graph_id: grant.graph_id,
        },
    }
}

/// Whether no key was made, for certain.
fn was_refused(error: &LitellmError) -> bool {
    match error {
        LitellmError::Address(_)
        | LitellmError::Key
        | LitellmError::Unreachable(..)
        | LitellmError::Denied(..)
        | LitellmError::NoDatabase(_)
        | LitellmError::NotMaster(_) => true,
        LitellmError::Status(_, status) | LitellmError::Budget(_, status, _) | LitellmError::Bound(_, status, _) => {
            *status < 500
        }
        LitellmError::Broken(..) | LitellmError::Late(..) | LitellmError::TooLong(..) => false,
    }
}

/// Has LiteLLM delete the key of a run, if one was asked for and may still be there.
///
/// # Errors
/// In words. It stays written down, for the next one who comes by.
pub async fn revoke_of(store: &Store, litellm: &Litellm, key: &RunKey) -> Result<(), String> {
    let asked = store.keys_left().await.map_err(|error| error_chain(&error))?;
    for asked in asked.iter().filter(|asked| asked.key == *key) {
        revoke(store, litellm, asked).await?;
    }
    Ok(())
}

/// Has LiteLLM delete this key.
///
/// # Errors
/// In words.
pub async fn revoke(store: &Store, litellm: &Litellm, asked: &Asked) -> Result<(), String> {
    let answer = litellm.post("/key/delete", &Delete { key_aliases: [&asked.alias] }).await;
    let why = ended(answer.map(drop), asked, now_us())?;
    store.key_ended(&asked.alias, why).await.map_err(|error| error_chain(&error))
}

/// Leaves a key to a LiteLLM that is asked no longer, once it must have ended by itself.
///
/// # Errors
/// In words.
pub async fn leave(store: &Store, asked: &Asked) -> Result<(), String> {
    if !past(now_us(), asked.expires_us, GIVEN_UP) {
        return Err(format!("it is at {}; give that as --upstream, with its key", asked.upstream));
    }
    store.key_ended(&asked.alias, "expired").await.map_err(|error| error_chain(&error))
}

fn past(now: i64, from: i64, by: Duration) -> bool {
    now.saturating_sub(from) > i64::try_from(by.as_micros()).unwrap_or(i64::MAX)
}

/// What became of a key, from LiteLLM's answer.
fn ended(answer: Result<(), LitellmError>, asked: &Asked, now: i64) -> Result<&'static str, String> {
    match answer {
        Ok(()) => Ok("deleted"),
        Err(LitellmError::Status(_, 404)) if past(now, asked.asked_us, UNDER_WAY) => Ok("not_found"),
        // Its making may have been cut off on the way, and come to its end after this.
        Err(LitellmError::Status(_, 404)) => Err("LiteLLM has no such key, and may still be making it".to_owned()),
        Err(_) if past(now, asked.expires_us, GIVEN_UP) => Ok("expired"),
        Err(error) => Err(error_chain(&error)),
    }
}

#[cfg(test)]
mod tests;
