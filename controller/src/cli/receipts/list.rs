//! A list of receipts in one of three formats.

use std::io;

use serde::Serialize;
use sluice_contract::text::sanitize;
use sluice_state::ledger::{self, BookedReceipt, ListSummary, Total};

use super::super::output::{dash, put};
use super::super::usage::unsettled_lines;
use super::csv::{CSV_HEAD, csv_row};

/// Format of a list of receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListFormat {
    Table,
    Json,
    Csv,
}

/// The JSON object of a receipt.
#[derive(Serialize)]
struct ReceiptObject<'a> {
    #[serde(flatten)]
    receipt: &'a BookedReceipt,
    /// Time of the call in UTC.
    created_at: &'a str,
}

/// A list of receipts that is printed while it is read.
pub(super) struct ReceiptList {
    format: ListFormat,
    /// Text that is not printed yet.
    text: String,
    is_empty: bool,
}

impl ReceiptList {
    pub(super) fn begin(format: ListFormat) -> Self {
        let text = match format {
            ListFormat::Table => format!(
                "{:<20} {:<34} {:<24} {:<24} {:<12} {:>8} {:>8} {:>14}\n",
                "time (UTC)", "run", "account", "model", "status", "in", "out", "cost, $"
            ),
            ListFormat::Json => "{\n  \"receipts\": [".to_owned(),
            ListFormat::Csv => CSV_HEAD.to_owned(),
        };
        Self { format, text, is_empty: true }
    }

    /// Adds a receipt. An error means that stdout is closed.
    pub(super) fn take(&mut self, receipt: &BookedReceipt) -> io::Result<()> {
        const FLUSH_AT: usize = 1 << 16;
        match self.format {
            ListFormat::Table => self.text += &row(receipt),
            ListFormat::Json => {
                self.text += if self.is_empty { "\n    " } else { ",\n    " };
                self.text += &member(&ReceiptObject { receipt, created_at: &receipt.origin }, 2);
            }
            ListFormat::Csv => self.text += &csv_row(receipt),
        }
        self.is_empty = false;
        if self.text.len() > FLUSH_AT { self.flush() } else { Ok(()) }
    }

    /// Adds the end of the list, and prints the rest.
    pub(super) fn end(&mut self, listed: &ListSummary) -> io::Result<()> {
        let ListSummary { total, unsettled } = listed;
        match self.format {
            ListFormat::Table => self.text += &(sum_line(total) + &unsettled_lines(unsettled)),
            ListFormat::Json => {
                self.text += if self.is_empty { "]" } else { "\n  ]" };
                let (total, unsettled) = (member(total, 1), member(unsettled, 1));
                self.text += &format!(",\n  \"total\": {total},\n  \"unsettled_runs\": {unsettled}\n}}\n");
            }
            ListFormat::Csv => {}
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        put(std::mem::take(&mut self.text).as_bytes())
    }
}

/// Returns a part of a JSON object, indented for this depth.
fn member(value: &impl Serialize, depth: usize) -> String {
    let text = serde_json::to_string_pretty(value).expect("plain data");
    // The texts contain no line breaks: JSON escapes them.
    text.replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

fn row(receipt: &BookedReceipt) -> String {
    let usage = receipt.usage.unwrap_or_default();
    format!(
        "{:<20} {:<34} {:<24} {:<24} {:<12} {:>8} {:>8} {:>14}\n",
        receipt.origin.get(..19).unwrap_or_default(),
        format!("{}.{}", receipt.run_id, receipt.attempt),
        sanitize(&receipt.account),
        sanitize(receipt.model.as_deref().unwrap_or("-")),
        receipt.status.as_str(),
        dash(usage.input),
        dash(usage.output),
        dash(ledger::total([receipt]).cost_usd()),
    )
}

fn sum_line(total: &Total) -> String {
    format!(
        "total    {} receipts, {} of unknown cost{}; {} tokens in, {} out; {}\n",
        total.calls,
        total.open,
        total.reserved_usd().map_or_else(String::new, |reserved| format!(", with ${reserved} reserved for them")),
        dash(total.usage.input),
        dash(total.usage.output),
        ledger::dollars(total.nano_usd.unwrap_or(0)),
    )
}
