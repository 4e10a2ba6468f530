//! `sluice audit show`: the calls of a file, as a table.

use std::path::Path;

use sluice_contract::record::Usage;
use sluice_contract::{Call, Story, Trust, Verdict, verify};
use sluice_state::receipt::story_to;

use super::super::error::CommandError;
use super::super::output::{dash, print};
use super::files::{bad_line, one_line};

/// Prints the table. An altered file is shown up to its first invalid line; an error follows.
pub(super) fn show(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let altered = match verify(bytes, &Trust::default()) {
        Verdict::Tampered(fault) => Err(fault),
        Verdict::Complete(report) | Verdict::Incomplete(report) => Ok(report.torn),
    };
    let story = story_to(bytes, altered.as_ref().map_or_else(|fault| fault.line - 1, |_| u64::MAX));
    print(&head(&story));
    print(&format!(
        "{:>4}  {:<15}  {:<36}  {:<24}  {:<14}  {:>8}  {:>8}  {:>12}  {:>9}\n",
        "call", "time (UTC)", "call id", "model", "result", "in", "out", "cost, $", "ms"
    ));
    story.calls().iter().for_each(|call| print(&row(call)));
    for (reason, count) in story.refused() {
        print(&one_line(&format!("refused  {count} × {reason}")));
    }
    let totals = story.totals();
    let usage = usage(&story);
    print(&format!(
        "total    {} calls, {} refused, {} of unknown cost; {} tokens in, {} out; ${}\n",
        totals.calls,
        totals.refused,
        totals.unknown,
        dash(usage.input),
        dash(usage.output),
        totals.cost(),
    ));
    let torn = altered.map_err(|fault| {
        let CommandError { code, message } = bad_line(&fault);
        CommandError { code, message: format!("{}: {message}; the lines above came before it", path.display()) }
    })?;
    if torn > 0 {
        print(&format!("torn     {torn} bytes of a last line\n"));
    }
    if story.close().is_none() {
        print("open     the log has no end: its run goes on, or its sidecar was killed\n");
    }
    Ok(())
}

/// Returns the tokens of all calls in one notation; sidecars of older versions wrote another one, see [`Usage`].
fn usage(story: &Story) -> Usage {
    let mut sum = Usage::default();
    let usages = story.calls().iter().filter_map(|call| call.outcome.as_ref()?.usage);
    usages.for_each(|usage| sum.add(&usage.inclusive()));
    sum
}

fn head(story: &Story) -> String {
    story.open().map_or_else(String::new, |open| {
        one_line(&format!(
            "run      {}.{}, account {}, agent {}, upstream {}, since {}",
            open.run_id, open.attempt, open.billing_account_id, open.graph_id, open.upstream, open.ts
        ))
    })
}

fn row(call: &Call) -> String {
    let intent = &call.intent;
    let outcome = call.outcome.as_ref();
    let usage = outcome.and_then(|outcome| outcome.usage).unwrap_or_default().inclusive();
    let cost = outcome.map_or("-".into(), |outcome| match (&outcome.cost_usd, outcome.null_reason) {
        (Some(cost), _) => cost.to_string(),
        (None, Some(reason)) => reason.as_str().to_owned(),
        (None, None) => "-".to_owned(),
    });
    one_line(&format!(
        "{:>4}  {:<15}  {:<36}  {:<24}  {:<14}  {:>8}  {:>8}  {cost:>12}  {:>9}",
        intent.call,
        intent.ts.get(11..26).unwrap_or(&intent.ts),
        intent.call_id,
        intent.model.as_deref().unwrap_or("-"),
        outcome.map_or("open", |outcome| outcome.result.as_str()),
        dash(usage.input),
        dash(usage.output),
        outcome.map_or("-".to_owned(), |outcome| (outcome.timing_us.total / 1000).to_string()),
    ))
}
