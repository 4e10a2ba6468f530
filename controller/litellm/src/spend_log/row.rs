//! Rows of LiteLLM's spend log, from the text of an answer.
//!
//! Pure. Amounts are read from their digits. Rows of other accounts are counted and otherwise ignored. A row of the account
//! that cannot be read is kept with its names and the reason, since a bill cannot leave it out. It concerns its own call
//! alone: LiteLLM writes what a provider states, such as a negative number of tokens.

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use sluice_contract::record::Usage;
use sluice_contract::text::sanitize;
use sluice_contract::time::unix_micros;
use sluice_contract::{Hash, RunKey, Usd};

mod row_names;
mod unreadable;

pub use row_names::RowNames;
pub use unreadable::UnreadableRow;

/// A page of the spend log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendPage {
    /// Rows of the account.
    pub rows: Vec<SpendRow>,
    /// Rows of the account that cannot be read.
    pub unreadable: Vec<UnreadableRow>,
    /// Number of different rows of all accounts.
    pub distinct: usize,
    /// Number of rows of other accounts, which were not requested.
    pub foreign: usize,
    /// Number of rows on all pages.
    pub total: u64,
    /// Set if there are more rows than LiteLLM counts.
    pub is_capped: bool,
}

/// A row: a call as LiteLLM bills it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendRow {
    /// Primary key; not the sidecar's id of the call, and rarely LiteLLM's.
    pub request_id: String,
    /// The sidecar's id of the call, by which rows and receipts are joined.
    pub sluice_call_id: Option<String>,
    /// Run that made the call, according to the row.
    pub run: Option<RunKey>,
    /// LiteLLM's id of the call, if its version writes one.
    pub litellm_call_id: Option<String>,
    /// Account that pays.
    pub account: String,
    /// Cost in dollars, as LiteLLM writes it.
    pub spend: String,
    /// Cost in nano-USD, rounded half to even.
    pub nanos: i64,
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Model that answered.
    pub model: Option<String>,
    /// Set if a cache of LiteLLM answered, according to the row's column, or to its name if it has no such column.
    pub is_cache_hit: bool,
    /// Set if the call failed.
    pub is_failure: bool,
    /// Start of the call in microseconds since 1970, by LiteLLM's clock.
    pub start_us: i64,
    /// End of the call in microseconds since 1970, by LiteLLM's clock.
    pub end_us: i64,
}

/// An answer that is not a page of a spend log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer holds no page of a spend log: {0}")]
pub struct UnreadablePage(JsonFault);

/// Reason why a row cannot be read. Texts of the row are sanitized and truncated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// The row is not the expected object.
    #[error(transparent)]
    Json(#[from] JsonFault),
    /// The row has no usable name.
    #[error("request_id is not a name")]
    NoName,
    /// The cost is not an amount.
    #[error("spend is {0}: {1}")]
    NotAnAmount(String, sluice_contract::money::NotAnAmount),
    /// The cost is too high to count. It would be posted as the highest amount that can be counted.
    #[error("spend is {0}: more than nine billion dollars cannot be counted")]
    Uncountable(String),
    /// A number of tokens is too high.
    #[error("{0} is {1}")]
    TooManyTokens(&'static str, u64),
    /// A time cannot be read.
    #[error("{0} is {1}")]
    NotATime(&'static str, String),
}

/// Kind and place of a fault in JSON, without text of the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}, in line {line}, column {column}")]
pub struct JsonFault {
    what: &'static str,
    line: usize,
    column: usize,
}

/// Maximum size of a name in bytes.
const NAME_MAX: usize = 1024;
/// Marker that LiteLLM adds to the name of a row that a cache answered.
const CACHE_HIT: &str = "_cache_hit";

#[derive(Deserialize)]
struct PageBody<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
    total: u64,
    #[serde(default)]
    total_is_capped: bool,
}

/// The members that name a row and its account, of any type.
#[derive(Deserialize)]
struct RowOwner<'a> {
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    end_user: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawRow<'a> {
    request_id: String,
    litellm_call_id: Option<String>,
    #[serde(borrow)]
    spend: &'a RawValue,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    model: Option<String>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_hit: Option<&'a RawValue>,
    status: Option<String>,
    #[serde(rename = "startTime")]
    start: String,
    #[serde(rename = "endTime")]
    end: String,
}

