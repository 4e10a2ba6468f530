//! `sluice audit show`: the calls of a file, as a table.

use std::path::Path;
use std::process::ExitCode;

use sluice_contract::record::Usage;
use sluice_contract::{AuditLog, Fault, LoggedCall, TrustAnchors, Verdict, verify};
use sluice_state::receipt::audit_log_to;

use super::super::error::CommandError;
use super::super::object::CommandObject;
use super::super::output::{OutputFormat, dash, print, print_object, terminal_width};
use super::super::table::{Column, Table};
use super::files::{bad_line, one_line};

mod object;

/// Shows a file. An altered one is shown up to its first invalid line; an error follows.
pub(super) fn show(path: &Path, bytes: &[u8], format: OutputFormat) -> Result<ExitCode, CommandError> {
    let altered = match verify(bytes, &TrustAnchors::default()) {
        Verdict::Tampered(fault) => Err(fault),
        Verdict::Complete(report) | Verdict::Incomplete(report) => Ok(report.torn),
    };
    let log = audit_log_to(bytes, altered.as_ref().map_or_else(|fault| fault.line - 1, |_| u64::MAX));
    let (torn, altered) = match altered {
        Ok(torn) => (torn, None),
        Err(fault) => (0, Some(altered_file(path, &fault))),
    };
    if format == OutputFormat::Json {
        let data = object::object(path, &log, torn);
        print_object(&match &altered {
            None => CommandObject::done(data),
            Some(error) => CommandObject::failed_with("tampered", error, data),
        });
        return Ok(altered.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)));
    }
    print_table(&log);
    if let Some(error) = altered {
        return Err(error);
    }
    if torn > 0 {
        print(&format!("torn     {torn} bytes of a last line\n"));
    }
    if log.close().is_none() {
        print("open     the log has no end: its run goes on, or its sidecar was killed\n");
    }
    Ok(ExitCode::SUCCESS)
}

fn altered_file(path: &Path, fault: &Fault) -> CommandError {
    let CommandError { code, message } = bad_line(fault);
    CommandError { code, message: format!("{}: {message}; the lines above came before it", path.display()) }
}

const COLUMNS: [Column; 9] = [
    Column::number("call"),
    Column::text("time (UTC)").optional(2),
    Column::text("call id").cut().optional(4),
    Column::text("model").cut(),
    Column::text("result"),
    Column::number("in").optional(1),
    Column::number("out").optional(1),
    Column::number("cost, $"),
    Column::number("ms").optional(3),
];

fn print_table(log: &AuditLog) {
    let mut table = Table::new(terminal_width(), COLUMNS);
    log.calls().iter().for_each(|call| table.row(cells(call)));
    print(&(head(log) + &table.take()));
    for (reason, count) in log.refused() {
        print(&one_line(&format!("refused  {count} × {reason}")));
    }
    let totals = log.totals();
    let usage = usage(log);
    print(&format!(
        "total    {} calls, {} refused, {} of unknown cost; {} tokens in, {} out; ${}\n",
        totals.calls,
        totals.refused,
        totals.unknown,
        dash(usage.input),
        dash(usage.output),
        totals.cost(),
    ));
}

/// Returns the tokens of all calls in one notation; sidecars of older versions wrote another one, see [`Usage`].
fn usage(log: &AuditLog) -> Usage {
    let mut sum = Usage::default();
    let usages = log.calls().iter().filter_map(|call| call.outcome.as_ref()?.usage);
    usages.for_each(|usage| sum.add(&usage.inclusive()));
    sum
}

fn head(log: &AuditLog) -> String {
    log.open().map_or_else(String::new, |open| {
        one_line(&format!(
            "run      {}.{}, account {}, agent {}, upstream {}, since {}",
            open.run_id, open.attempt, open.billing_account_id, open.graph_id, open.upstream, open.ts
        ))
    })
}

fn cells(call: &LoggedCall) -> [String; COLUMNS.len()] {
    let intent = &call.intent;
    let outcome = call.outcome.as_ref();
    let usage = outcome.and_then(|outcome| outcome.usage).unwrap_or_default().inclusive();
    let cost = outcome.map_or("-".into(), |outcome| match (&outcome.cost_usd, outcome.null_reason) {
        (Some(cost), _) => cost.to_string(),
        (None, Some(reason)) => reason.as_str().to_owned(),
        (None, None) => "-".to_owned(),
    });
    [
        intent.call.to_string(),
        intent.ts.get(11..26).unwrap_or(&intent.ts).to_owned(),
        intent.call_id.to_string(),
        intent.model.as_deref().unwrap_or("-").to_owned(),
        outcome.map_or("open", |outcome| outcome.result.as_str()).to_owned(),
        dash(usage.input),
        dash(usage.output),
        cost,
        outcome.map_or("-".to_owned(), |outcome| (outcome.timing_us.total / 1000).to_string()),
    ]
}
