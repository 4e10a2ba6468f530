//! Idempotency keys: a request that a client repeats is executed once.
//!
//! A key is reserved before its request is served, and the transaction that makes an object records its id. The answer is
//! not kept: a repetition is authorised anew and shows the present state.

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use sluice_contract::Hash;

use crate::store::{Store, StoreError, hash};

/// Time for which a key is kept.
pub const KEY_LIFE_US: i64 = 24 * 3600 * 1_000_000;
/// Maximum number of keys of one principal.
pub const KEYS_PER_PRINCIPAL: u32 = 10_000;
/// Maximum length of a key.
pub const KEY_LENGTH_MAX: usize = 255;

/// The key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The token, session or user that makes the request.
    pub principal: String,
    /// Method of the request.
    pub method: String,
    /// Route with its ids.
    pub route: String,
    /// The value that the client chose.
    pub key: String,
    /// Hash of the request.
    pub request_hash: Hash,
}

/// Answer to a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyReservation {
    /// The key is new, and reserved for this request.
    Reserved,
    /// The request was done before, and made this.
    Done {
        /// Id of the object that the request made.
        object_id: String,
    },
}

/// Error of an idempotency key.
#[derive(Debug, thiserror::Error)]
pub enum IdempotencyError {
    /// The key is not valid.
    #[error("an idempotency key is 1 to {KEY_LENGTH_MAX} characters of visible ASCII")]
    Invalid,
    /// The key belongs to another request.
    #[error("the idempotency key was used for another request; choose a new one")]
    OtherRequest,
    /// The first request is being served.
    #[error("a request with this idempotency key is being served; wait for its answer")]
    InUse,
    /// The principal has too many keys.
    #[error(
        "the principal has {KEYS_PER_PRINCIPAL} idempotency keys of the last 24 hours; send requests without a key"
    )]
    TooMany,
    /// The reservation no longer exists.
    #[error("the reservation of the idempotency key is gone; send the request again")]
    Lost,
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for IdempotencyError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

impl IdempotencyKey {
    /// Checks the value that the client chose.
    ///
    /// # Errors
    /// [`IdempotencyError::Invalid`]
    pub fn check(&self) -> Result<(), IdempotencyError> {
        let is_valid =
            (1..=KEY_LENGTH_MAX).contains(&self.key.len()) && self.key.bytes().all(|byte| byte.is_ascii_graphic());
        if is_valid { Ok(()) } else { Err(IdempotencyError::Invalid) }
    }
}

impl Store {
    /// Reserves a key for a request, or returns the object that the same request has made before.
    ///
    /// # Errors
    /// [`IdempotencyError`] when the request must not be served.
    pub async fn reserve_key(&self, key: IdempotencyKey, now_us: i64) -> Result<KeyReservation, IdempotencyError> {
        key.check()?;
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let reservation = reserve(&transaction, &key, now_us)?;
            transaction.commit()?;
            Ok(reservation)
        })
        .await
    }

    /// Records the object that a request has made outside of the database.
    ///
    /// # Errors
    /// [`IdempotencyError::Lost`]
    pub async fn complete_key(&self, key: IdempotencyKey, object_id: &str) -> Result<(), IdempotencyError> {
        let object_id = object_id.to_owned();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            complete(&transaction, &key, &object_id)?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Releases the reservation of a request that has made nothing.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn release_key(&self, key: IdempotencyKey) -> Result<(), IdempotencyError> {
        self.write(move |connection| {
            connection.execute(
                "DELETE FROM idempotency_keys
                 WHERE principal = ?1 AND method = ?2 AND route = ?3 AND key = ?4 AND object_id IS NULL",
                params![key.principal, key.method, key.route, key.key],
            )?;
            Ok(())
        })
        .await
    }

    /// Removes expired keys.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn remove_old_keys(&self, now_us: i64) -> Result<u64, IdempotencyError> {
        self.write(move |connection| {
            let before_us = now_us.saturating_sub(KEY_LIFE_US);
            Ok(connection.execute("DELETE FROM idempotency_keys WHERE created_us <= ?1", [before_us])? as u64)
        })
        .await
    }

    /// Releases all reservations, which belong to requests that a daemon was serving when it was killed.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn release_all_keys(&self) -> Result<(), IdempotencyError> {
        self.write(|connection| {
            connection.execute("DELETE FROM idempotency_keys WHERE object_id IS NULL", [])?;
            Ok(())
        })
        .await
    }
}

