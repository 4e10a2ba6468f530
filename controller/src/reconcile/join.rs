//! Receipts beside the rows of LiteLLM's spend log: which belong together, and what is wrong.
//!
//! Pure: no clock, no I/O. What is to be done about it is part of the answer, and done elsewhere.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use sluice_contract::record::Usage;
use sluice_contract::{RunKey, could_be_billed};
use sluice_litellm::spend_log::row::SpendRow;
use sluice_state::ledger::{BookedReceipt, PriceSource, ReceiptStatus, Settlement, Tokens};

use super::finding::{Class, Finding, Remedy, Side};

/// A receipt in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// How it stands.
    pub bill: BookedReceipt,
    /// The UTC day of the call.
    pub origin_day: String,
    /// When we last heard of it, in microseconds since 1970.
    pub heard_us: i64,
}

/// Both sides, as of one moment.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The receipts in question.
    pub known: Vec<Known>,
    /// Who pays the calls that have receipts which are not in question, by call id.
    pub elsewhere: HashMap<String, String>,
    /// Runs whose receipts may not all be there yet.
    pub under_way: HashSet<RunKey>,
    /// The rows of the accounts in question.
    pub rows: Vec<SpendRow>,
    /// Of rows without a receipt, which are in question.
    pub reach: Reach,
    /// Now, in microseconds since 1970.
    pub now_us: i64,
}

/// Which rows without a receipt are asked about.
#[derive(Debug, Clone, Default)]
pub enum Reach {
    /// None: only what receipts lack.
    #[default]
    None,
    /// Those that say they are of this run, or of this start of it.
    Run(String, Option<u32>),
    /// Those from this moment to that one.
    Span(i64, i64),
}

/// How long LiteLLM may take to write a row, in microseconds. Seen: 2 to 15 s.
pub const GRACE_US: i64 = 30_000_000;

/// What is added to the reason of a call that LiteLLM logged as failed.
const FAILED_THERE: &str = "; LiteLLM logged it as failed";

/// Amounts of one call that differ by no more than this do not differ, in nano-USD.
const TOLERANCE: u64 = 1;

/// Nor do those that differ by no more than this part of them. LiteLLM's amounts are float64, of 15 to 17 digits: above
/// a million dollars these do not tell one nano-USD from the next.
const RELATIVE_TOLERANCE: u64 = 1_000_000_000_000_000;

/// Holds one against the other. Each receipt has one finding, and each row is in one.
#[must_use]
pub fn join(facts: &Facts) -> Vec<Finding> {
    let index = Index::of(&facts.known);
    let mut rows_of: HashMap<usize, Vec<&SpendRow>> = HashMap::new();
    let mut strangers = Vec::new();
    for row in &facts.rows {
        match index.find(row).filter(|at| facts.known[*at].bill.account == row.account) {
            Some(at) => rows_of.entry(at).or_default().push(row),
            None => strangers.extend(stranger(row, facts, &index)),
        }
    }
    let mut findings = Vec::new();
    for (at, known) in facts.known.iter().enumerate() {
        let mut rows = rows_of.remove(&at).unwrap_or_default();
        let retries: Vec<&SpendRow> = rows.extract_if(.., |row| is_retry(known, row)).collect();
        let own = known.without_retries();
        rows.sort_by_key(|row| preference(&own, row));
        let (first, rest) = rows.split_first().unzip();
        let (paid, free): (Vec<&SpendRow>, Vec<&SpendRow>) = rest.into_iter().flatten().partition(|row| row.nanos > 0);
        let main = first.map_or_else(|| without_row(&own, facts.now_us), |first| with_row(&own, first, &free));
        let may_add = matches!(main.remedy, Some(Remedy::Settle(_))) || !own.bill.is_open();
        findings.push(Finding { ledger: Some(side_of_bill(&known.bill)), ..main });
        findings.extend(first.iter().flat_map(|first| paid.iter().map(|row| duplicate(known, first, row))));
        findings.extend(retries.into_iter().map(|row| retry(known, row, may_add)));
    }
    findings.extend(strangers);
    findings
}

