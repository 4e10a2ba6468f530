//! The client of LiteLLM's `GET /spend/logs/v2`.
//!
//! What may help is tried again.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::sleep;

use crate::client::{Litellm, LitellmError, MissingFeature, escaped, lack};
use crate::secret::ApiKey;

pub mod row;
pub mod window;

use row::{SpendPage, SpendRow, UnreadablePage};
use window::TimeWindow;

/// Rows of a page. LiteLLM gives 1,000 at most; each is about 11 KB.
const PAGE_ROWS: u64 = 500;
/// Bytes of an answer.
const ANSWER_MAX: usize = 64 << 20;
/// From the question to the end of the answer.
const WITHIN: Duration = Duration::from_secs(60);
/// Questions of one reconciliation.
const QUESTIONS_MAX: u32 = 4096;
/// How often a page is read again that does not hold still.
const READS: u32 = 5;
/// Before each further try of what failed.
const BACK_OFF: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// The spend log of one LiteLLM.
pub struct SpendLog {
    upstream: String,
    litellm: Litellm,
    patience: RetryMode,
    asked: u32,
}

/// What to do about failures that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryMode {
    /// Try again, a few times.
    Retry,
    /// Give up.
    Once,
}

/// The rows of some windows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpendRows {
    /// By their names.
    pub rows: BTreeMap<String, SpendRow>,
    /// Rows of others, which were not asked for and not looked at.
    pub foreign: usize,
}

/// Why the spend log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SpendLogError {
    /// There is no answer.
    #[error("cannot read the spend log at {upstream}")]
    Asking {
        /// Which upstream.
        upstream: String,
        /// Why.
        #[source]
        source: LitellmError,
    },
    /// A LiteLLM without a database, or something else.
    #[error("{upstream} keeps no spend log: {why}; LiteLLM keeps one when it has a database")]
    None {
        /// Which upstream.
        upstream: String,
        /// What it said.
        why: String,
    },
    /// The key may not read it.
    #[error(
        "the key may not read the spend log at {upstream}: {why}; give one that may by --spend-key-file \
         (a key with allowed_routes [\"/spend/logs/v2\"] can do nothing else)"
    )]
    Refused {
        /// Which upstream.
        upstream: String,
        /// What it said, as far as it may be shown.
        why: String,
    },
    /// Another status.
    #[error("the spend log at {upstream} answered with status {status}; LiteLLM's own log says why")]
    Status {
        /// Which upstream.
        upstream: String,
        /// The status.
        status: u16,
    },
    /// An answer that is none.
    #[error(transparent)]
    Unreadable(#[from] UnreadablePage),
    /// The numbers of its pages do not fit.
    #[error(
        "the spend log says that it has {told} rows of these seconds, and gave {given}; try again when it is at rest"
    )]
    Unstable {
        /// What it says.
        told: u64,
        /// What it gave.
        given: usize,
    },
    /// So many rows that nobody can count them.
    #[error("the spend log has more rows than it counts, in one second")]
    Capped,
    /// It would take for ever.
    #[error(
        "this takes more than {QUESTIONS_MAX} questions to the spend log; ask for less with --run, --account or --since"
    )]
    TooMuch,
}

impl SpendLogError {
    /// Whether it may pass by itself.
    fn may_pass(&self) -> bool {
        match self {
            Self::Asking { source, .. } => source.may_pass(),
            Self::Status { status, .. } => *status >= 500 || *status == 429,
            Self::None { .. }
            | Self::Refused { .. }
            | Self::Unreadable(_)
            | Self::Unstable { .. }
            | Self::Capped
            | Self::TooMuch => false,
        }
    }

    /// Whether it stays so until somebody changes that LiteLLM.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::None { .. } | Self::Refused { .. } | Self::Unreadable(UnreadablePage::Page(_)))
    }
}

impl SpendLog {
    /// That of an upstream.
    ///
    /// # Errors
    /// [`SpendLogError::Asking`] when the address is none.
    pub fn of(upstream: &str, key: &ApiKey, patience: RetryMode) -> Result<Self, SpendLogError> {
        let litellm = Litellm::new(upstream, key.clone()).map_err(|source| asking(upstream, source))?;
        let litellm = litellm.within(WITHIN).at_most(ANSWER_MAX);
        Ok(Self { upstream: upstream.to_owned(), litellm, patience, asked: 0 })
    }

    /// An account's rows of these windows.
    ///
    /// # Errors
    /// The first one.
    pub async fn rows(&mut self, account: &str, windows: &[TimeWindow]) -> Result<SpendRows, SpendLogError> {
        let mut rows = SpendRows::default();
        let mut todo: Vec<_> = windows.iter().rev().copied().collect();
        while let Some(window) = todo.pop() {
            let page = self.settled(account, window).await?;
            let fits = !page.is_capped && page.total <= PAGE_ROWS;
            match window.halves() {
                _ if fits => rows.add(page),
                Some([first, second]) => todo.extend([second, first]),
                None if page.is_capped => return Err(SpendLogError::Capped),
                None => self.pages(account, window, &mut rows).await?,
            }
        }
        Ok(rows)
    }

    /// The first page of a window, read again while it says one thing and gives another.
    async fn settled(&mut self, account: &str, window: TimeWindow) -> Result<SpendPage, SpendLogError> {
        let mut reads = 0;
        loop {
            let page = self.ask(account, window, 1).await?;
            reads += 1;
            let whole = page.total.min(PAGE_ROWS);
            if page.is_capped || page.distinct as u64 == whole {
                return Ok(page);
            }
            self.again(reads, page.total, page.distinct).await?;
        }
    }

