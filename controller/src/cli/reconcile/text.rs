//! The result of a reconciliation as text.
//!
//! Pure.

use sluice_contract::text::sanitize;

use super::super::output::dash;
use crate::reconcile::finding::SideAmounts;
use crate::reconcile::{Finding, ReconcileOutcome};

/// Returns one line for each finding, then counts and sums.
pub(super) fn text(outcome: &ReconcileOutcome) -> String {
    let ReconcileOutcome { ok, classes, findings, receipts, spend_log, posted, foreign_rows } = outcome;
    let mut text: String = findings.iter().map(line).collect();
    let counts: Vec<_> =
        classes.iter().filter(|(_, count)| **count > 0).map(|(class, count)| format!("{count} {class}")).collect();
    let counts = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
    text += &format!("found      {counts}\n");
    text += &format!("posted     {} receipts settled, {} entries taken back\n", posted.receipts, posted.reversed);
    text += &format!("ledger     {} receipts, {} nano-USD\n", receipts.count, receipts.nano_usd);
    text += &format!("spend log  {} rows, {} nano-USD\n", spend_log.count, spend_log.nano_usd);
    if *foreign_rows > 0 {
        text += &format!("ignored    {foreign_rows} rows of others, which LiteLLM gave unasked\n");
    }
    text + if *ok { "they agree\n" } else { "they DIFFER\n" }
}

fn line(finding: &Finding) -> String {
    let rows = finding.request_ids.join(" ");
    let name = finding.source_reference.clone().unwrap_or_else(|| format!("{} row {rows}", finding.account));
    let side = |side: &Option<SideAmounts>| dash(side.as_ref().and_then(|side| side.nano_usd));
    let amounts = format!("{} here, {} there", side(&finding.ledger), side(&finding.spend_log));
    format!("{}: {}: {} ({amounts})\n", sanitize(&name), finding.class.as_str(), sanitize(&finding.reason))
}