/// Receipts by each name that a row may have for them.
struct Index<'a> {
    by_call: HashMap<&'a str, usize>,
    by_litellm: HashMap<&'a str, usize>,
    /// None where several have it: a provider's ids are its own affair.
    by_response: HashMap<&'a str, Option<usize>>,
}

impl<'a> Index<'a> {
    fn of(known: &'a [Known]) -> Self {
        let bills = || known.iter().enumerate().map(|(at, known)| (at, &known.bill));
        let mut by_response = HashMap::new();
        for (at, bill) in bills() {
            if let Some(id) = bill.response_id.as_deref() {
                by_response.entry(id).and_modify(|place| *place = None).or_insert(Some(at));
            }
        }
        Self {
            by_call: bills().map(|(at, bill)| (bill.call_id.as_str(), at)).collect(),
            by_litellm: bills().filter_map(|(at, bill)| Some((bill.litellm_call_id.as_deref()?, at))).collect(),
            by_response,
        }
    }

    /// By our own id, if the row has one; else by LiteLLM's; else by that of the answer.
    fn find(&self, row: &SpendRow) -> Option<usize> {
        if let Some(id) = row.sluice_call_id.as_deref() {
            return self.by_call.get(id).copied();
        }
        let by_litellm = |id: &str| self.by_call.get(id).or_else(|| self.by_litellm.get(id)).copied();
        let by_response = || self.by_response.get(row.response_id()).copied().flatten();
        row.call_id().and_then(by_litellm).or_else(by_response)
    }
}

impl Known {
    /// Without what was billed for earlier tries of the call.
    fn without_retries(&self) -> Cow<'_, Self> {
        match self.bill.without_retries() {
            Cow::Borrowed(_) => Cow::Borrowed(self),
            Cow::Owned(bill) => Cow::Owned(Self { bill, ..self.clone() }),
        }
    }
}

/// Whether a row bills an earlier try of this call, which cost something. Of a call that was never sent none can.
fn is_retry(known: &Known, row: &SpendRow) -> bool {
    let bill = &known.bill;
    let is_of_this = |call| call == bill.call_id || Some(call) == bill.litellm_call_id.as_deref();
    row.nanos > 0 && bill.status != ReceiptStatus::Voided && row.retried_call().is_some_and(is_of_this)
}

/// What an earlier try of a call comes to: it adds to the receipt, once the call itself is settled.
fn retry(known: &Known, row: &SpendRow, may_add: bool) -> Finding {
    let bill = &known.bill;
    let settlement = retry_settlement(bill, row);
    let posted = bill.live().find(|entry| entry.source_reference == settlement.reference);
    let (class, reason, remedy) = match posted {
        Some(entry) if entry.payload_hash == settlement.hash.to_string() => {
            (Class::Settled, "an earlier try of the call, which LiteLLM billed beside it", None)
        }
        Some(_) => (Class::AmountDiffers, "the row of an earlier try was changed after it was posted", None),
        None if may_add => {
            let reason = "the spend log has the cost of an earlier try of the call";
            (Class::Settled, reason, Some(Remedy::Settle(settlement)))
        }
        None => (Class::NotYet, "an earlier try of the call, which is posted when the call itself is settled", None),
    };
    Finding { reason: reason.to_owned(), remedy, ..beside(class, bill, row) }
}

/// A finding of one more row of a call: the receipt's own amount is that of its other finding.
fn beside(class: Class, bill: &BookedReceipt, row: &SpendRow) -> Finding {
    Finding {
        request_ids: vec![row.request_id.clone()],
        ledger: None,
        spend_log: Some(side_of(row)),
        ..finding(class, bill)
    }
}

