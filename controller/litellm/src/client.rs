//! A client of LiteLLM's own HTTP API, with the operator's key and limits on the time and the size of answers.
//!
//! No redirect is followed, since it would send the key to another server. The body of a failure is never repeated:
//! LiteLLM's error bodies contain parts of keys, and tracebacks.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use http::{HeaderValue, Method, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use sluice_contract::budget::{BUDGET_EXCEEDED, BudgetRefusal};
use sluice_contract::exhausted::Exhausted;
use sluice_upstream::{Address, Upstream};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::secret::ApiKey;

mod exchange;

use exchange::{HttpAnswer, SendError};

/// Maximum time of an answer, from connecting to its last byte.
pub const WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes.
pub const AT_MOST: usize = 16 << 20;

/// Messages of LiteLLM without a database, in all known versions.
const NO_DATABASE: [&str; 5] = [
    "DB not connected", "Database not connected", "Not connected to DB", "No DB Connected",
    "Prisma Client is not initialized",
];
/// Message of LiteLLM if it does not know the key, and has no database to look it up in.
const NOT_MASTER: &str = "No connected db.";

/// A client of one LiteLLM, with a key.
#[derive(Debug, Clone)]
pub struct Litellm {
    address: Address,
    ca: Option<PathBuf>,
    key: ApiKey,
    within: Duration,
    at_most: usize,
}

/// Reason why a request has no usable answer. The error contains no text of the answer.
#[derive(Debug, thiserror::Error)]
pub enum LitellmError {
    /// The upstream is not an address, or contains credentials, which are not repeated here.
    #[error("'{0}' is not an upstream; write http://HOST:PORT, https://HOST or unix:/PATH, without credentials")]
    Address(String),
    /// A header cannot contain the key.
    #[error("the upstream's key is not a line of visible characters")]
    Key,
    /// Nothing was sent. The text is the address and the request.
    #[error("cannot connect to LiteLLM at {0}")]
    Unreachable(String, #[source] io::Error),
    /// The request was sent, at least in part, and the answer is incomplete.
    #[error("LiteLLM broke off its answer to {0}")]
    Broken(String, #[source] io::Error),
    /// No complete answer arrived in time.
    #[error("LiteLLM did not answer {0} within {1:?}")]
    Late(String, Duration),
    /// The answer is too long.
    #[error("LiteLLM's answer to {0} is longer than {1} bytes")]
    TooLong(String, usize),
    /// LiteLLM does not accept the key, or not for this request.
    #[error("LiteLLM refuses the key for {0} (status {1}); it takes the master key, or one of an admin")]
    Denied(String, u16),
    /// LiteLLM has no database, which the request needs.
    #[error("LiteLLM has no database, which {0} needs")]
    NoDatabase(String),
    /// LiteLLM has no database, and the key is not its master key.
    #[error("LiteLLM refuses the key for {0}: without a database it takes its master key alone, and this is another")]
    NotMaster(String),
    /// A budget at LiteLLM stops the key of the request.
    #[error("LiteLLM refused {0} (status {1}): {2}; raise that budget, or wait until it is reset")]
    Budget(String, u16, Box<Exhausted>),
    /// LiteLLM's configuration, or the key of the request, limits the keys that it makes.
    #[error("LiteLLM refused {0} (status {1}): {2}")]
    Bound(String, u16, KeyBound),
    /// Any other status that is not a success.
    #[error("LiteLLM answered {0} with status {1}")]
    Status(String, u16),
}

/// A limit of LiteLLM on the keys that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyBound {
    /// The `max_budget` is too high.
    MaxBudget,
    /// The lifetime is too long.
    Duration,
    /// Another limit.
    Other,
    /// The request needs a licence.
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
    /// Returns whether a later request may succeed.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(..) | Self::Broken(..) | Self::Late(..))
    }
}

impl Litellm {
    /// Makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`LitellmError::Address`].
    pub fn new(upstream: &Upstream, key: ApiKey) -> Result<Self, LitellmError> {
        let Upstream { url, ca } = upstream;
        let address = url.parse().map_err(|_| LitellmError::Address(sluice_upstream::redact(url)))?;
        Ok(Self { address, ca: ca.clone(), key, within: WITHIN, at_most: AT_MOST })
    }

    /// Sets the maximum time of each answer.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Sets the maximum size of each answer.
    #[must_use]
    pub fn at_most(self, at_most: usize) -> Self {
        Self { at_most, ..self }
    }

    /// Sends a `GET` and returns the body of its answer; `path` may contain a query.
    ///
    /// # Errors
    /// [`LitellmError`]; every status but 2xx is one.
    pub async fn get(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, LitellmError> {
        self.ask(Method::GET, path, String::new()).await
    }

    /// Sends a `POST` of JSON and returns the body of its answer.
    ///
    /// # Errors
    /// [`LitellmError`]; every status but 2xx is one.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, LitellmError> {
        self.ask(Method::POST, path, serde_json::to_string(body).expect("plain data")).await
    }

