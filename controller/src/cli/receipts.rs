//! `sluice receipts` and `sluice usage`: what was spent.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use sluice_contract::text::sanitize;
use sluice_contract::{Account, RunKey};
use sluice_state::layout::Layout;
use sluice_state::ledger::{self, BookedReceipt, Filter, GroupBy, ListSummary, Total, Unsettled, UsageTable};
use sluice_state::store::Store;

use super::{Common, FAILED, Failed, USAGE, print, print_json, put};

const EXAMPLES: &str = "\
Examples:
  sluice receipts --run r20261120-163914-1df9af22
  sluice receipts --account acct-1 --since 2026-11-01 --csv > november.csv
  sluice receipts --since 1h --json | jq .total
  sluice usage --by account";

/// Lists receipts: one for each call that was about to go upstream.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct Flags {
    /// Those of this run, or of one start of it
    #[arg(long, value_name = "RUN[.ATTEMPT]")]
    run: Option<String>,
    /// Those that this account pays
    #[arg(long, value_name = "ID")]
    account: Option<Account>,
    /// Those that came, or of which something came, since then: 2026-11-20, 2026-11-20T16:00:00Z, or 24h ago; each
    /// whole, also what of it came before. What a day comes to says sluice usage --by day
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// One JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Comma-separated values, with a head line; a text that a spreadsheet would take for a formula has a ' before it
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    common: Common,
}