#[derive(Deserialize, Default)]
struct RowMetadata<'a> {
    #[serde(borrow)]
    spend_logs_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct SluiceMetadata {
    sluice_call_id: Option<String>,
    run_id: Option<String>,
    attempt: Option<u32>,
}

impl SluiceMetadata {
    /// Returns the run that it names.
    fn run(&self) -> Option<RunKey> {
        format!("{}.{}", self.run_id.as_ref()?, self.attempt.unwrap_or(0)).parse().ok()
    }
}

/// Reads a page, and the rows of one account on it.
///
/// # Errors
/// [`UnreadablePage`].
pub fn page(text: &str, account: &str) -> Result<SpendPage, UnreadablePage> {
    let answer: PageBody<'_> = serde_json::from_str(text).map_err(|error| UnreadablePage(JsonFault::of(&error)))?;
    let mut page = SpendPage {
        rows: Vec::new(),
        unreadable: Vec::new(),
        distinct: 0,
        foreign: 0,
        total: answer.total,
        is_capped: answer.total_is_capped,
    };
    let mut names = std::collections::HashSet::new();
    for raw in answer.data {
        let raw = raw.get();
        let owner = serde_json::from_str::<RowOwner<'_>>(raw).map_err(|error| JsonFault::of(&error));
        let id = owner.as_ref().ok().and_then(|owner| string(owner.request_id));
        // A row without a name is different from all others.
        page.distinct += usize::from(id.is_none_or(|id| names.insert(id)));
        let read = match owner {
            Ok(owner) if string(owner.end_user).as_deref() != Some(account) => {
                page.foreign += 1;
                continue;
            }
            Ok(_) => row(raw, account),
            Err(fault) => Err(fault.into()),
        };
        match read {
            Ok(row) => page.rows.push(row),
            Err(why) => page.unreadable.push(UnreadableRow::of(raw, account, why)),
        }
    }
    Ok(page)
}

/// Returns the text of a member, if it is a string.
fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn row(text: &str, account: &str) -> Result<SpendRow, RowFault> {
    let raw: RawRow<'_> = serde_json::from_str(text).map_err(|error| JsonFault::of(&error))?;
    if raw.request_id.is_empty() || raw.request_id.len() > NAME_MAX {
        return Err(RowFault::NoName);
    }
    let spend = raw.spend.get();
    let amount = Usd::parse(spend).map_err(|error| RowFault::NotAnAmount(shown(spend), error))?;
    if !amount.is_countable() {
        return Err(RowFault::Uncountable(shown(spend)));
    }
    let sluice = sluice_metadata(raw.metadata);
    let text = |raw: Option<&RawValue>| raw.map(|raw| raw.get().trim_matches('"').to_ascii_lowercase());
    let name = |name: Option<String>| name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX);
    Ok(SpendRow {
        // The name counts only without the column, since a provider chooses a part of the name.
        is_cache_hit: text(raw.cache_hit).map_or(raw.request_id.contains(CACHE_HIT), |hit| hit == "true"),
        request_id: raw.request_id,
        run: sluice.run(),
        sluice_call_id: name(sluice.sluice_call_id),
        litellm_call_id: name(raw.litellm_call_id),
        account: account.to_owned(),
        nanos: amount.to_nanos(),
        spend: spend.to_owned(),
        input: count(raw.prompt_tokens, "prompt_tokens")?,
        output: count(raw.completion_tokens, "completion_tokens")?,
        model: name(raw.model),
        is_failure: raw.status.as_deref() == Some("failure"),
        start_us: time("startTime", &raw.start)?,
        end_us: time("endTime", &raw.end)?,
    })
}