    /// Sends a `GET` and returns the status and the text of its answer, whatever the status is. The key is redacted, since
    /// a caller may quote text that it cannot read.
    ///
    /// # Errors
    /// [`LitellmError`] if no answer arrives.
    pub async fn answer(&self, path: &str) -> Result<(u16, String), LitellmError> {
        let (status, body) = self.exchange(Method::GET, path, String::new()).await?;
        Ok((status, self.key.redact(&String::from_utf8_lossy(&body))))
    }

    async fn ask(&self, method: Method, path: &str, body: String) -> Result<Zeroizing<Vec<u8>>, LitellmError> {
        let what = name(&method, path);
        match self.exchange(method, path, body).await? {
            (200..=299, body) => Ok(body),
            (status @ (401 | 403), body) if key_bound(&body).is_none() => Err(LitellmError::Denied(what, status)),
            (status, body) => Err(failure(what, status, &String::from_utf8_lossy(&body))),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<HttpAnswer, LitellmError> {
        let what = name(&method, path);
        let request = self.request(method, path, body)?;
        match timeout(self.within, exchange::send(&self.address, self.ca.as_deref(), request, self.at_most)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(SendError::BeforeSending(error))) => {
                Err(LitellmError::Unreachable(format!("{} for {what}", self.address), error))
            }
            Ok(Err(SendError::Interrupted(error))) => Err(LitellmError::Broken(what, error)),
            Ok(Err(SendError::TooLong)) => Err(LitellmError::TooLong(what, self.at_most)),
            Err(_) => Err(LitellmError::Late(what, self.within)),
        }
    }

    fn request(&self, method: Method, path: &str, body: String) -> Result<Request<String>, LitellmError> {
        let invalid = || LitellmError::Address(path.split('?').next().unwrap_or_default().to_owned());
        Request::builder()
            .method(method)
            .uri(self.address.try_target(path).map_err(|_| invalid())?)
            .header(header::HOST, &self.address.authority)
            .header(header::AUTHORIZATION, self.key.bearer().ok_or(LitellmError::Key)?)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            // Some versions compress long answers.
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(header::CONNECTION, HeaderValue::from_static("close"))
            .body(body)
            .map_err(|_| invalid())
    }
}

/// Returns the error for a failed request. The text of the answer is examined and not repeated.
fn failure(what: String, status: u16, text: &str) -> LitellmError {
    match missing_feature(text) {
        Some(MissingFeature::Database) => return LitellmError::NoDatabase(what),
        Some(MissingFeature::MasterKey) => return LitellmError::NotMaster(what),
        None => {}
    }
    if let Some(budget) = spent_budget(text) {
        return LitellmError::Budget(what, status, Box::new(budget));
    }
    match key_bound(text.as_bytes()) {
        Some(bound) => LitellmError::Bound(what, status, bound),
        None => LitellmError::Status(what, status),
    }
}

/// Returns the budget that is used up, if the answer names one.
fn spent_budget(text: &str) -> Option<Exhausted> {
    #[derive(Deserialize)]
    struct LiteLlmErrorBody {
        error: ErrorDetail,
    }
    #[derive(Deserialize)]
    struct ErrorDetail {
        message: String,
        r#type: String,
    }
    let LiteLlmErrorBody { error } = serde_json::from_str(text).ok()?;
    let budget = BudgetRefusal::of_account(&error.message).filter(|_| error.r#type == BUDGET_EXCEEDED)?;
    Some(Exhausted::from(&budget))
}

/// Returns the limit that an answer names as its reason not to make a key.
fn key_bound(body: &[u8]) -> Option<KeyBound> {
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

/// Returns method and path for messages, without the query: it may name accounts.
fn name(method: &Method, path: &str) -> String {
    format!("{method} {}", path.split('?').next().unwrap_or_default())
}

/// Characters of a query's value that are percent-encoded: all but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a percent-encoded value for a query.
pub fn query_value(value: &str) -> impl fmt::Display {
    utf8_percent_encode(value, RESERVED)
}

/// A feature that a LiteLLM without a database does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFeature {
    /// The request needs a database.
    Database,
    /// Only the master key is accepted.
    MasterKey,
}

/// Returns the missing feature if a failed request needs a database. A database that is only unreachable is not missing:
/// LiteLLM answers with the same `type`, `no_db_connection`, and with status 503.
pub(crate) fn missing_feature(text: &str) -> Option<MissingFeature> {
    if text.contains(NOT_MASTER) {
        return Some(MissingFeature::MasterKey);
    }
    NO_DATABASE.iter().any(|words| text.contains(words)).then_some(MissingFeature::Database)
}

#[cfg(test)]
mod tests;
