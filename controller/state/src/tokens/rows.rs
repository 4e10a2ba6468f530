//! Tokens in the database.

use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, params};
use sluice_contract::Hash;

use super::value::TokenValue;
use crate::store::{Store, StoreError};

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 24 * 3600 * SECOND_US;
/// Time between two records of the use of a token.
const USE_RECORD_US: i64 = 60 * SECOND_US;

/// Role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenRole {
    /// May do everything.
    Admin,
    /// May do everything with objects of its owner.
    Owner,
    /// May read objects of its owner.
    Viewer,
    /// May chat.
    Chat,
    /// May read the metrics and the state of the daemon.
    Metrics,
}

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Owner of the objects that are made with the token.
    pub owner: String,
    /// Role of the token.
    pub role: TokenRole,
    /// Accounts that its runs may be billed to.
    pub accounts: Vec<String>,
    /// Text for people.
    pub label: Option<String>,
    /// Time for which it is valid, in microseconds; none for [`Token::LIFE_DEFAULT_US`].
    pub life_us: Option<i64>,
    /// Chats that it may begin in a day; `None` for [`crate::chats::ChatCaps::default`]. Only for a chat token.
    pub runs_per_day: Option<u32>,
    /// Nano-USD that its chats may cost in a day; `None` for [`crate::chats::ChatCaps::default`]. Only for a chat token.
    pub cost_per_day: Option<i64>,
}

/// A token, without its value. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "described in NewToken")]
pub struct Token {
    /// `tok_…`.
    pub id: String,
    pub owner: String,
    pub role: TokenRole,
    pub accounts: Vec<String>,
    pub label: Option<String>,
    /// Time of the creation.
    pub created_us: i64,
    /// Time from which it is not valid.
    pub expires_us: i64,
    /// Time of its last use, to the minute.
    pub last_used_us: Option<i64>,
    /// Time of its revocation.
    pub revoked_us: Option<i64>,
    pub runs_per_day: Option<u32>,
    pub cost_per_day: Option<i64>,
}

/// Result of a search for a token. A client must not learn which of the last three it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenLookup {
    /// The token is valid.
    Valid(Token),
    /// The token has expired.
    Expired(Token),
    /// The token was revoked.
    Revoked(Token),
    /// No token has this value.
    Unknown,
}

/// Error of creating, reading or revoking a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The requested life is too long.
    #[error("a token is valid for 1 second to {max} days; ask for less", max = Token::LIFE_MAX_US / DAY_US)]
    Life,
    /// The token does not exist.
    #[error("there is no token {0}; sluice token list shows all")]
    NotFound(String),
    /// The kernel gave no random bytes.
    #[error("cannot read random bytes: {0}")]
    Random(String),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for TokenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

const COLUMNS: &str = "id, owner, role, accounts, label, created_us, expires_us, last_used_us, revoked_us, \
     runs_per_day, cost_per_day_nano";

/// Makes the value of a new token.
///
/// # Errors
/// [`TokenError::Random`]
pub fn create_value() -> Result<TokenValue, TokenError> {
    let mut secret = zeroize::Zeroizing::new([0; 32]);
    getrandom::fill(&mut *secret).map_err(|error| TokenError::Random(error.to_string()))?;
    Ok(TokenValue::of(&secret))
}

