//! `sluice events`: what happened to runs.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_client::{ApiHeartbeatSummary, Event};

use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{date_time, print, print_json, put, say};
use super::server_args::ServerArgs;

mod here;
mod remote;

const EXAMPLES: &str = "\
Examples:
  sluice events nightly                                 the newest 100 events of a run, oldest first
  sluice events nightly --trajectory --json | jq .events
  sluice events -f --type run.state_changed             state changes of all runs, from now on
  sluice events nightly -f --type 'llm.*' --json        one object in a line";

/// Shows events of a daemon's runs: state changes, calls, and what agents report.
///
/// Events of an agent are its claims; SOURCE is set by the daemon.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct EventsArgs {
    /// The run: its id, its name, or the beginning of its id; with --follow, all runs by default
    #[arg(value_name = "RUN", required_unless_present = "follow")]
    run: Option<String>,
    /// Show events as they come: those of a run from its beginning until it has ended, those of all runs from now on
    #[arg(long, short)]
    follow: bool,
    /// Only this type, or all with this beginning, such as 'llm.*'; repeat for more
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only events after this position, a SEQ of another event
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// Show at most this many events: the newest, or with --after the first ones after it
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with_all = ["follow", "trajectory"], value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Show the whole run without its heartbeats, and then a line about them
    #[arg(long, requires = "run", conflicts_with_all = ["follow", "after"])]
    trajectory: bool,
    /// Print one JSON object; with --follow, one object for each event
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// Events of a run, oldest first.
struct FoundEvents {
    events: Vec<Event>,
    heartbeats: Option<ApiHeartbeatSummary>,
}

impl EventsArgs {
    /// Returns whether the output consists of lines, without an error object.
    pub(super) fn is_stream(&self) -> bool {
        self.follow
    }

    /// Returns the name of the run, which clap requires here.
    fn run(&self) -> &str {
        self.run.as_deref().unwrap_or_default()
    }
}

pub(super) async fn run(args: &EventsArgs) -> Result<ExitCode, CommandError> {
    if args.types.iter().any(|name| name.is_empty() || name.contains(',')) {
        return Err(CommandError::wrong_usage(
            "--type is one type, such as run.state_changed; repeat the flag for more",
        ));
    }
    let api = args.server.named(&args.host)?;
    if args.follow {
        match &api {
            Some(api) => remote::follow(api, args).await?,
            None => here::follow(args).await?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let found = match &api {
        Some(api) => remote::list(api, args).await?,
        None => here::list(args).await?,
    };
    if args.json {
        print_json(&json!({ "events": found.events, "heartbeat_summary": found.heartbeats }));
    } else {
        found.events.iter().for_each(|event| print(&line(event)));
        if let Some(heartbeats) = found.heartbeats.filter(|heartbeats| heartbeats.count > 0) {
            let last = heartbeats.last_heartbeat.unwrap_or_default();
            print(&format!("heartbeats: {}, the last one at {last}\n", heartbeats.count));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a new event. False means that stdout takes no more.
fn print_new(event: &Event, as_json: bool) -> bool {
    let text = if as_json { serde_json::to_string(event).expect("plain data") + "\n" } else { line(event) };
    put(text.as_bytes()).is_ok()
}

/// Says that events were removed before they were shown.
fn say_gap(from: i64, to: i64) {
    say(&format!("the events {from} to {to} have been removed, since their time was over"));
}

/// Formats an event: position, time, run, source, type and data.
pub(super) fn line(event: &Event) -> String {
    let time = date_time(&event.created_at);
    let run = event.sandbox_id.as_deref().unwrap_or("-");
    let data = sluice_contract::text::truncate(&event.event_data.to_string());
    format!("{:>6}  {time}  {run}  {:<6}  {}  {data}\n", event.seq, event.source, event.event_type)
}
