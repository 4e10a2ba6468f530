//! A client of LiteLLM's `GET /spend/logs/v2`.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use sluice_upstream::Upstream;
use tokio::time::sleep;

use crate::client::{Litellm, LitellmError, query_value};
use crate::secret::ApiKey;

mod error;
pub mod row;
pub mod window;

pub use error::{KeyRefusal, NoSpendLog, SpendLogError};

use row::{SpendPage, SpendRow, UnreadableRow};
use window::TimeWindow;

/// Number of rows of a page. LiteLLM gives 1,000 at most, and a row has about 11 KB.
const PAGE_ROWS: u64 = 500;
/// Maximum size of an answer in bytes.
const ANSWER_MAX: usize = 64 << 20;
/// Maximum time from the start of a request to the end of its answer.
const WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of requests of one reconciliation.
const QUESTIONS_MAX: u32 = 4096;
/// Maximum number of reads of a page if the number of its rows differs from the stated number.
const READS: u32 = 5;
/// Time before the next read of such a page.
const REREAD_AFTER: Duration = Duration::from_millis(100);
/// Waiting times before the further attempts after a failure.
const BACK_OFF: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// A client of the spend log of one LiteLLM.
pub struct SpendLog {
    upstream: String,
    litellm: Litellm,
    retries: RetryMode,
    /// Number of requests so far.
    requests: u32,
}

/// Reaction to failures that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryMode {
    /// Try again, a few times.
    Retry,
    /// Give up.
    Once,
}

/// The rows of some time windows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpendRows {
    /// Rows by their names.
    pub rows: BTreeMap<String, SpendRow>,
    /// Rows that cannot be read, by their names, or by their hashes if they have none.
    pub unreadable: BTreeMap<String, UnreadableRow>,
    /// Number of rows of other accounts, which were not requested and are ignored.
    pub foreign: usize,
}

impl SpendLog {
    /// Makes a client of the spend log of an upstream.
    ///
    /// # Errors
    /// [`SpendLogError::Asking`] if the address or the key is not valid.
    pub fn of(upstream: &Upstream, key: &ApiKey, retries: RetryMode) -> Result<Self, SpendLogError> {
        let litellm = Litellm::new(upstream, key.clone()).map_err(|source| asking(&upstream.url, source))?;
        let litellm = litellm.within(WITHIN).at_most(ANSWER_MAX);
        Ok(Self { upstream: upstream.url.clone(), litellm, retries, requests: 0 })
    }

    /// Returns an account's rows of these windows.
    ///
    /// # Errors
    /// The first failure that remains after retries.
    pub async fn rows(&mut self, account: &str, windows: &[TimeWindow]) -> Result<SpendRows, SpendLogError> {
        let mut rows = SpendRows::default();
        let mut pending: Vec<_> = windows.iter().rev().copied().collect();
        while let Some(window) = pending.pop() {
            let page = self.first_page(account, window).await?;
            let fits = !page.is_capped && page.total <= PAGE_ROWS;
            match window.halves() {
                _ if fits => rows.add(page),
                Some([first, second]) => pending.extend([second, first]),
                None if page.is_capped => return Err(SpendLogError::Capped),
                None => self.all_pages(account, window, &mut rows).await?,
            }
        }
        Ok(rows)
    }

    /// Returns the first page of a window. It is read again as long as its rows do not fit the stated number.
    async fn first_page(&mut self, account: &str, window: TimeWindow) -> Result<SpendPage, SpendLogError> {
        let mut reads = 0;
        loop {
            let page = self.page(account, window, 1).await?;
            reads += 1;
            let expected = page.total.min(PAGE_ROWS);
            if page.is_capped || page.distinct as u64 == expected {
                return Ok(page);
            }
            self.wait_before_reread(reads, page.total, page.distinct).await?;
        }
    }

    /// Adds all pages of one second. They are read again as long as their rows do not fit the stated number.
    async fn all_pages(
        &mut self,
        account: &str,
        window: TimeWindow,
        rows: &mut SpendRows,
    ) -> Result<(), SpendLogError> {
        let mut reads = 0;
        loop {
            let (mut second, mut number) = (SpendRows::default(), 1);
            let total = loop {
                let page = self.page(account, window, number).await?;
                let total = page.total;
                let given = page.rows.len() + page.unreadable.len() + page.foreign;
                let is_last = given == 0 || u64::from(number) * PAGE_ROWS >= total;
                second.add(page);
                if is_last {
                    break total;
                }
                number += 1;
            };
            reads += 1;
            let given = second.rows.len() + second.unreadable.len() + second.foreign;
            if given as u64 == total {
                rows.rows.append(&mut second.rows);
                rows.unreadable.append(&mut second.unreadable);
                rows.foreign += second.foreign;
                return Ok(());
            }
            self.wait_before_reread(reads, total, given).await?;
        }
    }

    async fn wait_before_reread(&self, reads: u32, stated: u64, given: usize) -> Result<(), SpendLogError> {
        if reads == READS || self.retries == RetryMode::Once {
            return Err(SpendLogError::Unstable { stated, given });
        }
        // LiteLLM reads its table twice for a page, and a row was written in between.
        sleep(REREAD_AFTER).await;
        Ok(())
    }

    /// Reads a page, with retries after failures that may pass.
    async fn page(&mut self, account: &str, window: TimeWindow, page: u32) -> Result<SpendPage, SpendLogError> {
        let mut waits = BACK_OFF.iter();
        loop {
            self.requests += 1;
            if self.requests > QUESTIONS_MAX {
                return Err(SpendLogError::TooMuch);
            }
            let error = match self.request_page(account, window, page).await {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            match waits.next() {
                Some(wait) if self.retries == RetryMode::Retry && error.may_pass() => sleep(*wait).await,
                _ => return Err(error),
            }
        }
    }

    async fn request_page(&self, account: &str, window: TimeWindow, page: u32) -> Result<SpendPage, SpendLogError> {
        let query = [
            ("start_date", timestamp(window.from)),
            ("end_date", timestamp(window.to)),
            ("end_user", account.to_owned()),
            ("page", page.to_string()),
            ("page_size", PAGE_ROWS.to_string()),
        ];
        let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", query_value(value))).collect();
        let answer = self.litellm.answer(&format!("/spend/logs/v2?{}", query.join("&"))).await;
        let (status, text) = answer.map_err(|source| asking(&self.upstream, source))?;
        if status == 200 {
            return Ok(row::page(&text, account)?);
        }
        Err(error::refusal(&self.upstream, status, &text))
    }
}

impl SpendRows {
    fn add(&mut self, page: SpendPage) {
        self.foreign += page.foreign;
        self.rows.extend(page.rows.into_iter().map(|row| (row.request_id.clone(), row)));
        self.unreadable.extend(page.unreadable.into_iter().map(|row| (row.key(), row)));
    }
}

fn asking(upstream: &str, source: LitellmError) -> SpendLogError {
    SpendLogError::Asking { upstream: upstream.to_owned(), source }
}

/// Returns a time as `YYYY-MM-DD HH:MM:SS` in UTC, the only form that all versions of LiteLLM accept.
fn timestamp(seconds: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.max(0).cast_unsigned());
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_names_are_escaped_for_a_url() {
        assert_eq!(query_value(&timestamp(1_795_203_588)).to_string(), "2026-11-20%2019%3A39%3A48");
        assert_eq!(query_value("a-b_c.d~e/f&g=h i%").to_string(), "a-b_c.d~e%2Ff%26g%3Dh%20i%25");
    }
}