impl Store {
    /// Adds a token of this value.
    ///
    /// # Errors
    /// [`TokenError::Life`], and errors of SQLite.
    pub async fn create_token(&self, value: &TokenValue, new: NewToken, now_us: i64) -> Result<Token, TokenError> {
        let life_us = new.life_us.unwrap_or(Token::LIFE_DEFAULT_US);
        if !(SECOND_US..=Token::LIFE_MAX_US).contains(&life_us) {
            return Err(TokenError::Life);
        }
        let token = Token {
            id: format!("tok_{}", uuid::Uuid::new_v4().simple()),
            owner: new.owner,
            role: new.role,
            accounts: new.accounts,
            label: new.label,
            created_us: now_us,
            expires_us: now_us.saturating_add(life_us),
            last_used_us: None,
            revoked_us: None,
            runs_per_day: new.runs_per_day,
            cost_per_day: new.cost_per_day,
        };
        let hash = value.hash();
        self.write(move |connection| {
            connection.execute(
                "INSERT INTO tokens (id, hash, owner, role, accounts, label, created_us, expires_us,
                                     runs_per_day, cost_per_day_nano)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    token.id,
                    hash.to_hex(),
                    token.owner,
                    token.role.as_str(),
                    serde_json::json!(token.accounts).to_string(),
                    token.label,
                    token.created_us,
                    token.expires_us,
                    token.runs_per_day,
                    token.cost_per_day,
                ],
            )?;
            Ok(token)
        })
        .await
    }

    /// Finds a token by the text that a client has sent. Each text costs the same: it is hashed, and its hash is looked up.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_token(&self, text: &str, now_us: i64) -> Result<TokenLookup, TokenError> {
        let hash = Hash::of(text.as_bytes());
        self.query(move |connection| {
            let query = format!("SELECT {COLUMNS} FROM tokens WHERE hash = ?1");
            let found = connection.prepare_cached(&query)?.query_row([hash.to_hex()], token).optional()?;
            Ok(match found {
                None => TokenLookup::Unknown,
                Some(token) if token.revoked_us.is_some() => TokenLookup::Revoked(token),
                Some(token) if now_us >= token.expires_us => TokenLookup::Expired(token),
                Some(token) => TokenLookup::Valid(token),
            })
        })
        .await
    }

    /// Returns a token by its id, for a client that holds a stream open with it.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_token_by_id(&self, id: &str) -> Result<Option<Token>, TokenError> {
        let id = id.to_owned();
        self.query(move |connection| {
            let query = format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1");
            Ok(connection.prepare_cached(&query)?.query_row([id], token).optional()?)
        })
        .await
    }

    /// Records the use of a token, unless a use was recorded less than a minute ago.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn record_token_use(&self, token: &Token, now_us: i64) -> Result<(), TokenError> {
        if !token.is_use_due(now_us) {
            return Ok(());
        }
        let id = token.id.clone();
        self.write(move |connection| {
            connection
                .prepare_cached(
                    "UPDATE tokens SET last_used_us = ?2
                     WHERE id = ?1 AND (last_used_us IS NULL OR last_used_us <= ?2 - ?3)",
                )?
                .execute(params![id, now_us, USE_RECORD_US])?;
            Ok(())
        })
        .await
    }

    /// Returns all tokens, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn list_tokens(&self) -> Result<Vec<Token>, TokenError> {
        self.query(|connection| {
            let mut query = connection.prepare(&format!("SELECT {COLUMNS} FROM tokens ORDER BY created_us, id"))?;
            let rows = query.query_map([], token)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Revokes a token, and returns it. The first revocation stays.
    ///
    /// # Errors
    /// [`TokenError::NotFound`]
    pub async fn revoke_token(&self, id: &str, now_us: i64) -> Result<Token, TokenError> {
        let id = id.to_owned();
        self.write(move |connection| {
            let query =
                format!("UPDATE tokens SET revoked_us = coalesce(revoked_us, ?2) WHERE id = ?1 RETURNING {COLUMNS}");
            let revoked = connection.query_row(&query, params![id, now_us], token).optional()?;
            revoked.ok_or(TokenError::NotFound(id))
        })
        .await
    }
}

impl Token {
    /// Default time for which a token is valid.
    pub const LIFE_DEFAULT_US: i64 = 90 * DAY_US;
    /// Maximum time for which a token is valid.
    pub const LIFE_MAX_US: i64 = 365 * DAY_US;

    /// Returns true if the token may be used.
    #[must_use]
    pub fn is_valid(&self, now_us: i64) -> bool {
        self.revoked_us.is_none() && now_us < self.expires_us
    }

    /// Returns true if a use now would be recorded.
    fn is_use_due(&self, now_us: i64) -> bool {
        self.last_used_us.is_none_or(|last| now_us.saturating_sub(last) >= USE_RECORD_US)
    }
}

impl TokenRole {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Owner => "owner",
            Self::Viewer => "viewer",
            Self::Chat => "chat",
            Self::Metrics => "metrics",
        }
    }

    /// Returns the role of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let all = [Self::Admin, Self::Owner, Self::Viewer, Self::Chat, Self::Metrics];
        all.into_iter().find(|role| role.as_str() == word)
    }
}

fn token(row: &Row<'_>) -> rusqlite::Result<Token> {
    let (role, accounts): (String, String) = (row.get(2)?, row.get(3)?);
    let unreadable =
        |error: serde_json::Error| rusqlite::Error::FromSqlConversionFailure(3, Type::Text, Box::new(error));
    Ok(Token {
        id: row.get(0)?,
        owner: row.get(1)?,
        role: TokenRole::of(&role).expect("the column has no other word"),
        accounts: serde_json::from_str(&accounts).map_err(unreadable)?,
        label: row.get(4)?,
        created_us: row.get(5)?,
        expires_us: row.get(6)?,
        last_used_us: row.get(7)?,
        revoked_us: row.get(8)?,
        runs_per_day: row.get(9)?,
        cost_per_day: row.get(10)?,
    })
}
