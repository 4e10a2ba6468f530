//! `sluice compare`: two runs side by side.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_client::{ApiSandbox, Event};
use sluice_contract::time::unix_micros;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{print, print_json, terminal_width};
use super::server_args::ServerArgs;
use super::table::{Column, Table};
use super::usage::text_of;

mod here;
mod remote;

const EXAMPLES: &str = "\
Examples:
  sluice compare nightly-1 nightly-2
  sluice compare r_0f8fad5b r_1c2b3a49 --json | jq .difference.cost_usd";

/// Compares two runs: how they ended, how long they took, what they used and cost, and what they did.
///
/// Events and tools are counted in runs of a daemon; those of an agent are its claims.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct CompareArgs {
    /// The first run: its id, its name, or the beginning of its id
    #[arg(value_name = "A")]
    first: String,
    /// The second run
    #[arg(value_name = "B")]
    second: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// One of the two runs.
#[derive(Debug, Clone, Default, Serialize)]
struct Compared {
    /// Id of the run.
    run: String,
    name: Option<String>,
    state: String,
    /// `success`, `cancelled` or `failed`, when it is decided.
    outcome: Option<String>,
    failure_code: Option<String>,
    exit_code: Option<i32>,
    model: Option<String>,
    attempts: u32,
    /// Seconds from the request to the first sign of life.
    queue_s: Option<f64>,
    /// Seconds from the first sign of life to the end.
    work_s: Option<f64>,
    calls: Option<u64>,
    /// Tokens of all classes, as `sluice usage` has them.
    tokens: Value,
    cost_usd: Option<String>,
    /// Number of events of each type.
    events: BTreeMap<String, u64>,
    /// Number of uses of each tool.
    tools: BTreeMap<String, u64>,
}

pub(super) async fn run(args: &CompareArgs) -> Result<ExitCode, CommandError> {
    let (first, second) = match args.server.named(&args.host)? {
        Some(api) => (remote::compared(&api, &args.first).await?, remote::compared(&api, &args.second).await?),
        None => {
            let here = here::Here::open(&args.host)?;
            (here.compared(&args.first).await?, here.compared(&args.second).await?)
        }
    };
    if args.json {
        print_json(&json!({ "runs": [first, second], "difference": difference(&first, &second) }));
    } else {
        print(&text(&first, &second));
    }
    Ok(ExitCode::SUCCESS)
}

impl Compared {
    /// Returns the values that the row of a daemon's run has.
    fn of(sandbox: &ApiSandbox) -> Self {
        let us = |text: &Option<String>| {
            text.as_deref().and_then(|text| humantime::parse_rfc3339_weak(text).ok()).and_then(unix_micros)
        };
        let created = us(&Some(sandbox.created_at.clone()));
        let (started, ended) = (us(&sandbox.started_at), us(&sandbox.ended_at));
        Self {
            run: sandbox.sandbox_id.clone(),
            name: sandbox.name.clone(),
            state: sandbox.state.clone(),
            outcome: sandbox.outcome.clone(),
            failure_code: sandbox.failure_code.clone(),
            attempts: sandbox.attempt + 1,
            queue_s: seconds(created, started),
            work_s: seconds(started, ended),
            ..Self::default()
        }
    }

    /// Adds the sums of a run: calls, tokens and cost.
    fn with_sums(self, total: &Value) -> Self {
        let cost_usd = total["cost_usd"].as_str().map(str::to_owned);
        Self { calls: total["calls"].as_u64(), tokens: total["usage"].clone(), cost_usd, ..self }
    }

    /// Counts an event.
    fn count(&mut self, event: &Event) {
        *self.events.entry(event.event_type.clone()).or_default() += 1;
        if event.event_type == "agent.tool_use" {
            let names = ["name", "tool_name"].iter().filter_map(|member| event.event_data[member].as_str());
            let name = { names }.next().unwrap_or("unknown").to_owned();
            *self.tools.entry(name).or_default() += 1;
        }
    }

    /// Returns all values that are compared as numbers, by name.
    fn numbers(&self) -> BTreeMap<String, f64> {
        #[allow(clippy::cast_precision_loss, reason = "they are shown to people")]
        let counts = |start: &str, counts: &BTreeMap<String, u64>| {
            counts.iter().map(|(name, count)| (format!("{start}{name}"), *count as f64)).collect::<Vec<_>>()
        };
        let tokens = self.tokens.as_object().into_iter().flatten();
        let tokens = tokens.filter_map(|(name, count)| Some((format!("tokens {name}"), count.as_f64()?)));
        let cost = self.cost_usd.as_deref().and_then(|cost| cost.parse().ok());
        #[allow(clippy::cast_precision_loss, reason = "they are shown to people")]
        let calls = self.calls.map(|calls| calls as f64);
        let single = [("queue, s", self.queue_s), ("work, s", self.work_s), ("calls", calls), ("cost, $", cost)];
        let single = single.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        single.chain(tokens).chain(counts("event ", &self.events)).chain(counts("tool ", &self.tools)).collect()
    }
}