/// Of several rows of one call, the one that its receipt stands by comes first: the one that it was settled by, else the
/// one that says the same, else one of success before one of failure, else one that was paid before one of a cache, else
/// the first.
fn preference(known: &Known, row: &SpendRow) -> (bool, bool, bool, bool, i64, String) {
    (
        !known.bill.entries.iter().any(|entry| entry.payload_hash == row.hash().to_string()),
        !(same_amount(known.bill.nano_usd, row.nanos) && same_tokens(&known.bill, row)),
        row.is_failure,
        row.is_free_hit(),
        row.start_us,
        row.request_id.clone(),
    )
}

fn same_amount(ledger: Option<i64>, row: i64) -> bool {
    ledger.is_some_and(|nanos| {
        let most = nanos.unsigned_abs().max(row.unsigned_abs());
        nanos.abs_diff(row) <= TOLERANCE.max(most / RELATIVE_TOLERANCE)
    })
}

/// As LiteLLM counts it: with what a prompt cache had.
fn input(usage: &Usage) -> u64 {
    usage.inclusive().input.unwrap_or(0)
}

/// Where nobody counted here, nothing differs.
fn same_tokens(bill: &BookedReceipt, row: &SpendRow) -> bool {
    bill.usage.as_ref().is_none_or(|usage| (input(usage), usage.output.unwrap_or(0)) == (row.input, row.output))
}

fn with_row(known: &Known, row: &SpendRow, free: &[&SpendRow]) -> Finding {
    let bill = &known.bill;
    let (class, reason, remedy) = judge(known, row);
    let more = match free.len() {
        0 => String::new(),
        count => format!("; and {count} more rows of it without money"),
    };
    let request_ids = [row].iter().chain(free).map(|row| row.request_id.clone()).collect();
    Finding { reason: reason + &more, request_ids, spend_log: Some(side_of(row)), remedy, ..finding(class, bill) }
}

fn judge(known: &Known, row: &SpendRow) -> (Class, String, Option<Remedy>) {
    let bill = &known.bill;
    let take_back = |why: &str| Some(Remedy::Correct(settlement(bill, row, Some(why))));
    let amounts = || format!("{} here, {} there, in nano-USD", amount(bill.nano_usd), row.nanos);
    let counted = bill.usage.as_ref().map(|usage| (input(usage), usage.output.unwrap_or(0)));
    let tokens = || {
        let (input, output) = counted.unwrap_or_default();
        format!("{input} tokens in and {output} out here, {} and {} there", row.input, row.output)
    };
    let tokens_match = same_tokens(bill, row);
    let is_decided = !matches!(bill.status, ReceiptStatus::Pending | ReceiptStatus::Voided);
    if row.is_free_hit() && is_decided {
        return cache_hit(known, row);
    }
    match bill.status {
        ReceiptStatus::Pending => {
            (Class::NotYet, "its run is under way, or its audit file was not read to its end yet".to_owned(), None)
        }
        ReceiptStatus::Voided if row.nanos == 0 => {
            (Class::NotBilled, "no money was possible, and none was spent".to_owned(), None)
        }
        ReceiptStatus::Voided => {
            let why = format!("no money was possible here, and there are {} nano-USD there", row.nanos);
            (Class::AmountDiffers, why.clone(), take_back(&why))
        }
        ReceiptStatus::PendingCost | ReceiptStatus::Unknown => {
            // Of an answer that was cut, both sides count what they saw of it.
            let was_cut = bill.status == ReceiptStatus::Unknown || bill.end.as_deref() != Some("complete");
            if !tokens_match && !was_cut {
                let why = tokens();
                return (Class::TokensDiffer, why.clone(), take_back(&why));
            }
            let class = if bill.status == ReceiptStatus::Unknown { Class::UnknownSettled } else { Class::Settled };
            let failed = if row.is_failure { FAILED_THERE } else { "" };
            (class, format!("the spend log has its cost{failed}"), Some(Remedy::Settle(settlement(bill, row, None))))
        }
        // It was called free while there was no row of it.
        ReceiptStatus::Settled if bill.nano_usd.is_none() && row.nanos > 0 => {
            let remedy = Some(Remedy::Settle(settlement(bill, row, None)));
            (Class::Settled, "the spend log has its cost by now".to_owned(), remedy)
        }
        ReceiptStatus::Posted | ReceiptStatus::Settled | ReceiptStatus::Reversed => {
            let by_spend_log = bill.entries.iter().rev().find(|entry| entry.status == ReceiptStatus::Settled);
            if !same_amount(bill.nano_usd.or(by_spend_log.map(|_| 0)), row.nanos) {
                let why = amounts();
                return (Class::AmountDiffers, why.clone(), take_back(&why));
            }
            let seen_whole = bill.status == ReceiptStatus::Posted || bill.end.as_deref() == Some("complete");
            if !tokens_match && seen_whole {
                let why = tokens();
                return (Class::TokensDiffer, why.clone(), take_back(&why));
            }
            match by_spend_log {
                None => (Class::Matched, "both say the same".to_owned(), None),
                Some(entry) => {
                    let (class, reason) = settled(known, row, &entry.period, tokens_match);
                    (class, reason, None)
                }
            }
        }
    }
}