    /// All pages of one second, until together they have as many rows as they say.
    async fn pages(&mut self, account: &str, window: TimeWindow, rows: &mut SpendRows) -> Result<(), SpendLogError> {
        let mut reads = 0;
        loop {
            let (mut second, mut number) = (SpendRows::default(), 1);
            let total = loop {
                let page = self.ask(account, window, number).await?;
                let total = page.total;
                let is_last = page.rows.len() + page.foreign == 0 || u64::from(number) * PAGE_ROWS >= total;
                second.add(page);
                if is_last {
                    break total;
                }
                number += 1;
            };
            reads += 1;
            let given = second.rows.len() + second.foreign;
            if given as u64 == total {
                rows.rows.append(&mut second.rows);
                rows.foreign += second.foreign;
                return Ok(());
            }
            self.again(reads, total, given).await?;
        }
    }

    async fn again(&self, reads: u32, told: u64, given: usize) -> Result<(), SpendLogError> {
        if reads == READS || self.patience == RetryMode::Once {
            return Err(SpendLogError::Unstable { told, given });
        }
        // A row was written between its two looks at the table.
        sleep(Duration::from_millis(100)).await;
        Ok(())
    }

    async fn ask(&mut self, account: &str, window: TimeWindow, page: u32) -> Result<SpendPage, SpendLogError> {
        let mut waits = BACK_OFF.iter();
        loop {
            self.asked += 1;
            if self.asked > QUESTIONS_MAX {
                return Err(SpendLogError::TooMuch);
            }
            let error = match self.ask_once(account, window, page).await {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            match waits.next() {
                Some(wait) if self.patience == RetryMode::Retry && error.may_pass() => sleep(*wait).await,
                _ => return Err(error),
            }
        }
    }

    async fn ask_once(&self, account: &str, window: TimeWindow, page: u32) -> Result<SpendPage, SpendLogError> {
        let query = [
            ("start_date", time(window.from)),
            ("end_date", time(window.to)),
            ("end_user", account.to_owned()),
            ("page", page.to_string()),
            ("page_size", PAGE_ROWS.to_string()),
        ];
        let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let answer = self.litellm.answer(&format!("/spend/logs/v2?{}", query.join("&"))).await;
        let (status, text) = answer.map_err(|source| asking(&self.upstream, source))?;
        if status == 200 {
            return Ok(row::page(&text, account)?);
        }
        Err(refusal(&self.upstream, status, &text))
    }
}

impl SpendRows {
    fn add(&mut self, page: SpendPage) {
        self.foreign += page.foreign;
        self.rows.extend(page.rows.into_iter().map(|row| (row.request_id.clone(), row)));
    }
}

fn asking(upstream: &str, source: LitellmError) -> SpendLogError {
    SpendLogError::Asking { upstream: upstream.to_owned(), source }
}

/// What an answer that is no page means. Its words are looked at and not repeated: they may hold the key.
fn refusal(upstream: &str, status: u16, text: &str) -> SpendLogError {
    let upstream = upstream.to_owned();
    if let Some(lack) = lack(text) {
        let why = match lack {
            MissingFeature::Database => "it has no database",
            MissingFeature::MasterKey => "it has no database, and does not take the key",
        };
        return SpendLogError::None { upstream, why: why.to_owned() };
    }
    match status {
        404 | 405 => SpendLogError::None { upstream, why: format!("status {status} to GET /spend/logs/v2") },
        300..=399 => {
            SpendLogError::None { upstream, why: "it redirects, and the key is not sent elsewhere".to_owned() }
        }
        401 | 403 => {
            let is_role = text.contains("Only proxy admin");
            let why = if is_role { "it takes an admin's key" } else { "it does not take the key" };
            SpendLogError::Refused { upstream, why: why.to_owned() }
        }
        status => SpendLogError::Status { upstream, status },
    }
}

/// `YYYY-MM-DD HH:MM:SS`, UTC: the one form of a time that all versions take.
fn time(seconds: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.max(0).cast_unsigned());
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_names_are_written_as_a_url_takes_them() {
        assert_eq!(escaped(&time(1_795_203_588)), "2026-11-20%2019%3A39%3A48");
        assert_eq!(escaped("a-b_c.d~e/f&g=h i%"), "a-b_c.d~e%2Ff%26g%3Dh%20i%25");
    }

    #[test]
    fn refusals_say_what_to_do_and_nothing_of_the_key() {
        let error = |status: u16, text: &str| refusal("http://up", status, text).to_string();
        let message = |text: &str| format!(r#"{{"error":{{"message":"{text}","type":"x"}}}}"#);
        for (status, text) in [
            (401, message("Prisma Client is not initialized")),
            (400, r#"{"error":{"message":"No connected db.","type":"no_db_connection"}}"#.to_owned()),
            (404, r#"{"detail":"Not Found"}"#.to_owned()),
            (307, String::new()),
        ] {
            assert!(error(status, &text).contains("keeps no spend log"), "{text}");
        }
        let leaky = error(401, &message("Received API Key = sk-...abcd, Key Hash =2ab06cfa"));
        assert!(leaky.contains("--spend-key-file") && !leaky.contains("abcd") && !leaky.contains("2ab0"), "{leaky}");
        // A database that is only out of reach comes back.
        let down =
            refusal("http://up", 503, r#"{"error":{"message":"Service Unavailable","type":"no_db_connection"}}"#);
        assert!(down.may_pass() && down.to_string().contains("status 503;"), "{down}");
        assert!(error(401, &message("Only proxy admin can be used")).contains("takes an admin's key"));
        let echo = error(500, &message("boom for Bearer sk-operator"));
        assert!(echo.contains("status 500;") && !echo.contains("sk-operator"), "{echo}");
    }
}
