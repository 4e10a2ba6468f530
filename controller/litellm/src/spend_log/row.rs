//! A row of LiteLLM's spend log, from the text of an answer.
//!
//! Pure. Amounts are read from their digits. Of a row that is not the account's nothing is believed, and nothing is
//! kept; a row of the account that cannot be read is an error, since what it says cannot be left out of a bill.

use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use sluice_contract::record::Usage;
use sluice_contract::text::sanitize;
use sluice_contract::{Hash, RunKey, Usd};

/// What one answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendPage {
    /// The account's rows.
    pub rows: Vec<SpendRow>,
    /// Different rows, whoever's.
    pub distinct: usize,
    /// Rows of others, which were not asked for.
    pub foreign: usize,
    /// How many there are on all pages.
    pub total: u64,
    /// Whether there are more than it counts.
    pub is_capped: bool,
}

/// One row: a call as LiteLLM bills it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendRow {
    /// Its primary key; not our id of the call, and seldom LiteLLM's.
    pub request_id: String,
    /// The sidecar's id of the call: what we join on.
    pub sluice_call_id: Option<String>,
    /// The run that it says it was made by.
    pub run: Option<RunKey>,
    /// LiteLLM's id of the call, where its version tells.
    pub litellm_call_id: Option<String>,
    /// Who pays.
    pub account: String,
    /// Dollars, in LiteLLM's own words.
    pub spend: String,
    /// The same, rounded half-even.
    pub nanos: i64,
    /// Tokens.
    pub input: u64,
    /// Tokens.
    pub output: u64,
    /// What answered.
    pub model: Option<String>,
    /// Whether it was answered from a cache, by LiteLLM's own word: its column, or where there is none its name.
    pub is_cache_hit: bool,
    /// Whether the call failed.
    pub is_failure: bool,
    /// When it began, in microseconds since 1970, by LiteLLM's clock.
    pub start_us: i64,
    /// When it ended.
    pub end_us: i64,
}

/// The answer is not what a spend log says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadablePage {
    /// Not the object that it should be.
    #[error("the answer is no page of a spend log: {0}")]
    Page(String),
    /// A row of the account.
    #[error("row {id} of the spend log cannot be read: {why}")]
    Row {
        /// Its name, as far as it has one.
        id: String,
        /// Why.
        why: String,
    },
}

/// The longest name that we keep.
const NAME_MAX: usize = 1024;
/// What LiteLLM puts behind the name of a row that a cache answered.
const CACHE_HIT: &str = "_cache_hit";
/// What LiteLLM puts between the id of a call and the number of an earlier try of it.
const ATTEMPT: &str = "-attempt-";

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
    total: u64,
    #[serde(default)]
    total_is_capped: bool,
}

/// What tells whose a row is.
#[derive(Deserialize)]
struct Owner {
    request_id: Option<String>,
    end_user: Option<String>,
}

#[derive(Deserialize)]
struct Told<'a> {
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
struct Metadata<'a> {
    #[serde(borrow)]
    spend_logs_metadata: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Ours {
    sluice_call_id: Option<String>,
    run_id: Option<String>,
    attempt: Option<u32>,
}

/// Reads an answer, for the rows of one account.
///
/// # Errors
/// [`UnreadablePage`].
pub fn page(text: &str, account: &str) -> Result<SpendPage, UnreadablePage> {
    let answer: Answer<'_> = serde_json::from_str(text).map_err(|error| UnreadablePage::Page(wrong(&error)))?;
    let mut page =
        SpendPage { rows: Vec::new(), distinct: 0, foreign: 0, total: answer.total, is_capped: answer.total_is_capped };
    let mut names = std::collections::HashSet::new();
    for raw in answer.data {
        let owner: Owner = serde_json::from_str(raw.get())
            .map_err(|error| UnreadablePage::Row { id: "without a name".to_owned(), why: wrong(&error) })?;
        // A row without a name is different from all others.
        page.distinct += usize::from(owner.request_id.clone().is_none_or(|id| names.insert(id)));
        if owner.end_user.as_deref() != Some(account) {
            page.foreign += 1;
            continue;
        }
        let id = owner.request_id.unwrap_or_default();
        page.rows.push(row(raw.get(), account).map_err(|why| UnreadablePage::Row { id: shown(&id), why })?);
    }
    Ok(page)
}