/// Sums up receipts.
#[derive(Debug, Args)]
pub(super) struct UsageFlags {
    /// A sum for each of these [default: account]
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<GroupBy>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let settings = flags.common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    let filter = flags.filter()?;
    let format = if flags.csv {
        Format::Csv
    } else if flags.json {
        Format::Json
    } else {
        Format::Table
    };
    let list = Arc::new(Mutex::new(List::begin(format)));
    let rows = Arc::clone(&list);
    // On the thread of the database: a slow reader of our output slows it down, and memory stays as it is.
    let each = move |bill| rows.lock().is_ok_and(|mut list| list.take(&bill).is_ok());
    let listed = open(&settings.state_dir)?.list(filter, each).await.map_err(|error| Failed::new(FAILED, &error))?;
    if let Ok(mut list) = list.lock() {
        // A reader that has gone away is no failure.
        let _ = list.end(&listed);
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn usage(flags: &UsageFlags) -> Result<ExitCode, Failed> {
    let settings = flags.common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    let by = flags.by.unwrap_or(GroupBy::Account);
    let store = open(&settings.state_dir)?;
    let UsageTable { groups, total, unsettled } = store.usage(by).await.map_err(|error| Failed::new(FAILED, &error))?;
    if flags.json {
        #[derive(Serialize)]
        struct One {
            name: String,
            #[serde(flatten)]
            total: Total,
        }
        #[derive(Serialize)]
        struct Object<'a> {
            by: &'static str,
            groups: Vec<One>,
            total: Total,
            unsettled_runs: &'a [Unsettled],
        }
        let groups = groups.into_iter().map(|(name, total)| One { name, total }).collect();
        print_json(&Object { by: by.as_str(), groups, total, unsettled_runs: &unsettled });
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["calls", "open", "reserved, $", "in", "out", "cost, $"];
    print(&format!(
        "{:<32} {:>8} {:>8} {:>12} {:>12} {:>12} {:>16}\n",
        by.as_str(),
        head[0],
        head[1],
        head[2],
        head[3],
        head[4],
        head[5]
    ));
    for (name, total) in groups.iter().map(|(name, total)| (name.as_str(), total)).chain([("total", &total)]) {
        print(&format!(
            "{:<32} {:>8} {:>8} {:>12} {:>12} {:>12} {:>16}\n",
            sanitize(name),
            total.calls,
            total.open,
            dash(total.reserved_usd()),
            dash(total.usage.input),
            dash(total.usage.output),
            dash(total.cost_usd()),
        ));
    }
    print(&not_settled(&unsettled));
    Ok(ExitCode::SUCCESS)
}

impl Flags {
    fn filter(&self) -> Result<Filter, Failed> {
        let (run_id, attempt) = self.run.as_deref().map(run_or_start).unzip();
        let since_us = self.since.as_deref().map(since).transpose()?;
        Ok(Filter {
            run_id,
            attempt: attempt.flatten(),
            account: self.account.as_ref().map(Account::to_string),
            since_us,
            ..Filter::default()
        })
    }
}

/// A run, or one start of it: RUN or RUN.ATTEMPT.
pub(super) fn run_or_start(text: &str) -> (String, Option<u32>) {
    match text.parse::<RunKey>() {
        Ok(key) => (key.run_id.to_string(), Some(key.attempt)),
        Err(_) => (text.to_owned(), None),
    }
}

/// A moment, or how long ago: microseconds since 1970.
pub(super) fn since(text: &str) -> Result<i64, Failed> {
    let day = || humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    let ago = || humantime::parse_duration(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    let moment = humantime::parse_rfc3339_weak(text).or_else(|_| day()).ok().or_else(ago);
    let since_1970 = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    let us = since_1970.as_ref().map(Duration::as_micros).and_then(|us| i64::try_from(us).ok());
    us.ok_or_else(|| Failed {
        code: USAGE,
        message: format!(
            "--since {text}: want a day, a time such as 2026-11-20T16:00:00Z, or how long ago, such as 24h"
        ),
    })
}

/// The database of a state directory that is in use.
pub(super) fn open(state: &Path) -> Result<Store, Failed> {
    let database = Layout::at(state).database();
    if !database.exists() {
        let message = format!("there is no database {}; name the state directory with --state-dir", database.display());
        return Err(Failed { code: USAGE, message });
    }
    Store::open(&database).map_err(|error| Failed::new(FAILED, &error))
}

/// How receipts are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Table,
    Json,
    Csv,
}

/// A list of receipts that is printed while it is read.
struct List {
    format: Format,
    /// What is not printed yet.
    text: String,
    is_empty: bool,
}

impl List {
    fn begin(format: Format) -> Self {
        let text = match format {
            Format::Table => format!(
                "{:<20} {:<34} {:<24} {:<24} {:<12} {:>8} {:>8} {:>14}\n",
                "time (UTC)", "run", "account", "model", "status", "in", "out", "cost, $"
            ),
            Format::Json => "{\n  \"receipts\": [".to_owned(),
            Format::Csv => CSV_HEAD.to_owned(),
        };
        Self { format, text, is_empty: true }
    }

    fn take(&mut self, bill: &BookedReceipt) -> io::Result<()> {
        const ENOUGH: usize = 1 << 16;
        match self.format {
            Format::Table => self.text += &row(bill),
            Format::Json => {
                self.text += if self.is_empty { "\n    " } else { ",\n    " };
                self.text += &member(bill, 2);
            }
            Format::Csv => self.text += &csv_row(bill),
        }
        self.is_empty = false;
        if self.text.len() > ENOUGH { self.flush() } else { Ok(()) }
    }

    fn end(&mut self, listed: &ListSummary) -> io::Result<()> {
        let ListSummary { total, unsettled } = listed;
        match self.format {
            Format::Table => self.text += &(sum_line(total) + &not_settled(unsettled)),
            Format::Json => {
                self.text += if self.is_empty { "]" } else { "\n  ]" };
                let (total, unsettled) = (member(total, 1), member(unsettled, 1));
                self.text += &format!(",\n  \"total\": {total},\n  \"unsettled_runs\": {unsettled}\n}}\n");
            }
            Format::Csv => {}
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        put(std::mem::take(&mut self.text).as_bytes())
    }
}

/// A part of an object that is printed over several lines, at this depth.
fn member(value: &impl Serialize, depth: usize) -> String {
    let text = serde_json::to_string_pretty(value).expect("plain data");
    // No text within has a newline of its own: JSON escapes those.
    text.replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

fn row(bill: &BookedReceipt) -> String {
    let usage = bill.usage.unwrap_or_default();
    format!(
        "{:<20} {:<34} {:<24} {:<24} {:<12} {:>8} {:>8} {:>14}\n",
        bill.origin.get(..19).unwrap_or_default(),
        format!("{}.{}", bill.run_id, bill.attempt),
        sanitize(&bill.account),
        sanitize(bill.model.as_deref().unwrap_or("-")),
        bill.status.as_str(),
        dash(usage.input),
        dash(usage.output),
        dash(ledger::total([bill]).cost_usd()),
    )
}

fn sum_line(total: &Total) -> String {
    format!(
        "total    {} receipts, {} of unknown cost{}; {} tokens in, {} out; ${}\n",
        total.calls,
        total.open,
        total.reserved_usd().map_or_else(String::new, |reserved| format!(", with ${reserved} reserved for them")),
        dash(total.usage.input),
        dash(total.usage.output),
        total.cost_usd().unwrap_or_else(|| "0".to_owned()),
    )
}

fn not_settled(runs: &[Unsettled]) -> String {
    runs.iter().map(|run| format!("not settled  {}: {}\n", run.run, sanitize(&run.reason))).collect()
}

const CSV_HEAD: &str = "source_reference,run_id,attempt,call,call_id,account,graph_id,model,model_served,\
                        litellm_call_id,response_id,status,result,http_status,input,output,cached_input,cache_write,\
                        reasoning,total,cost_usd,nano_usd,price_source,null_reason,origin,period\r\n";

/// RFC 4180. Texts are quoted, all of them: some come from a sandbox or from upstream. One that a spreadsheet would
/// take for a formula, quoted or not, has an apostrophe before it.
fn csv_row(bill: &BookedReceipt) -> String {
    let quoted = |text: &str| {
        let mark = if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) { "'" } else { "" };
        format!("\"{mark}{}\"", text.replace('"', "\"\""))
    };
    let maybe = |text: &Option<String>| text.as_deref().map_or_else(String::new, quoted);
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let usage = bill.usage.unwrap_or_default();
    let cells = [
        quoted(&bill.source_reference),
        quoted(&bill.run_id),
        bill.attempt.to_string(),
        bill.call.to_string(),
        quoted(&bill.call_id),
        quoted(&bill.account),
        quoted(&bill.graph_id),
        maybe(&bill.model),
        maybe(&bill.model_served),
        maybe(&bill.litellm_call_id),
        maybe(&bill.response_id),
        quoted(bill.status.as_str()),
        maybe(&bill.result),
        number(bill.http_status.map(u64::from)),
        number(usage.input),
        number(usage.output),
        number(usage.cached_input),
        number(usage.cache_write),
        number(usage.reasoning),
        number(usage.total),
        bill.cost_usd.clone().unwrap_or_default(),
        bill.nano_usd.map_or_else(String::new, |nanos| nanos.to_string()),
        maybe(&bill.price_source),
        maybe(&bill.null_reason),
        quoted(&bill.origin),
        quoted(&bill.period),
    ];
    cells.join(",") + "\r\n"
}

pub(super) fn dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_sandbox_or_of_the_upstream_is_a_formula_or_a_cell_of_its_own() {
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
            for bill in [
                BookedReceipt { model: Some(text.to_owned()), ..BookedReceipt::default() },
                BookedReceipt { model_served: Some(text.to_owned()), ..BookedReceipt::default() },
            ] {
                let csv = csv_row(&bill);
                assert!(csv.contains(cell), "{csv}");
            }
        }
    }
}
