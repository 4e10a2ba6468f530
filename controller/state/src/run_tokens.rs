//! Tokens by which the sidecar of one attempt reports to the daemon: `slr_` and 64 hex digits.
//!
//! The database has their hashes. The value is in a file of its run that only the sidecar gets.

use std::fmt;

use rusqlite::{OptionalExtension, params};
use sluice_contract::{Hash, RunKey, hex};
use zeroize::Zeroizing;

use crate::store::{Store, StoreError, now_us, run_key};
use crate::tokens::TokenError;

/// Beginning of every token of a run.
pub const RUN_TOKEN_PREFIX: &str = "slr_";

/// The value of a run's token. It is not printed, and its memory is cleared.
#[derive(Clone, PartialEq, Eq)]
pub struct RunTokenValue(Zeroizing<String>);

impl RunTokenValue {
    /// Makes a token of random bytes.
    ///
    /// # Errors
    /// [`TokenError::Random`]
    pub fn create() -> Result<Self, TokenError> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *secret).map_err(|error| TokenError::Random(error.to_string()))?;
        let mut text = Zeroizing::new(String::with_capacity(RUN_TOKEN_PREFIX.len() + 64));
        text.push_str(RUN_TOKEN_PREFIX);
        hex::push(&mut text, &*secret);
        Ok(Self(text))
    }

    /// Returns the text that the sidecar sends.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the hash by which the database knows the token.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for RunTokenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunTokenValue(…)")
    }
}

impl Store {
    /// Makes the token of an attempt. Its earlier token becomes invalid.
    ///
    /// # Errors
    /// [`TokenError::Random`], and errors of SQLite.
    pub async fn create_run_token(&self, key: &RunKey) -> Result<RunTokenValue, TokenError> {
        let value = RunTokenValue::create()?;
        let (key, hash) = (key.clone(), value.hash());
        self.write(move |connection| {
            connection.execute(
                "INSERT INTO run_tokens (hash, run_id, attempt, created_us) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (run_id, attempt) DO UPDATE SET hash = ?1, created_us = ?4",
                params![hash.to_hex(), key.run_id.as_str(), key.attempt, now_us()],
            )?;
            Ok::<_, StoreError>(())
        })
        .await?;
        Ok(value)
    }

    /// Returns the attempt of a token, by the text that a client has sent. Only the present attempt of a run that has not
    /// ended has one.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_run_token(&self, text: &str) -> Result<Option<RunKey>, StoreError> {
        let hash = Hash::of(text.as_bytes());
        self.query(move |connection| {
            let found = connection
                .prepare_cached(
                    "SELECT run_tokens.run_id, run_tokens.attempt FROM run_tokens
                     JOIN sandboxes ON sandboxes.run_id = run_tokens.run_id AND sandboxes.attempt = run_tokens.attempt
                     WHERE run_tokens.hash = ?1 AND sandboxes.ended_us IS NULL AND sandboxes.state <> 'PENDING'",
                )?
                .query_row([hash.to_hex()], |row| run_key(row, 0))
                .optional()?;
            Ok(found)
        })
        .await
    }

    /// Returns whether an attempt has a token.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn has_run_token(&self, key: &RunKey) -> Result<bool, StoreError> {
        let key = key.clone();
        self.query(move |connection| {
            let mut query = connection.prepare_cached("SELECT 1 FROM run_tokens WHERE run_id = ?1 AND attempt = ?2")?;
            Ok(query.exists(params![key.run_id.as_str(), key.attempt])?)
        })
        .await
    }

    /// Revokes the token of an attempt.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn revoke_run_token(&self, key: &RunKey) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(move |connection| {
            connection.execute(
                "DELETE FROM run_tokens WHERE run_id = ?1 AND attempt = ?2",
                params![key.run_id.as_str(), key.attempt],
            )?;
            Ok(())
        })
        .await
    }
}