fn row(text: &str, account: &str) -> Result<SpendRow, String> {
    let told: Told<'_> = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    if told.request_id.is_empty() || told.request_id.len() > NAME_MAX {
        return Err("request_id is no name".to_owned());
    }
    let spend = told.spend.get();
    let amount = Usd::parse(spend).map_err(|error| format!("spend is {}: {error}", shown(spend)))?;
    // More would be posted as the most that can be counted, for ever.
    if !amount.is_countable() {
        return Err(format!("spend is {}: more than nine billion dollars cannot be counted", shown(spend)));
    }
    let ours = ours(told.metadata);
    let text = |raw: Option<&RawValue>| raw.map(|raw| raw.get().trim_matches('"').to_ascii_lowercase());
    let name = |name: Option<String>| name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX);
    Ok(SpendRow {
        // Beside the column the name says nothing: a provider chooses the rest of it.
        is_cache_hit: text(told.cache_hit).map_or(told.request_id.contains(CACHE_HIT), |hit| hit == "true"),
        request_id: told.request_id,
        run: ours.run_id.and_then(|run| format!("{run}.{}", ours.attempt.unwrap_or(0)).parse().ok()),
        sluice_call_id: name(ours.sluice_call_id),
        litellm_call_id: name(told.litellm_call_id),
        account: account.to_owned(),
        nanos: amount.to_nanos(),
        spend: spend.to_owned(),
        input: count(told.prompt_tokens, "prompt_tokens")?,
        output: count(told.completion_tokens, "completion_tokens")?,
        model: name(told.model),
        is_failure: told.status.as_deref() == Some("failure"),
        start_us: micros(&told.start).ok_or_else(|| format!("startTime is {}", shown(&told.start)))?,
        end_us: micros(&told.end).ok_or_else(|| format!("endTime is {}", shown(&told.end)))?,
    })
}

/// What the sidecar has said of the call. Some versions give metadata as a text of JSON. Anything else says nothing.
fn ours(metadata: Option<&RawValue>) -> Ours {
    let Some(metadata) = metadata else { return Ours::default() };
    let unpacked = serde_json::from_str::<String>(metadata.get());
    let metadata = unpacked.as_deref().unwrap_or(metadata.get());
    let metadata: Metadata<'_> = serde_json::from_str(metadata).unwrap_or_default();
    metadata.spend_logs_metadata.and_then(|ours| serde_json::from_str(ours.get()).ok()).unwrap_or_default()
}

/// As many as an audit line can hold.
fn count(tokens: Option<u64>, name: &str) -> Result<u64, String> {
    let tokens = tokens.unwrap_or(0);
    if tokens <= 1 << 53 { Ok(tokens) } else { Err(format!("{name} is {tokens}")) }
}

/// Microseconds since 1970 of a time in UTC, however it is written.
fn micros(text: &str) -> Option<i64> {
    let plain = text.trim_end_matches("+00:00").trim_end_matches('Z');
    let time = humantime::parse_rfc3339_weak(plain).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

/// Why it cannot be read, and where; not in the reader's words, which quote what is there.
fn wrong(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        Category::Data => "a member is missing, doubled, or not of its kind",
        Category::Eof => "it breaks off",
        Category::Syntax | Category::Io => "it is no JSON",
    };
    format!("{what}, in line {}, column {}", error.line(), error.column())
}

/// What somebody else wrote, short enough for a message and with nothing for a terminal.
fn shown(text: &str) -> String {
    sanitize(&text.chars().take(80).collect::<String>())
}

impl SpendRow {
    /// Its facts, hashed: the same row has the same one, in whichever way its numbers are written.
    #[must_use]
    pub fn hash(&self) -> Hash {
        let amount = Usd::parse(&self.spend).map_or_else(|_| self.spend.clone(), |amount| amount.to_string());
        let facts = serde_json::json!([
            self.request_id, self.sluice_call_id, self.litellm_call_id, self.account, amount, self.input, self.output,
            self.is_cache_hit, self.is_failure,
        ]);
        Hash::of(facts.to_string().as_bytes())
    }

    /// Its tokens, as a receipt has them; none where nothing was counted.
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

    /// Whether a cache of LiteLLM's answered, and LiteLLM billed nothing.
    #[must_use]
    pub fn is_free_hit(&self) -> bool {
        self.is_cache_hit && self.nanos == 0
    }

    /// The id of the call that the row bills an earlier try of. LiteLLM names such rows `CALL-attempt-N`, logs them as
    /// failed, and puts the sidecar's id of the call on some of them alone.
    #[must_use]
    pub fn retried_call(&self) -> Option<&str> {
        let name = self.litellm_call_id.as_deref().unwrap_or(&self.request_id);
        let (call, number) = name.rsplit_once(ATTEMPT)?;
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        (self.is_failure && is_number).then_some(call)
    }

    /// The id of the call that it names: the sidecar's, else LiteLLM's.
    #[must_use]
    pub fn call_id(&self) -> Option<&str> {
        self.sluice_call_id.as_deref().or_else(|| self.retried_call()).or(self.litellm_call_id.as_deref())
    }

    /// The id of the answer, as the client saw it, if that is what the row is named after.
    #[must_use]
    pub fn response_id(&self) -> &str {
        self.request_id.split(CACHE_HIT).next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
