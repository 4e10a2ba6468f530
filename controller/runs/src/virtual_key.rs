//! The virtual key of a run, from the record before LiteLLM makes it to its deletion.
//!
//! The database has the key's alias before LiteLLM is requested to make the key, so that another controller finds it after a
//! kill. The key itself is only in the memory of two processes.

use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::time::duration_micros;
use sluice_litellm::virtual_key::{self, GenerateError, Grant};
use sluice_litellm::{ApiKey, Litellm, LitellmError};
use sluice_state::store::{Store, StoreError, now_us};
use sluice_state::virtual_keys::KeyRecord;

use crate::host::Host;

/// Kind of the key that the sidecar of a run gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMode {
    /// The operator's key.
    Master,
    /// A virtual key; the run fails without one.
    PerRun,
    /// A virtual key where LiteLLM makes one, else the operator's key with a note.
    Auto,
}

/// Reason why a run got no virtual key.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// LiteLLM did not make it.
    #[error("cannot get a virtual key for the run; --key-mode master uses the key of key_file")]
    Generate(#[from] GenerateError),
    /// The key cannot be recorded, so it could not be found after a kill.
    #[error("cannot record a virtual key")]
    Record(#[from] StoreError),
}

/// Reason why a virtual key may still exist.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// LiteLLM did not delete it.
    #[error(transparent)]
    Litellm(#[from] LitellmError),
    /// The request that makes it may still be in progress.
    #[error("LiteLLM has no such key, and may still be making it")]
    InProgress,
    /// Another LiteLLM has the key.
    #[error("it is at {0}; give that as --upstream, with its key")]
    Elsewhere(String),
    /// The deletion cannot be recorded.
    #[error("cannot record the end of a virtual key")]
    Record(#[from] StoreError),
}

/// Reason why a virtual key was not raised.
#[derive(Debug, thiserror::Error)]
pub enum RaiseKeyError {
    /// LiteLLM did not raise it.
    #[error(transparent)]
    Litellm(#[from] LitellmError),
    /// The LiteLLM that has the key is no longer known.
    #[error("it is at {0}, which is not the upstream any more")]
    Elsewhere(String),
    /// The longer life cannot be recorded.
    #[error("cannot record the life of a virtual key")]
    Record(#[from] StoreError),
}

/// Time after which a refusal that could be a fault of LiteLLM's database is final.
const UNCLEAR: Duration = Duration::from_secs(600);
/// Time for which a key outlives the timeout of its run, and its sidecar. LiteLLM ends it then, if no controller deletes it.
pub const AFTER_RUN: Duration = Duration::from_secs(180);
/// Time after which no request of ours is still in progress at LiteLLM.
const IN_PROGRESS: Duration = Duration::from_secs(60);
/// Time after a key's end at which Sluice no longer tries to delete it.
const ABANDONED: Duration = Duration::from_secs(3600);

impl RaiseKeyError {
    /// Returns whether no later try can raise the key, after tries for this time: LiteLLM has no such key or no such request,
    /// or does not allow such a key. LiteLLM also gives status 400 while its database fails, so 400 is final only after a
    /// while.
    #[must_use]
    pub fn is_final(&self, tried_for: Duration) -> bool {
        match self {
            Self::Litellm(LitellmError::Status(_, 404 | 405 | 410 | 422)) => true,
            Self::Litellm(LitellmError::Bound(_, 400..=499, _)) => true,
            Self::Litellm(LitellmError::Status(_, 400)) => tried_for >= UNCLEAR,
            Self::Litellm(_) | Self::Elsewhere(_) | Self::Record(_) => false,
        }
    }
}

/// Makes the virtual key of a run, and records it before.
///
/// # Errors
/// [`MintError`]. LiteLLM may have made the key nevertheless; [`revoke`] deletes it then.
pub async fn mint(store: &Store, litellm: &Litellm, grant: &Grant<'_>) -> Result<ApiKey, MintError> {
    let now = now_us();
    let alias = grant.alias();
    let lifetime = duration_micros(grant.lifetime);
    let record = KeyRecord {
        alias: alias.clone(),
        key: grant.key.clone(),
        upstream: grant.upstream.to_owned(),
        asked_us: now,
        expires_us: now.saturating_add(lifetime),
    };
    store.add_key(record).await?;
    let generated = virtual_key::generate(litellm, grant).await;
    if generated.as_ref().is_err_and(GenerateError::is_refusal) {
        store.end_key(&alias, "refused").await?;
    }
    Ok(generated?)
}

/// Raises the virtual key of a run, if it has one: its budget to match this cap, and its life so that the key outlives a run
/// that ends at this time. A repetition changes nothing.
///
/// # Errors
/// [`RaiseKeyError`]
pub async fn raise_of(
    host: &Host,
    key: &RunKey,
    max_cost: Option<i64>,
    run_ends_us: Option<i64>,
) -> Result<(), RaiseKeyError> {
    let needed_us = run_ends_us.map_or(0, |end| end.saturating_add(duration_micros(AFTER_RUN)));
    for record in host.store.live_keys().await?.iter().filter(|record| record.key == *key) {
        let known = host.litellm.as_ref().filter(|(upstream, _)| *upstream == record.upstream);
        let (_, litellm) = known.ok_or_else(|| RaiseKeyError::Elsewhere(record.upstream.clone()))?;
        let expires_us = record.expires_us.max(needed_us);
        let left = expires_us.saturating_sub(now_us()).max(1_000_000).unsigned_abs();
        let lifetime = Duration::from_micros(left);
        // The record is written first: otherwise, a key that lives longer would be abandoned too early.
        host.store.extend_key(&record.alias, expires_us).await?;
        virtual_key::raise(litellm, &record.alias, max_cost, lifetime).await?;
    }
    Ok(())
}

/// Deletes the virtual key of a run, if one was recorded and may still be there.
///
/// # Errors
/// [`RevokeError`]. The record stays, so that a later run or sweep tries again.
pub async fn revoke_of(store: &Store, litellm: &Litellm, key: &RunKey) -> Result<(), RevokeError> {
    for record in store.live_keys().await?.iter().filter(|record| record.key == *key) {
        revoke(store, litellm, record).await?;
    }
    Ok(())
}

/// Deletes a virtual key.
///
/// # Errors
/// [`RevokeError`].
pub async fn revoke(store: &Store, litellm: &Litellm, record: &KeyRecord) -> Result<(), RevokeError> {
    let why = end_of(virtual_key::delete(litellm, &record.alias).await, record, now_us())?;
    Ok(store.end_key(&record.alias, why).await?)
}

/// Abandons a key of a LiteLLM that is no longer in use, once the key must have ended by itself.
///
/// # Errors
/// [`RevokeError`], before that time.
pub async fn abandon(store: &Store, record: &KeyRecord) -> Result<(), RevokeError> {
    if !is_past(now_us(), record.expires_us, ABANDONED) {
        return Err(RevokeError::Elsewhere(record.upstream.clone()));
    }
    Ok(store.end_key(&record.alias, "expired").await?)
}

fn is_past(now: i64, from: i64, by: Duration) -> bool {
    now.saturating_sub(from) > duration_micros(by)
}

/// Returns how a key ended, from LiteLLM's answer to its deletion.
fn end_of(answer: Result<(), LitellmError>, record: &KeyRecord, now: i64) -> Result<&'static str, RevokeError> {
    match answer {
        Ok(()) => Ok("deleted"),
        Err(LitellmError::Status(_, 404)) if is_past(now, record.asked_us, IN_PROGRESS) => Ok("not_found"),
        // A request to make the key may have been cut off, and may be executed later.
        Err(LitellmError::Status(_, 404)) => Err(RevokeError::InProgress),
        Err(_) if is_past(now, record.expires_us, ABANDONED) => Ok("expired"),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use sluice_litellm::client::KeyBound;

    use super::*;

    #[test]
    fn a_raise_is_tried_until_litellm_certainly_refuses() {
        let text = || "POST /key/update".to_owned();
        let status = |status| RaiseKeyError::Litellm(LitellmError::Status(text(), status));
        for (error, at_once, later) in [
            (status(404), true, true),
            (status(422), true, true),
            (RaiseKeyError::Litellm(LitellmError::Bound(text(), 400, KeyBound::Duration)), true, true),
            (status(400), false, true),
            (status(408), false, false),
            (status(429), false, false),
            (status(500), false, false),
            (status(503), false, false),
            (RaiseKeyError::Litellm(LitellmError::Denied(text(), 401)), false, false),
            (RaiseKeyError::Litellm(LitellmError::NoDatabase(text())), false, false),
            (RaiseKeyError::Litellm(LitellmError::Late(text(), UNCLEAR)), false, false),
            (RaiseKeyError::Elsewhere("http://litellm".to_owned()), false, false),
        ] {
            let found = [Duration::ZERO, UNCLEAR].map(|tried_for| error.is_final(tried_for));
            assert_eq!(found, [at_once, later], "{error:?}");
        }
    }

    #[test]
    fn a_key_has_ended_when_that_is_certain() {
        let record = KeyRecord {
            alias: "a".into(),
            key: "r1.0".parse().expect("a key"),
            upstream: "u".into(),
            asked_us: 1_000_000_000,
            expires_us: 2_000_000_000,
        };
        let (soon, later, expired) = (1_001_000_000, 1_061_000_000, 2_000_000_000 + 3_601_000_000);
        let status = |status| Err(LitellmError::Status("POST /key/delete".into(), status));
        let late = || Err(LitellmError::Late("POST /key/delete".into(), IN_PROGRESS));
        let rows: [(Result<(), LitellmError>, i64, Option<&str>); 9] = [
            (Ok(()), soon, Some("deleted")),
            (status(404), soon, None),
            (status(404), later, Some("not_found")),
            (status(500), later, None),
            (late(), later, None),
            (Err(LitellmError::Denied("x".into(), 401)), later, None),
            (Err(LitellmError::NoDatabase("x".into())), later, None),
            (late(), expired, Some("expired")),
            (Ok(()), expired, Some("deleted")),
        ];
        for (answer, now, expected) in rows {
            let shown = format!("{answer:?} at {now}");
            assert_eq!(end_of(answer, &record, now).ok(), expected, "{shown}");
        }
    }
}