/// Returns the seconds between two times.
fn seconds(from_us: Option<i64>, to_us: Option<i64>) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "milliseconds are enough")]
    let seconds = |us: i64| (us / 1000) as f64 / 1000.0;
    Some(seconds(to_us?.checked_sub(from_us?)?.max(0)))
}

/// Returns the differences of what both runs have: the second minus the first.
fn difference(first: &Compared, second: &Compared) -> Value {
    let change = |from: Option<f64>, to: Option<f64>| Some(rounded(to? - from?));
    let cost = |run: &Compared| run.cost_usd.as_deref().and_then(|cost| cost.parse::<f64>().ok());
    let tokens = |run: &Compared| run.tokens["total"].as_i64();
    json!({
        "queue_s": change(first.queue_s, second.queue_s),
        "work_s": change(first.work_s, second.work_s),
        "calls": first.calls.zip(second.calls).map(|(from, to)| i128::from(to) - i128::from(from)),
        "tokens": tokens(first).zip(tokens(second)).map(|(from, to)| to - from),
        "cost_usd": change(cost(first), cost(second)),
    })
}

/// Returns a number without the digits that only its binary form has.
fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

fn text(first: &Compared, second: &Compared) -> String {
    let columns =
        [Column::text("").cut(), Column::number("A"), Column::number("B"), Column::number("B - A").optional(1)];
    let mut table = Table::new(terminal_width(), columns);
    let words = |run: &Compared| {
        [
            ("run", Value::from(run.run.clone())),
            ("name", Value::from(run.name.clone())),
            ("state", Value::from(run.state.clone())),
            ("outcome", Value::from(run.outcome.clone())),
            ("failure", Value::from(run.failure_code.clone())),
            ("exit code", Value::from(run.exit_code)),
            ("model", Value::from(run.model.clone())),
            ("attempts", Value::from(run.attempts)),
        ]
    };
    for ((name, from), (_, to)) in words(first).into_iter().zip(words(second)) {
        if !(from.is_null() && to.is_null()) {
            table.row([name.to_owned(), text_of(&from), text_of(&to), String::new()]);
        }
    }
    let (from, to) = (first.numbers(), second.numbers());
    let mut names: Vec<_> = from.keys().chain(to.keys()).collect();
    names.sort_by_key(|name| (order(name), name.to_owned()));
    names.dedup();
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| rounded(value).to_string());
    for name in names {
        let (from, to) = (from.get(name).copied(), to.get(name).copied());
        // A count that only one of the runs has is 0 for the other.
        let is_count = name.starts_with("event ") || name.starts_with("tool ");
        let (from, to) = if is_count { (from.or(Some(0.0)), to.or(Some(0.0))) } else { (from, to) };
        let change = from.zip(to).map(|(from, to)| to - from);
        table.row([name.clone(), shown(from), shown(to), shown(change)]);
    }
    table.take()
}

/// Returns the position of a value among others: times, calls, cost and tokens, then events, then tools.
fn order(name: &str) -> usize {
    let starts = ["queue", "work", "calls", "cost", "tokens", "event", "tool"];
    starts.iter().position(|start| name.starts_with(start)).unwrap_or(starts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event_type: &str, event_data: Value) -> Event {
        Event {
            seq: 1,
            id: String::new(),
            sandbox_id: None,
            attempt: None,
            agent_id: None,
            event_type: event_type.to_owned(),
            event_data,
            source: "agent".to_owned(),
            created_at: String::new(),
        }
    }

    #[test]
    fn events_and_tools_are_counted_and_subtracted() {
        let mut first = Compared { run: "r_a".to_owned(), work_s: Some(1.5), ..Compared::default() };
        first.count(&event("agent.tool_use", json!({ "name": "Bash" })));
        first.count(&event("agent.progress", json!({})));
        let total = json!({ "calls": 2, "usage": { "total": 30, "input": null }, "cost_usd": "0.1" });
        let mut second = Compared { run: "r_b".to_owned(), work_s: Some(2.0), ..Compared::default() }.with_sums(&total);
        second.count(&event("agent.tool_use", json!({ "tool_name": "Edit" })));
        assert_eq!((first.tools["Bash"], second.tools["Edit"], first.events["agent.tool_use"]), (1, 1, 1));
        assert_eq!(difference(&first, &second)["work_s"], json!(0.5));
        assert_eq!(difference(&first, &second)["cost_usd"], Value::Null, "the cost of one is not known");
        let text = text(&first, &second);
        let has = |row: &[&str]| text.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == *row);
        assert!(has(&["tool", "Bash", "1", "0", "-1"]) && has(&["tool", "Edit", "0", "1", "1"]), "{text}");
        assert!(has(&["calls", "-", "2", "-"]) && has(&["work,", "s", "1.5", "2", "0.5"]), "{text}");
    }

    #[test]
    fn times_are_in_seconds() {
        assert_eq!(seconds(Some(1_000_000), Some(3_500_000)), Some(2.5));
        assert_eq!((seconds(None, Some(1)), seconds(Some(5), Some(1))), (None, Some(0.0)));
    }
}
