//! Receipts as comma-separated values (RFC 4180).
//!
//! Pure. Written by hand: the rules for quotes differ between columns, not between values.

use sluice_state::ledger::BookedReceipt;

/// Head line. The names are stable, and say the unit.
pub(super) const CSV_HEAD: &str = "source_reference,run_id,attempt,call,call_id,account,graph_id,model,model_served,\
                        litellm_call_id,response_id,status,result,http_status,input_tokens,output_tokens,\
                        cached_input_tokens,cache_write_tokens,reasoning_tokens,total_tokens,cost_usd,cost_nano_usd,\
                        price_source,null_reason,created_at,booked_on,last_booked_on\r\n";

/// Returns the line of a receipt. All texts are quoted, since some come from a sandbox or from the upstream. A text that a
/// spreadsheet would interpret as a formula gets an apostrophe before it.
pub(super) fn csv_row(receipt: &BookedReceipt) -> String {
    let maybe = |text: &Option<String>| text.as_deref().map_or_else(String::new, quoted);
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let usage = receipt.usage.unwrap_or_default();
    let cells = [
        quoted(&receipt.source_reference),
        quoted(&receipt.run_id),
        receipt.attempt.to_string(),
        receipt.call.to_string(),
        quoted(&receipt.call_id),
        quoted(&receipt.account),
        quoted(&receipt.graph_id),
        maybe(&receipt.model),
        maybe(&receipt.model_served),
        maybe(&receipt.litellm_call_id),
        maybe(&receipt.response_id),
        quoted(receipt.status.as_str()),
        maybe(&receipt.result),
        number(receipt.http_status.map(u64::from)),
        number(usage.input),
        number(usage.output),
        number(usage.cached_input),
        number(usage.cache_write),
        number(usage.reasoning),
        number(usage.total),
        receipt.cost_usd.clone().unwrap_or_default(),
        receipt.nano_usd.map_or_else(String::new, |nanos| nanos.to_string()),
        maybe(&receipt.price_source),
        maybe(&receipt.null_reason),
        quoted(&receipt.origin),
        quoted(&receipt.period),
        receipt.last_booked_on().map_or_else(String::new, quoted),
    ];
    cells.join(",") + "\r\n"
}

/// Returns a text as a cell that no spreadsheet takes for a formula.
pub(in super::super) fn quoted(text: &str) -> String {
    let mark = if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) { "'" } else { "" };
    format!("\"{mark}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_cannot_be_a_formula() {
        let rows = [
            ("gpt-4o-mini", r#","gpt-4o-mini","#),
            ("=1+1", r#","'=1+1","#),
            ("+1+1", r#","'+1+1","#),
            ("-2", r#","'-2","#),
            ("@SUM(A1)", r#","'@SUM(A1)","#),
            ("\t=1", ",\"'\t=1\","),
            ("a\",\"b\r\nc", ",\"a\"\",\"\"b\r\nc\","),
        ];
        for (text, cell) in rows {
            for receipt in [
                BookedReceipt { model: Some(text.to_owned()), ..BookedReceipt::default() },
                BookedReceipt { model_served: Some(text.to_owned()), ..BookedReceipt::default() },
            ] {
                let csv = csv_row(&receipt);
                assert!(csv.contains(cell), "{csv}");
            }
        }
    }
}
