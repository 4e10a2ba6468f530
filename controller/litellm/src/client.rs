//! LiteLLM's own HTTP API, asked with the operator's key: a question, an answer, and limits on both.
//!
//! No redirect is followed, since it would carry the key elsewhere. What an answer that is no success says is never
//! repeated: LiteLLM's error bodies hold parts of keys, and tracebacks.

use std::time::Duration;
use std::{fmt, io};

use http::{HeaderValue, Method, Request, header};
use serde::{Deserialize, Serialize};
use sluice_contract::budget::{BUDGET_EXCEEDED, BudgetRefusal};
use sluice_contract::exhausted::Exhausted;
use sluice_upstream::Address;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::secret::ApiKey;

mod wire;

use wire::{Answer, Lost};

/// How long an answer may take, from connecting to its last byte.
pub const WITHIN: Duration = Duration::from_secs(10);
/// How long an answer may be.
pub const AT_MOST: usize = 16 << 20;

/// How LiteLLM says that it has no database, in the versions that are known.
const NO_DATABASE: [&str; 4] =
    ["DB not connected", "Not connected to DB", "No DB Connected", "Prisma Client is not initialized"];
/// How it says that it does not know the key, and has no database to look it up in.
const NOT_MASTER: &str = "No connected db.";

/// A LiteLLM, and the key that it is asked with.
#[derive(Debug, Clone)]
pub struct Litellm {
    address: Address,
    key: ApiKey,
    within: Duration,
    at_most: usize,
}

/// Why a question has no answer. No text of the answer is in it.
#[derive(Debug, thiserror::Error)]
pub enum LitellmError {
    /// The upstream is not an address, or holds credentials, which are not repeated here.
    #[error("'{0}' is not an upstream; write http://HOST:PORT, https://HOST or unix:/PATH, without credentials")]
    Address(String),
    /// The key cannot stand in a header.
    #[error("the upstream's key is no line of visible characters")]
    Key,
    /// Nothing went out.
    #[error("cannot connect to LiteLLM for {0}")]
    Unreachable(String, #[source] io::Error),
    /// The question went out, or may have, and no whole answer came.
    #[error("LiteLLM broke off its answer to {0}")]
    Broken(String, #[source] io::Error),
    /// The same, and the time is up.
    #[error("LiteLLM did not answer {0} within {1:?}")]
    Late(String, Duration),
    /// More than anybody wants to read.
    #[error("LiteLLM's answer to {0} is longer than {1} bytes")]
    TooLong(String, usize),
    /// It takes the key for no good one, or not for this.
    #[error("LiteLLM refuses the key for {0} (status {1}); it takes the master key, or one of an admin")]
    Denied(String, u16),
    /// It has no database, which the question needs.
    #[error("LiteLLM has no database, which {0} needs")]
    NoDatabase(String),
    /// It has none, and the key is another than its own.
    #[error("LiteLLM refuses the key for {0}: without a database it takes its master key alone, and this is another")]
    NotMaster(String),
    /// One of its budgets stops the key that it is asked with.
    #[error("LiteLLM refused {0} (status {1}): {2}; raise that budget, or wait until it is reset")]
    Budget(String, u16, Box<Exhausted>),
    /// Its configuration, or the key that it is asked with, sets a bound to the keys that are made.
    #[error("LiteLLM refused {0} (status {1}): {2}")]
    Bound(String, u16, KeyBound),
    /// Any other answer that is no success.
    #[error("LiteLLM answered {0} with status {1}")]
    Status(String, u16),
}

/// What LiteLLM does not allow of a key that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyBound {
    /// Its `max_budget`.
    MaxBudget,
    /// Its life.
    Duration,
    /// Something else.
    Other,
    /// Something that takes a licence.
    Licence,
}

impl fmt::Display for KeyBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxBudget => {
                "it makes no key with such a max_budget; raise max_budget in upperbound_key_generate_params of its \
                 configuration, or of the key of key_file"
            }
            Self::Duration => {
                "it makes no key that lives as long; raise duration in upperbound_key_generate_params of its \
                 configuration to --timeout and 3 minutes, or shorten --timeout"
            }
            Self::Other => "upperbound_key_generate_params of its configuration does not allow such a key",
            Self::Licence => "that takes a licence of LiteLLM Enterprise",
        })
    }
}

impl LitellmError {
    /// Whether asking again may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(..) | Self::Broken(..) | Self::Late(..))
    }
}

impl Litellm {
    /// Names a LiteLLM; it is not asked yet.
    ///
    /// # Errors
    /// [`LitellmError::Address`].
    pub fn new(upstream: &str, key: ApiKey) -> Result<Self, LitellmError> {
        let address = upstream.parse().map_err(|_| LitellmError::Address(sluice_upstream::redact(upstream)))?;
        Ok(Self { address, key, within: WITHIN, at_most: AT_MOST })
    }

    /// With another limit on the time of each answer.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// With another limit on the length of each answer.
    #[must_use]
    pub fn at_most(self, at_most: usize) -> Self {
        Self { at_most, ..self }
    }