/// A call that LiteLLM's cache answered. LiteLLM may repeat the price of the first answer in band, and the tokens of an
/// answer from a cache are nobody's bill: so nobody has to be asked.
fn cache_hit(known: &Known, row: &SpendRow) -> (Class, String, Option<Remedy>) {
    let bill = &known.bill;
    let was_reversed = bill.entries.iter().any(|entry| entry.reverses.is_some());
    let (reason, remedy) = if bill.is_open() {
        (String::new(), Some(settlement(bill, row, None)))
    } else if bill.nano_usd.unwrap_or(0) != 0 {
        let why = format!("a cache of LiteLLM answered: {} here, 0 there, in nano-USD", amount(bill.nano_usd));
        (format!("; {} nano-USD were posted", amount(bill.nano_usd)), Some(settlement(bill, row, Some(&why))))
    } else if was_reversed {
        ("; what was posted before was taken back".to_owned(), None)
    } else {
        (String::new(), None)
    };
    (Class::CacheHit, format!("a cache of LiteLLM answered, for nothing{reason}"), remedy.map(Remedy::Settle))
}

/// How a receipt that a row has settled stands.
fn settled(known: &Known, row: &SpendRow, period: &str, tokens_match: bool) -> (Class, String) {
    let mut reason = "its cost is the spend log's".to_owned();
    if !tokens_match {
        let usage = known.bill.usage.unwrap_or_default();
        let (input, output) = (input(&usage), usage.output.unwrap_or(0));
        reason += &format!(
            "; it was cut, and {input} tokens in and {output} out were seen here, {} and {} there",
            row.input, row.output
        );
    }
    if known.bill.entries.iter().any(|entry| entry.reverses.is_some()) {
        reason += "; what was posted before was taken back";
    }
    if row.is_failure {
        reason += FAILED_THERE;
    }
    let was_unknown = known.bill.entries.iter().any(|entry| entry.status == ReceiptStatus::Unknown);
    let is_late = period > known.origin_day.as_str();
    if is_late {
        reason += &format!("; the call is of {}, and counts on {period}", known.origin_day);
    }
    let class = match (was_unknown, is_late) {
        (true, _) => Class::UnknownSettled,
        (_, true) => Class::Late,
        _ => Class::Settled,
    };
    (class, reason)
}

