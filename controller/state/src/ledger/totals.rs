//! Sums over receipts. Every total that is shown is computed here.
//!
//! Pure, and exact.

use serde::Serialize;

use super::booked::{BookedEntry, BookedReceipt, BookedTokens};

/// Sum of receipts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Total {
    /// Number of receipts.
    pub calls: u64,
    /// Number of receipts of unknown cost that a provider could bill ([`BookedReceipt::holds_budget`]).
    pub open: u64,
    /// Nano-USD that are reserved for those; `None` if none of them has a reservation.
    pub reserved: Option<i128>,
    /// Tokens of all classes.
    pub usage: TokenSums,
    /// Sum of the known amounts in nano-USD; none without any.
    pub nano_usd: Option<i128>,
}

/// Sums of tokens; none where they were not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs, reason = "as in `Usage`")]
pub struct TokenSums {
    pub cache_write: Option<i128>,
    pub cached_input: Option<i128>,
    pub input: Option<i128>,
    pub output: Option<i128>,
    pub reasoning: Option<i128>,
    pub total: Option<i128>,
}

/// Grouping of totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// Account that pays.
    Account,
    /// Attempt of a run.
    Run,
    /// Requested model.
    Model,
    /// Day in which a receipt or an entry counts (UTC).
    Day,
}

impl GroupBy {
    /// Returns the word in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Run => "run",
            Self::Model => "model",
            Self::Day => "day",
        }
    }
}

impl Total {
    /// Returns zeros in place of an empty total if the ledger is complete: then the total is known to be zero.
    pub(super) fn or_zero(self, is_complete: bool) -> Self {
        if !is_complete || self != Self::default() {
            return self;
        }
        let zero = Some(0);
        let usage = TokenSums {
            cache_write: zero,
            cached_input: zero,
            input: zero,
            output: zero,
            reasoning: zero,
            total: zero,
        };
        Self { usage, nano_usd: zero, ..self }
    }

    /// Adds a receipt with its entries.
    pub fn add_receipt(&mut self, receipt: &BookedReceipt) {
        self.count(receipt);
        receipt.entries.iter().for_each(|entry| self.add_entry(entry));
    }

    /// Adds a receipt without its entries.
    pub(super) fn count(&mut self, receipt: &BookedReceipt) {
        self.calls += 1;
        if receipt.holds_budget() {
            self.open += 1;
            self.reserved = added(self.reserved, receipt.reserved_nanos().map(i128::from));
        }
    }

    /// Adds an entry.
    pub(super) fn add_entry(&mut self, entry: &BookedEntry) {
        self.usage.add(entry.tokens);
        if let Some(nanos) = entry.nano_usd {
            *self.nano_usd.get_or_insert(0) += i128::from(nanos);
        }
    }

    /// Adds another total.
    pub fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.open += other.open;
        let TokenSums { cache_write, cached_input, input, output, reasoning, total } = other.usage;
        let pairs = [
            (&mut self.reserved, other.reserved),
            (&mut self.nano_usd, other.nano_usd),
            (&mut self.usage.cache_write, cache_write),
            (&mut self.usage.cached_input, cached_input),
            (&mut self.usage.input, input),
            (&mut self.usage.output, output),
            (&mut self.usage.reasoning, reasoning),
            (&mut self.usage.total, total),
        ];
        for (sum, more) in pairs {
            *sum = added(*sum, more);
        }
    }

    /// Returns the known amount as dollars, exactly.
    #[must_use]
    pub fn cost_usd(&self) -> Option<String> {
        self.nano_usd.map(usd)
    }

    /// Returns the reservations of the open calls as dollars.
    #[must_use]
    pub fn reserved_usd(&self) -> Option<String> {
        self.reserved.map(usd)
    }
}

/// Adds an amount that may be unknown to a sum that may be empty.
fn added(sum: Option<i128>, more: Option<i128>) -> Option<i128> {
    more.map_or(sum, |more| Some(sum.unwrap_or(0) + more))
}

impl TokenSums {
    fn add(&mut self, tokens: BookedTokens) {
        let add = |sum: &mut Option<i128>, more: Option<i64>| {
            if let Some(more) = more {
                *sum.get_or_insert(0) += i128::from(more);
            }
        };
        add(&mut self.cache_write, tokens.cache_write);
        add(&mut self.cached_input, tokens.cached_input);
        add(&mut self.input, tokens.input);
        add(&mut self.output, tokens.output);
        add(&mut self.reasoning, tokens.reasoning);
        add(&mut self.total, tokens.total);
    }
}

/// Returns the sum of these receipts.
pub fn total<'a>(receipts: impl IntoIterator<Item = &'a BookedReceipt>) -> Total {
    let mut total = Total::default();
    receipts.into_iter().for_each(|receipt| total.add_receipt(receipt));
    total
}

/// Formats nano-USD as dollars: a decimal number without trailing zeros.
#[must_use]
pub fn usd(nanos: i128) -> String {
    const NANOS: u128 = sluice_contract::money::NANOS_PER_USD.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, rest) = (nanos.unsigned_abs() / NANOS, nanos.unsigned_abs() % NANOS);
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    format!("{sign}{whole}.{}", format!("{rest:09}").trim_end_matches('0'))
}

/// Formats an amount with its sign before the currency: `-$0.5`.
#[must_use]
pub fn dollars(nanos: i128) -> String {
    let text = usd(nanos);
    text.strip_prefix('-').map_or_else(|| format!("${text}"), |amount| format!("-${amount}"))
}

/// Amounts as strings: a reader's numbers may be floats.
impl Serialize for Total {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct TotalFields<'a> {
            calls: u64,
            open: u64,
            reserved_usd: Option<String>,
            usage: &'a TokenSums,
            cost_usd: Option<String>,
            nano_usd: Option<String>,
        }
        let nano_usd = self.nano_usd.map(|nanos| nanos.to_string());
        let Self { calls, open, usage, .. } = self;
        let reserved_usd = self.reserved_usd();
        TotalFields { calls: *calls, open: *open, reserved_usd, usage, cost_usd: self.cost_usd(), nano_usd }
            .serialize(serializer)
    }
}
