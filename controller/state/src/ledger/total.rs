//! Sums over receipts: the only ones there are.
//!
//! Pure, and exact.

use serde::Serialize;

use super::bill::{BookedEntry, BookedReceipt, Tokens};

/// What receipts come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Total {
    /// Receipts.
    pub calls: u64,
    /// Those whose money nobody knows yet.
    pub open: u64,
    /// Nano-USD that sidecars reserved for those; none if none of them has a reservation.
    pub reserved: Option<i128>,
    /// Tokens of all classes.
    pub usage: Sums,
    /// Nano-USD that are known; none if none are.
    pub nano_usd: Option<i128>,
}

/// Tokens, added up; null where nobody counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[allow(missing_docs, reason = "as in `Usage`")]
pub struct Sums {
    pub cache_write: Option<i128>,
    pub cached_input: Option<i128>,
    pub input: Option<i128>,
    pub output: Option<i128>,
    pub reasoning: Option<i128>,
    pub total: Option<i128>,
}

/// By what totals are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Group {
    /// Who pays.
    Account,
    /// Each start of a run.
    Run,
    /// What was asked for.
    Model,
    /// The day in which a receipt, or what came of it later, counts (UTC).
    Day,
}

impl Group {
    /// The word in output.
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
    /// Adds a receipt, with all that came of it.
    pub fn take(&mut self, bill: &BookedReceipt) {
        self.count(bill);
        bill.entries.iter().for_each(|posting| self.add(posting));
    }

    pub(super) fn count(&mut self, bill: &BookedReceipt) {
        self.calls += 1;
        if bill.is_open() {
            self.open += 1;
            self.reserved = added(self.reserved, bill.reserved_nanos().map(i128::from));
        }
    }

    pub(super) fn add(&mut self, posting: &BookedEntry) {
        self.usage.add(posting.tokens);
        if let Some(nanos) = posting.nano_usd {
            *self.nano_usd.get_or_insert(0) += i128::from(nanos);
        }
    }

    /// Adds the total of others.
    pub fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.open += other.open;
        let Sums { cache_write, cached_input, input, output, reasoning, total } = other.usage;
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

    /// The known amount as dollars, exactly.
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

/// Adds an amount that may not be known to a sum that may have none yet.
fn added(sum: Option<i128>, more: Option<i128>) -> Option<i128> {
    more.map_or(sum, |more| Some(sum.unwrap_or(0) + more))
}

impl Sums {
    fn add(&mut self, tokens: Tokens) {
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

/// What all of them come to.
pub fn total<'a>(bills: impl IntoIterator<Item = &'a BookedReceipt>) -> Total {
    let mut total = Total::default();
    bills.into_iter().for_each(|bill| total.take(bill));
    total
}

/// Nano-USD as dollars: a plain decimal, without trailing zeros.
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

/// Money as strings: a reader's numbers may be floats.
impl Serialize for Total {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Words<'a> {
            calls: u64,
            open: u64,
            reserved_usd: Option<String>,
            usage: &'a Sums,
            cost_usd: Option<String>,
            nano_usd: Option<String>,
        }
        let nano_usd = self.nano_usd.map(|nanos| nanos.to_string());
        let Self { calls, open, usage, .. } = self;
        let reserved_usd = self.reserved_usd();
        Words { calls: *calls, open: *open, reserved_usd, usage, cost_usd: self.cost_usd(), nano_usd }
            .serialize(serializer)
    }
}