fn without_row(known: &Known, now_us: i64) -> Finding {
    let bill = &known.bill;
    let (class, reason) = match bill.status {
        ReceiptStatus::Voided => (Class::NotBilled, "no money was possible"),
        ReceiptStatus::Pending => {
            (Class::NotYet, "its run is under way, or its audit file was not read to its end yet")
        }
        ReceiptStatus::Settled if bill.nano_usd.is_none() => (Class::NotBilled, "LiteLLM writes no row of such a call"),
        ReceiptStatus::Reversed => (Class::NotBilled, "it was taken back"),
        _ if !has_row(&bill.method, &bill.path) => (Class::NotBilled, "LiteLLM writes no row of such a call"),
        _ if known.heard_us + GRACE_US > now_us => (Class::NotYet, "its row may not be written yet"),
        ReceiptStatus::PendingCost if !could_be_billed(bill.http_status) => {
            (Class::NotBilled, "no provider bills an answer with this status, and LiteLLM need not write a row of it")
        }
        ReceiptStatus::Unknown => {
            (Class::MissingThere, "nobody saw its end here, and LiteLLM has no row of it; it may be under way there")
        }
        ReceiptStatus::PendingCost if bill.http_status.is_some_and(|status| status >= 400) => {
            (Class::MissingThere, "it failed after a provider could have answered, and LiteLLM has no row of it")
        }
        ReceiptStatus::PendingCost => (Class::MissingThere, "its cost is not known here, and LiteLLM has no row of it"),
        ReceiptStatus::Posted | ReceiptStatus::Settled => {
            (Class::MissingThere, "it was paid here, and LiteLLM has no row of it")
        }
    };
    let until_us =
        (class == Class::NotYet && bill.status != ReceiptStatus::Pending).then_some(known.heard_us + GRACE_US);
    // Whatever comes later can follow this, so it may be called settled now.
    let remedy = (class == Class::NotBilled && bill.is_open())
        .then(|| Remedy::Settle(Settlement::not_billed(&bill.source_reference)));
    let way_out = if class == Class::MissingThere && bill.is_open() { way_out(&bill.account) } else { String::new() };
    Finding { reason: format!("{reason}{way_out}"), until_us, remedy, ..finding(class, bill) }
}

/// What an operator can do about a call whose cost stays unknown.
fn way_out(account: &str) -> String {
    format!(
        "; it stays open, and a budget holds what was reserved for it, until sluice reconcile finds its row; if no row \
         will come, sluice budget set {account} USD begins the budget anew, without what ended runs hold"
    )
}

/// Whether LiteLLM writes rows of such calls: not of questions, and not of counting tokens.
fn has_row(method: &str, path: &str) -> bool {
    method == "POST" && !["/count_tokens", "/input_tokens", "/cancel"].iter().any(|end| path.ends_with(end))
}

fn duplicate(known: &Known, first: &SpendRow, row: &SpendRow) -> Finding {
    Finding {
        reason: format!(
            "the receipt stands by row {}; this one has {} nano-USD more, which LiteLLM has charged and the ledger has not",
            first.request_id, row.nanos
        ),
        ..beside(Class::Duplicate, &known.bill, row)
    }
}

/// A row without a receipt in question.
fn stranger(row: &SpendRow, facts: &Facts, index: &Index<'_>) -> Option<Finding> {
    let payer = row.call_id().and_then(|id| {
        let in_question = index.by_call.get(id).map(|at| &facts.known[*at].bill.account);
        in_question.or_else(|| facts.elsewhere.get(id))
    });
    if payer == Some(&row.account) {
        return None;
    }
    let is_asked_for = match &facts.reach {
        Reach::None => false,
        Reach::Run(run_id, attempt) => row
            .run
            .as_ref()
            .is_some_and(|run| run.run_id.as_str() == run_id && attempt.is_none_or(|attempt| attempt == run.attempt)),
        Reach::Span(from, to) => (*from..=*to).contains(&row.start_us),
    };
    if !is_asked_for {
        return None;
    }
    let is_under_way = row.run.as_ref().is_some_and(|run| facts.under_way.contains(run));
    let until = row.end_us + GRACE_US;
    let (class, reason) = if let Some(payer) = payer {
        (Class::MissingHere, format!("it names a call that {payer} pays"))
    } else if is_under_way {
        (Class::NotYet, "its run is under way, or its controller was killed and nobody has swept".to_owned())
    } else if row.is_failure && row.nanos == 0 && row.sluice_call_id.is_none() {
        (Class::NotBilled, "LiteLLM refused it before it knew whose call it was, and spent nothing".to_owned())
    } else if until > facts.now_us {
        (Class::NotYet, "its receipt may not be written yet".to_owned())
    } else if row.sluice_call_id.is_some() {
        (Class::MissingHere, "it names a call that no audit file has".to_owned())
    } else {
        (Class::MissingHere, "it names no call: it came past the sidecar".to_owned())
    };
    Some(Finding {
        class,
        reason,
        account: row.account.clone(),
        run: row.run.as_ref().map(ToString::to_string),
        source_reference: None,
        call_id: row.sluice_call_id.clone(),
        request_ids: vec![row.request_id.clone()],
        ledger: None,
        spend_log: Some(side_of(row)),
        until_us: (class == Class::NotYet && !is_under_way).then_some(until),
        remedy: None,
    })
}