    /// The body of the answer to a `GET`; `path` may have a query.
    ///
    /// # Errors
    /// [`LitellmError`]; every status but 2xx is one.
    pub async fn get(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, LitellmError> {
        self.ask(Method::GET, path, String::new()).await
    }

    /// The body of the answer to a `POST` of JSON.
    ///
    /// # Errors
    /// [`LitellmError`]; every status but 2xx is one.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, LitellmError> {
        self.ask(Method::POST, path, serde_json::to_string(body).expect("plain data")).await
    }

    /// The status and the text of whatever the answer to a `GET` is, without the key should it be in there: whoever
    /// reads it may quote what cannot be read.
    ///
    /// # Errors
    /// [`LitellmError`], when there is none.
    pub async fn answer(&self, path: &str) -> Result<(u16, String), LitellmError> {
        let (status, body) = self.exchange(Method::GET, path, String::new()).await?;
        Ok((status, self.key.redact(&String::from_utf8_lossy(&body))))
    }

    async fn ask(&self, method: Method, path: &str, body: String) -> Result<Zeroizing<Vec<u8>>, LitellmError> {
        let what = name(&method, path);
        match self.exchange(method, path, body).await? {
            (200..=299, body) => Ok(body),
            (status @ (401 | 403), body) if bound(&body).is_none() => Err(LitellmError::Denied(what, status)),
            (status, body) => Err(refused(what, status, &String::from_utf8_lossy(&body))),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<Answer, LitellmError> {
        let what = name(&method, path);
        let question = self.question(method, path, body)?;
        match timeout(self.within, wire::ask(&self.address, question, self.at_most)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Lost::Before(error))) => Err(LitellmError::Unreachable(what, error)),
            Ok(Err(Lost::Underway(error))) => Err(LitellmError::Broken(what, error)),
            Ok(Err(Lost::TooLong)) => Err(LitellmError::TooLong(what, self.at_most)),
            Err(_) => Err(LitellmError::Late(what, self.within)),
        }
    }

    fn question(&self, method: Method, path: &str, body: String) -> Result<Request<String>, LitellmError> {
        let invalid = || LitellmError::Address(path.split('?').next().unwrap_or_default().to_owned());
        Request::builder()
            .method(method)
            .uri(self.address.try_target(path).map_err(|_| invalid())?)
            .header(header::HOST, &self.address.authority)
            .header(header::AUTHORIZATION, self.key.bearer().ok_or(LitellmError::Key)?)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            // Some versions compress what is long.
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(header::CONNECTION, HeaderValue::from_static("close"))
            .body(body)
            .map_err(|_| invalid())
    }
}

/// What an answer that is no success means. Its words are looked at and not repeated.
fn refused(what: String, status: u16, text: &str) -> LitellmError {
    match lack(text) {
        Some(MissingFeature::Database) => return LitellmError::NoDatabase(what),
        Some(MissingFeature::MasterKey) => return LitellmError::NotMaster(what),
        None => {}
    }
    if let Some(budget) = spent_budget(text) {
        return LitellmError::Budget(what, status, Box::new(budget));
    }
    match bound(text.as_bytes()) {
        Some(bound) => LitellmError::Bound(what, status, bound),
        None => LitellmError::Status(what, status),
    }
}

/// The budget that has no room left, if that is what an answer says.
fn spent_budget(text: &str) -> Option<Exhausted> {
    #[derive(Deserialize)]
    struct Refusal {
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        message: String,
        r#type: String,
    }
    let Refusal { error } = serde_json::from_str(text).ok()?;
    let budget = BudgetRefusal::of_account(&error.message).filter(|_| error.r#type == BUDGET_EXCEEDED)?;
    Some(Exhausted::from(&budget))
}

/// What LiteLLM says of a key that it does not make.
fn bound(body: &[u8]) -> Option<KeyBound> {
    let text = String::from_utf8_lossy(body);
    let says = |words: &str| text.contains(words);
    if says("LiteLLM Enterprise") || says("enterprise license") {
        Some(KeyBound::Licence)
    } else if says("max_budget is over max limit set in config") || (says("max_budget (") && says(" cannot ")) {
        Some(KeyBound::MaxBudget)
    } else if says("duration is over max limit set in config") {
        Some(KeyBound::Duration)
    } else {
        says("is over max limit set in config").then_some(KeyBound::Other)
    }
}

/// Without the query: it may name accounts.
fn name(method: &Method, path: &str) -> String {
    format!("{method} {}", path.split('?').next().unwrap_or_default())
}

/// A value as it stands in a query.
pub fn escaped(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

/// What a LiteLLM without a database says is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFeature {
    /// The question needs one.
    Database,
    /// Only its own key is good.
    MasterKey,
}

/// What an answer that is no success says is missing, if that is a database. One that is only out of reach is not:
/// its LiteLLM has the same `type` for that, `no_db_connection`, and status 503.
pub(crate) fn lack(text: &str) -> Option<MissingFeature> {
    if text.contains(NOT_MASTER) {
        return Some(MissingFeature::MasterKey);
    }
    NO_DATABASE.iter().any(|words| text.contains(words)).then_some(MissingFeature::Database)
}

#[cfg(test)]
mod tests;
