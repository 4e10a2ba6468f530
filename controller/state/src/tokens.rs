//! Tokens of the API. The database has their hashes, and only the clients have their values.

mod rows;
mod value;

pub use rows::{NewToken, Token, TokenError, TokenLookup, TokenRole, create_value};
pub use value::{TOKEN_PREFIX, TokenValue};

#[cfg(test)]
mod tests;
