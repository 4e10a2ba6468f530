//! The tokens of the database, as principals.

use sluice_state::store::{Store, now_us};
use sluice_state::tokens::{Token, TokenError, TokenLookup, TokenValue};

use crate::principal::{Principal, Way};

/// The tokens of a database.
#[derive(Debug, Clone)]
pub(crate) struct TokenPrincipals(pub(crate) Store);

impl TokenPrincipals {
    /// Returns the principal of a token that is valid now.
    pub(crate) async fn find(&self, text: &str) -> Result<Option<Principal>, TokenError> {
        // A text that is not a token is not looked up.
        if TokenValue::parse(text).is_none() {
            return Ok(None);
        }
        let now = now_us();
        match self.0.find_token(text, now).await? {
            TokenLookup::Valid(token) => {
                match self.0.record_token_use(&token, now).await {
                    // The time of a use decides nothing: a full disk does not lock its owner out.
                    Err(TokenError::Store(error)) if error.is_retryable() => {}
                    recorded => recorded?,
                }
                Ok(Some(principal(token)))
            }
            TokenLookup::Expired(_) | TokenLookup::Revoked(_) | TokenLookup::Unknown => Ok(None),
        }
    }

    /// Returns whether the token of a principal's id is valid. Root needs none.
    pub(crate) async fn is_valid(&self, principal: &str) -> Result<bool, TokenError> {
        let Some(id) = principal.strip_prefix(PREFIX) else { return Ok(true) };
        Ok(self.0.find_token_by_id(id).await?.is_some_and(|token| token.is_valid(now_us())))
    }

    /// Returns whether any token is valid now.
    pub(crate) async fn has_any(&self) -> Result<bool, TokenError> {
        let now = now_us();
        Ok(self.0.list_tokens().await?.iter().any(|token| token.is_valid(now)))
    }
}

/// Beginning of the id of a principal that has a token.
const PREFIX: &str = "token:";

fn principal(token: Token) -> Principal {
    Principal {
        id: format!("{PREFIX}{}", token.id),
        owner: token.owner,
        role: token.role,
        accounts: token.accounts,
        way: Way::Bearer,
        source: None,
    }
}
