//! A list of receipts in one of three formats.

use serde::Serialize;
use sluice_state::ledger::{self, BookedReceipt, ListSummary, Total, Unsettled};

use super::super::error::CommandError;
use super::super::object::CommandObject;
use super::super::output::{dash, is_indented, json_text, put, terminal_width};
use super::super::table::{Column, Table};
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

/// Columns of a list of receipts.
pub(super) const COLUMNS: [Column; 8] = [
    Column::text("time (UTC)").optional(4),
    Column::text("run").cut(),
    Column::text("account").cut().optional(3),
    Column::text("model").cut().optional(2),
    Column::text("status"),
    Column::number("in").optional(1),
    Column::number("out").optional(1),
    Column::number("cost, $"),
];

/// A list of receipts that is printed while it is read.
pub(super) struct ReceiptList {
    format: ListFormat,
    /// Text that is not printed yet.
    text: String,
    table: Table<8>,
    is_empty: bool,
    /// Set once a part is printed.
    is_begun: bool,
}

impl ReceiptList {
    pub(super) fn begin(format: ListFormat) -> Self {
        let text = match format {
            ListFormat::Table => String::new(),
            ListFormat::Json => format!("{{{}\"receipts\":{}[", line_break(1), blank()),
            ListFormat::Csv => CSV_HEAD.to_owned(),
        };
        let table = Table::new(terminal_width(), COLUMNS);
        Self { format, text, table, is_empty: true, is_begun: false }
    }

    /// Adds a receipt. False means that stdout takes no more.
    pub(super) fn take(&mut self, receipt: &BookedReceipt) -> bool {
        const FLUSH_AT: usize = 1 << 16;
        const FLUSH_AT_ROWS: usize = 512;
        match self.format {
            ListFormat::Table => self.table.row(cells(receipt)),
            ListFormat::Json => {
                self.text += if self.is_empty { "" } else { "," };
                self.text += &line_break(2);
                self.text += &json_text(&ReceiptObject { receipt, created_at: &receipt.origin }, 2);
            }
            ListFormat::Csv => self.text += &csv_row(receipt),
        }
        self.is_empty = false;
        if self.text.len() > FLUSH_AT || self.table.len() > FLUSH_AT_ROWS { self.flush() } else { true }
    }

    /// Adds the end of the list, and prints the rest.
    pub(super) fn end(&mut self, listed: &ListSummary) {
        let ListSummary { total, unsettled } = listed;
        match self.format {
            ListFormat::Table => {
                self.text = self.table.take() + &sum_line(total) + &unsettled_lines(unsettled);
            }
            ListFormat::Json => {
                let sums = Sums { total, unsettled_runs: unsettled };
                self.end_object(&CommandObject::done(sums));
            }
            ListFormat::Csv => {}
        }
        self.flush();
    }

    /// Ends a list that cannot be read completely. Returns false if none of it is printed yet; then only the error is shown.
    pub(super) fn abort(&mut self, error: &CommandError) -> bool {
        if self.is_begun {
            if self.format == ListFormat::Json {
                self.end_object(&error.object());
            }
            self.flush();
        }
        self.is_begun
    }

    /// Ends the array, and adds the members of an object.
    fn end_object(&mut self, members: &impl Serialize) {
        if !self.is_empty {
            self.text += &line_break(1);
        }
        // The object's text without the brace that opens it: an indented one has a line break there.
        self.text += &format!("],{}\n", &json_text(members, 0)[1..]);
    }

    fn flush(&mut self) -> bool {
        self.is_begun = true;
        if self.format == ListFormat::Table && self.table.len() > 0 {
            self.text += &self.table.take();
        }
        put(std::mem::take(&mut self.text).as_bytes()).is_ok()
    }
}

/// The members after the receipts.
#[derive(Serialize)]
struct Sums<'a> {
    total: &'a Total,
    unsettled_runs: &'a [Unsettled],
}

/// Returns a line break with an indentation of this depth, on a terminal.
fn line_break(depth: usize) -> String {
    if is_indented() { format!("\n{}", "  ".repeat(depth)) } else { String::new() }
}

/// Returns the blank after a colon, on a terminal.
fn blank() -> &'static str {
    if is_indented() { " " } else { "" }
}

fn cells(receipt: &BookedReceipt) -> [String; COLUMNS.len()] {
    let usage = receipt.usage.unwrap_or_default();
    [
        receipt.origin.get(..19).unwrap_or_default().to_owned(),
        format!("{}.{}", receipt.run_id, receipt.attempt),
        receipt.account.to_string(),
        receipt.model.as_deref().unwrap_or("-").to_owned(),
        receipt.status.as_str().to_owned(),
        dash(usage.input),
        dash(usage.output),
        dash(ledger::total([receipt]).cost_usd()),
    ]
}

fn sum_line(total: &Total) -> String {
    format!(
        "total    {} receipts, {} open{}; {} tokens in, {} out; {}\n",
        total.calls,
        total.open,
        total.reserved_usd().map_or_else(String::new, |reserved| format!(", with ${reserved} reserved for them")),
        dash(total.usage.input),
        dash(total.usage.output),
        total.nano_usd.map_or_else(|| "no known cost".to_owned(), ledger::dollars),
    )
}

#[cfg(test)]
mod tests {
    use sluice_state::ledger::ReceiptStatus;

    use super::*;

    #[test]
    fn the_sum_line_has_the_open_receipts_of_usage() {
        // No provider bills the first call, and one may bill the second.
        let refused =
            BookedReceipt { status: ReceiptStatus::PendingCost, http_status: Some(400), ..BookedReceipt::default() };
        let failed = BookedReceipt { http_status: Some(500), reserved_usd: Some("0.5".to_owned()), ..refused.clone() };
        let line = |receipts: &[&BookedReceipt]| sum_line(&ledger::total(receipts.iter().copied()));
        assert_eq!(line(&[&refused]), "total    1 receipts, 0 open; - tokens in, - out; no known cost\n");
        let both = "total    2 receipts, 1 open, with $0.5 reserved for them; - tokens in, - out; no known cost\n";
        assert_eq!(line(&[&refused, &failed]), both);
    }
}