fn finding(class: Class, bill: &BookedReceipt) -> Finding {
    Finding {
        class,
        reason: String::new(),
        account: bill.account.clone(),
        run: Some(format!("{}.{}", bill.run_id, bill.attempt)),
        source_reference: Some(bill.source_reference.clone()),
        call_id: Some(bill.call_id.clone()),
        request_ids: Vec::new(),
        ledger: Some(side_of_bill(bill)),
        spend_log: None,
        until_us: None,
        remedy: None,
    }
}

fn side_of_bill(bill: &BookedReceipt) -> Side {
    Side {
        nano_usd: bill.nano_usd,
        input: bill.usage.as_ref().map(input),
        output: bill.usage.as_ref().and_then(|usage| usage.output),
    }
}

fn side_of(row: &SpendRow) -> Side {
    Side { nano_usd: Some(row.nanos), input: Some(row.input), output: Some(row.output) }
}

/// What a row adds to a receipt; with a cause, in place of all that stands.
fn settlement(bill: &BookedReceipt, row: &SpendRow, cause: Option<&str>) -> Settlement {
    let live = bill.live().filter(|entry| entry.nano_usd.is_some() || entry.tokens != Tokens::default());
    let replaces: Vec<_> = if cause.is_some() { live.map(|entry| entry.id).collect() } else { Vec::new() };
    // Tokens that were counted here stand already.
    let counts = cause.is_some() || bill.usage.is_none();
    // A row has settled a receipt once. That it does so again, with another content, is another fact.
    let times = bill.entries.iter().filter(|entry| entry.status == ReceiptStatus::Settled).count();
    let again = if times > 0 { format!("#{times}") } else { String::new() };
    Settlement {
        receipt: bill.source_reference.clone(),
        reference: format!("{}#{}{again}", bill.source_reference, row.request_id),
        hash: row.hash(),
        cost_usd: Some(row.spend.clone()),
        nano_usd: Some(row.nanos),
        price_source: match row.is_failure {
            _ if row.is_free_hit() => PriceSource::CacheHit,
            true => PriceSource::FailureRow,
            false => PriceSource::SpendLog,
        },
        usage: if counts { row.usage() } else { None },
        null_reason: None,
        litellm_call_id: row.litellm_call_id.clone(),
        model_served: row.model.clone(),
        origin_us: row.end_us,
        replaces,
        cause: cause.map(|why| format!("row {} of the spend log: {why}", row.request_id)),
    }
}

/// What an earlier try adds to a receipt.
fn retry_settlement(bill: &BookedReceipt, row: &SpendRow) -> Settlement {
    Settlement {
        reference: format!("{}#{}", bill.source_reference, row.request_id),
        price_source: PriceSource::Retry,
        usage: row.usage(),
        ..settlement(bill, row, None)
    }
}

fn amount(nanos: Option<i64>) -> String {
    nanos.map_or_else(|| "nothing".to_owned(), |nanos| nanos.to_string())
}

#[cfg(test)]
mod tests;