fn reserve(
    transaction: &Transaction<'_>,
    key: &IdempotencyKey,
    now_us: i64,
) -> Result<KeyReservation, IdempotencyError> {
    let IdempotencyKey { principal, method, route, key, request_hash } = key;
    transaction
        .prepare_cached("DELETE FROM idempotency_keys WHERE principal = ?1 AND created_us <= ?2")?
        .execute(params![principal, now_us.saturating_sub(KEY_LIFE_US)])?;
    let known: Option<(Hash, Option<String>)> = transaction
        .prepare_cached(
            "SELECT request_hash, object_id FROM idempotency_keys
             WHERE principal = ?1 AND method = ?2 AND route = ?3 AND key = ?4",
        )?
        .query_row(params![principal, method, route, key], |row| Ok((hash(row, 0)?, row.get(1)?)))
        .optional()?;
    match known {
        Some((known, _)) if known != *request_hash => return Err(IdempotencyError::OtherRequest),
        Some((_, None)) => return Err(IdempotencyError::InUse),
        Some((_, Some(object_id))) => return Ok(KeyReservation::Done { object_id }),
        None => {}
    }
    let count: u32 = transaction
        .prepare_cached("SELECT count(*) FROM idempotency_keys WHERE principal = ?1")?
        .query_row([principal], |row| row.get(0))?;
    if count >= KEYS_PER_PRINCIPAL {
        return Err(IdempotencyError::TooMany);
    }
    transaction
        .prepare_cached(
            "INSERT INTO idempotency_keys (principal, method, route, key, request_hash, created_us)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![principal, method, route, key, request_hash.to_hex(), now_us])?;
    Ok(KeyReservation::Reserved)
}

/// Records the object of a request, in the transaction that makes it.
pub(crate) fn complete(
    transaction: &Transaction<'_>,
    key: &IdempotencyKey,
    object_id: &str,
) -> Result<(), IdempotencyError> {
    let IdempotencyKey { principal, method, route, key, request_hash } = key;
    let changed = transaction
        .prepare_cached(
            "UPDATE idempotency_keys SET object_id = ?6
             WHERE principal = ?1 AND method = ?2 AND route = ?3 AND key = ?4 AND request_hash = ?5 AND object_id IS NULL",
        )?
        .execute(params![principal, method, route, key, request_hash.to_hex(), object_id])?;
    if changed == 1 { Ok(()) } else { Err(IdempotencyError::Lost) }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn open() -> (TempDir, Store) {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        (directory, store)
    }

    fn key(principal: &str, key: &str, body: &str) -> IdempotencyKey {
        IdempotencyKey {
            principal: principal.to_owned(),
            method: "POST".to_owned(),
            route: "/api/v1/sandboxes".to_owned(),
            key: key.to_owned(),
            request_hash: Hash::of(body.as_bytes()),
        }
    }

    #[tokio::test]
    async fn a_repeated_request_is_done_once() {
        let (_directory, store) = open();
        let reserve = async |body: &str, now_us| store.reserve_key(key("tok_a", "k", body), now_us).await;
        assert_eq!(reserve("x", 1).await.expect("it is new"), KeyReservation::Reserved);
        assert!(matches!(reserve("x", 2).await, Err(IdempotencyError::InUse)));
        assert!(matches!(reserve("y", 2).await, Err(IdempotencyError::OtherRequest)));
        store.complete_key(key("tok_a", "k", "x"), "r1").await.expect("it is reserved");
        assert!(matches!(store.complete_key(key("tok_a", "k", "x"), "r2").await, Err(IdempotencyError::Lost)));
        assert_eq!(reserve("x", 3).await.expect("it is known"), KeyReservation::Done { object_id: "r1".to_owned() });
        assert!(matches!(reserve("y", 3).await, Err(IdempotencyError::OtherRequest)));
        assert_eq!(reserve("y", 1 + KEY_LIFE_US).await.expect("it is old"), KeyReservation::Reserved);
    }

    #[tokio::test]
    async fn a_clock_that_jumps_back_forgets_no_key() {
        const HOUR_US: i64 = 3600 * 1_000_000;
        let (_directory, store) = open();
        store.reserve_key(key("tok_a", "k", "x"), 2 * HOUR_US).await.expect("it is new");
        store.complete_key(key("tok_a", "k", "x"), "r1").await.expect("it is reserved");
        for now_us in [HOUR_US, 2 * HOUR_US + KEY_LIFE_US - 1] {
            let repeated = store.reserve_key(key("tok_a", "k", "x"), now_us).await.expect("it is known");
            assert_eq!(repeated, KeyReservation::Done { object_id: "r1".to_owned() }, "{now_us}");
        }
        assert_eq!(store.remove_old_keys(2 * HOUR_US + KEY_LIFE_US).await.expect("it is writable"), 1);
    }

    #[tokio::test]
    async fn keys_belong_to_their_principal() {
        let (_directory, store) = open();
        for principal in ["tok_a", "tok_b"] {
            let reserved = store.reserve_key(key(principal, "k", principal), 1).await;
            assert_eq!(reserved.expect("it is new"), KeyReservation::Reserved);
        }
        let other = IdempotencyKey { route: "/api/v1/agents".to_owned(), ..key("tok_a", "k", "z") };
        assert_eq!(store.reserve_key(other, 1).await.expect("it is new"), KeyReservation::Reserved);
    }

    #[tokio::test]
    async fn one_of_many_requests_gets_the_key() {
        let (_directory, store) = open();
        let requests: Vec<_> = (0..100)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.reserve_key(key("tok_a", "k", "x"), 1).await })
            })
            .collect();
        let mut reserved = 0;
        for request in requests {
            match request.await.expect("it does not panic") {
                Ok(reservation) => {
                    assert_eq!(reservation, KeyReservation::Reserved);
                    reserved += 1;
                }
                Err(error) => assert!(matches!(error, IdempotencyError::InUse), "{error}"),
            }
        }
        assert_eq!(reserved, 1);
    }

    #[tokio::test]
    async fn failed_requests_release_their_keys() {
        let (_directory, store) = open();
        for release_all in [false, true] {
            let reserved = store.reserve_key(key("tok_a", "k", "x"), 1).await;
            assert_eq!(reserved.expect("it is free"), KeyReservation::Reserved);
            if release_all {
                store.release_all_keys().await.expect("it is writable");
            } else {
                store.release_key(key("tok_a", "k", "x")).await.expect("it is writable");
            }
        }
        store.reserve_key(key("tok_a", "k", "x"), 1).await.expect("it is free");
        store.complete_key(key("tok_a", "k", "x"), "r1").await.expect("it is reserved");
        store.release_all_keys().await.expect("it is writable");
        let done = store.reserve_key(key("tok_a", "k", "x"), 2).await.expect("it is known");
        assert_eq!(done, KeyReservation::Done { object_id: "r1".to_owned() });
    }

    #[tokio::test]
    async fn keys_are_bounded() {
        let (directory, store) = open();
        for bad in ["", "a b", "é", "\n", &"x".repeat(256)] {
            let refused = store.reserve_key(key("tok_a", bad, "x"), 1).await;
            assert!(matches!(refused, Err(IdempotencyError::Invalid)), "{bad:?}");
        }
        let connection = rusqlite::Connection::open(directory.path().join("sluice.db")).expect("it is there");
        connection
            .execute_batch(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
                 INSERT INTO idempotency_keys SELECT 'tok_a', 'POST', '/', i, hex(zeroblob(32)), 'r', 5 FROM n",
            )
            .expect("it is right");
        let refused = store.reserve_key(key("tok_a", "k", "x"), 6).await;
        assert!(matches!(refused, Err(IdempotencyError::TooMany)));
        store.reserve_key(key("tok_b", "k", "x"), 6).await.expect("another principal has its own");
        store.reserve_key(key("tok_a", "k", "x"), 5 + KEY_LIFE_US).await.expect("the old ones are gone");
        assert_eq!(store.remove_old_keys(6 + KEY_LIFE_US).await.expect("it is writable"), 1);
    }
}
