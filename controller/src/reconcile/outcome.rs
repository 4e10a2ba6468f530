//! The result of a reconciliation.
//!
//! Pure.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_state::ledger::Settled;

use super::finding::{Finding, FindingClass, SideAmounts};

/// The result of a reconciliation: differences, and sums of both sides.
#[derive(Debug, Clone, Serialize)]
pub struct ReconcileOutcome {
    /// True if no finding is a mismatch. The object of the command has a member `ok` of its own.
    #[serde(skip)]
    pub ok: bool,
    /// Number of findings of each class.
    pub classes: BTreeMap<&'static str, u64>,
    /// Findings of all classes but `matched`.
    pub findings: Vec<Finding>,
    /// Sum of the receipts, without those that are not decided yet.
    pub receipts: AmountSum,
    /// Sum of the rows, including those without a receipt.
    pub spend_log: AmountSum,
    /// Entries that this reconciliation posted.
    pub posted: Settled,
    /// Number of rows of other accounts, which were not requested and are ignored.
    pub foreign_rows: usize,
}

/// A number of amounts, and their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct AmountSum {
    /// Number of amounts.
    pub count: u64,
    /// Sum in nano-USD; a JSON string, since a reader's numbers may be floats.
    #[serde(serialize_with = "as_text")]
    pub nano_usd: i128,
}

impl ReconcileOutcome {
    pub(super) fn of(findings: Vec<Finding>, posted: Settled, foreign_rows: usize) -> Self {
        let mut classes: BTreeMap<_, _> = FindingClass::ALL.iter().map(|class| (class.as_str(), 0)).collect();
        let (mut receipts, mut spend_log) = (AmountSum::default(), AmountSum::default());
        for finding in &findings {
            *classes.entry(finding.class.as_str()).or_default() += 1;
            // An undecided finding is in neither sum, so that the sums of the others can be compared.
            if finding.class != FindingClass::NotYet {
                receipts.add(u64::from(finding.ledger.is_some()), finding.ledger.as_ref());
                spend_log.add(finding.request_ids.len() as u64, finding.spend_log.as_ref());
            }
        }
        let ok = !findings.iter().any(|finding| finding.class.is_mismatch());
        let findings = findings.into_iter().filter(|finding| finding.class != FindingClass::Matched).collect();
        Self { ok, classes, findings, receipts, spend_log, posted, foreign_rows }
    }
}

impl AmountSum {
    fn add(&mut self, count: u64, side: Option<&SideAmounts>) {
        self.count += count;
        self.nano_usd += side.and_then(|side| side.nano_usd).unwrap_or(0);
    }
}

fn as_text<S: serde::Serializer>(amount: &i128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(amount)
}