/// Returns the sidecar's metadata of the call. Some versions write metadata as a text of JSON. Other metadata is ignored.
fn sluice_metadata(metadata: Option<&RawValue>) -> SluiceMetadata {
    let Some(metadata) = metadata else { return SluiceMetadata::default() };
    let unpacked = serde_json::from_str::<String>(metadata.get());
    let metadata = unpacked.as_deref().unwrap_or(metadata.get());
    let metadata: RowMetadata<'_> = serde_json::from_str(metadata).unwrap_or_default();
    metadata.spend_logs_metadata.and_then(|own| serde_json::from_str(own.get()).ok()).unwrap_or_default()
}

/// Returns a number of tokens, which must fit an audit line.
fn count(tokens: Option<u64>, name: &'static str) -> Result<u64, RowFault> {
    let tokens = tokens.unwrap_or(0);
    if tokens <= 1 << 53 { Ok(tokens) } else { Err(RowFault::TooManyTokens(name, tokens)) }
}

/// Returns a time in UTC, in any notation of RFC 3339, as microseconds since 1970.
fn time(name: &'static str, text: &str) -> Result<i64, RowFault> {
    let plain = text.trim_end_matches("+00:00").trim_end_matches('Z');
    let time = humantime::parse_rfc3339_weak(plain).ok();
    time.and_then(unix_micros).ok_or_else(|| RowFault::NotATime(name, shown(text)))
}

impl JsonFault {
    /// Makes a fault without the words of the parser, which quote the JSON.
    fn of(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            Category::Data => "a member is missing, doubled, or not of its kind",
            Category::Eof => "it breaks off",
            Category::Syntax | Category::Io => "it is not valid JSON",
        };
        Self { what, line: error.line(), column: error.column() }
    }
}

/// Returns a foreign text for a message: sanitized and truncated.
fn shown(text: &str) -> String {
    sanitize(&text.chars().take(80).collect::<String>())
}

impl SpendRow {
    /// Returns the hash of the row's facts. The notation of the numbers does not matter.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let amount = Usd::parse(&self.spend).map_or_else(|_| self.spend.clone(), |amount| amount.to_string());
        let facts = serde_json::json!([
            self.request_id, self.sluice_call_id, self.litellm_call_id, self.account, amount, self.input, self.output,
            self.is_cache_hit, self.is_failure,
        ]);
        Hash::of(facts.to_string().as_bytes())
    }

    /// Returns its tokens as a receipt's usage; none if no token was counted.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let any = self.input > 0 || self.output > 0;
        any.then(|| Usage {
            input: Some(self.input),
            output: Some(self.output),
            total: Some(self.input + self.output),
            ..Usage::default()
        })
    }

    /// Returns whether a cache of LiteLLM answered, and LiteLLM billed nothing.
    #[must_use]
    pub fn is_free_hit(&self) -> bool {
        self.is_cache_hit && self.nanos == 0
    }

    /// Returns the names of the call that the row bills.
    #[must_use]
    pub fn names(&self) -> RowNames<'_> {
        RowNames {
            request_id: &self.request_id,
            sluice_call_id: self.sluice_call_id.as_deref(),
            litellm_call_id: self.litellm_call_id.as_deref(),
            is_failure: self.is_failure,
        }
    }

    /// Returns the id of the call if the row bills an earlier attempt at it ([`RowNames::retried_call`]).
    #[must_use]
    pub fn retried_call(&self) -> Option<&str> {
        self.names().retried_call()
    }

    /// Returns the id of its call ([`RowNames::call_id`]).
    #[must_use]
    pub fn call_id(&self) -> Option<&str> {
        self.names().call_id()
    }
}

#[cfg(test)]
mod tests;
