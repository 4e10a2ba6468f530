//! `sluice send`, `sluice interrupt` and `sluice messages`: messages to a working agent.

use std::io::Read;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;
use sluice_client::{AgentMessage, AgentMessagePage, ApiRequest, InterruptedRun, QueuedMessage};
use sluice_contract::text::truncate;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::output::{date_time, print, print_json};
use super::retry::idempotent;
use super::server_args::ServerArgs;

/// Maximum number of bytes of a message that is read from stdin: the daemon takes 10,000 characters.
const STDIN_MAX: u64 = 64 << 10;

const SEND_EXAMPLES: &str = "\
Examples:
  sluice send nightly \"look at the tests first\"
  sluice send nightly --urgent \"leave main alone\"
  git diff | sluice send nightly -                      the message is read from stdin";

/// Sends a message to the agent of a daemon's run: it reads it with its next call, or when its worker asks for messages.
#[derive(Debug, Args)]
#[command(before_help = SEND_EXAMPLES)]
pub(super) struct SendArgs {
    /// A run of the daemon: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// The message, 1 to 10,000 characters; '-' reads it from stdin
    #[arg(value_name = "TEXT")]
    text: String,
    /// Send it before all messages that wait and are not urgent
    #[arg(long)]
    urgent: bool,
    /// Kind of the message; the last two are for admins
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t = SentKind::UserMessage)]
    kind: SentKind,
    /// Add it to the next call, also if the agent has a worker
    #[arg(long)]
    immediate: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum SentKind {
    UserMessage,
    Interrupt,
    GuardianNudge,
    System,
}

const INTERRUPT_EXAMPLES: &str = "\
Examples:
  sluice interrupt nightly
  sluice interrupt nightly --message \"stop the refactoring, and fix the build\"";

/// Ends the calls of an agent that are under way. The agent goes on, and reads the message next.
#[derive(Debug, Args)]
#[command(before_help = INTERRUPT_EXAMPLES)]
pub(super) struct InterruptArgs {
    /// A run of the daemon: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// Text that the agent reads next
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

const LIST_EXAMPLES: &str = "\
Examples:
  sluice messages nightly
  sluice messages nightly --status queued,offered       those that the agent does not have yet";

/// Lists the messages that were sent to the agent of a run, newest first.
#[derive(Debug, Args)]
#[command(before_help = LIST_EXAMPLES)]
pub(super) struct MessagesArgs {
    /// A run of the daemon: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// Only those in these states, joined by commas: queued, leased, offered, sent, delivered, deleted, lost
    #[arg(long, value_name = "STATES")]
    status: Option<String>,
    /// Show at most this many messages
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn send(args: &SendArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let content = if args.text == "-" { read_message(std::io::stdin())? } else { args.text.clone() };
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let kind = args.kind.to_possible_value().expect("no kind is hidden");
    let inject_mode = if args.immediate { "immediate" } else { "next_turn" };
    let body = json!({
        "content": content, "message_type": kind.get_name(), "urgent": args.urgent, "inject_mode": inject_mode
    });
    let request = idempotent(ApiRequest::post(&["sandboxes", &id, "messages"]).json(&body));
    let sent: QueuedMessage = api.send(request).await?;
    if args.json {
        print_json(&json!({ "run": sent.sandbox_id, "message_id": sent.message_id, "status": sent.status }));
    } else {
        print(&format!("message {}: {}\n", sent.message_id, sent.status));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn interrupt(args: &InterruptArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let body = args.message.as_ref().map_or_else(|| json!({}), |message| json!({ "message": message }));
    let request = idempotent(ApiRequest::post(&["sandboxes", &id, "interrupt"]).json(&body));
    let done: InterruptedRun = api.send(request).await?;
    if args.json {
        print_json(&json!({ "run": done.sandbox_id, "message_id": done.message_id, "status": done.status }));
    } else {
        print(&format!("run {}: {}\n", done.sandbox_id, done.status));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn list(args: &MessagesArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let request = ApiRequest::get(&["sandboxes", &id, "messages"]).query("limit", &args.limit.to_string());
    let page: AgentMessagePage = api.send(request.query_of("status", args.status.as_deref())).await?;
    if args.json {
        print_json(&json!({ "messages": page.messages }));
    } else {
        page.messages.iter().for_each(|message| print(&line(message)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a message, without the line ends after it. Input that is too long is refused, and never cut.
fn read_message(input: impl Read) -> Result<String, CommandError> {
    let failed = |reason: &str| CommandError::wrong_usage(format!("cannot read the message from stdin: {reason}"));
    let mut bytes = Vec::new();
    input.take(STDIN_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error.to_string()))?;
    if bytes.len() as u64 > STDIN_MAX {
        return Err(failed(&format!("it is longer than {STDIN_MAX} bytes; a message has 1 to 10,000 characters")));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not valid UTF-8"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Formats a message: id, time, state, kind and text.
fn line(message: &AgentMessage) -> String {
    let time = date_time(&message.created_at);
    let mark = if message.urgent { "!" } else { " " };
    let (id, status, kind) = (&message.message_id, &message.status, &message.message_type);
    format!("{id}  {time}  {status:<9} {mark} {kind:<14}  {}\n", truncate(&message.content))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: input that was cut inside a character was reported as invalid UTF-8, and with many line ends was sent cut.
    #[test]
    fn a_message_from_stdin_is_never_cut() {
        let max = usize::try_from(STDIN_MAX).expect("it is small");
        let fits = "\u{e4}".repeat(max / 2);
        assert_eq!(read_message(fits.as_bytes()).expect("it is not too long"), fits);
        assert_eq!(read_message(&b"one\ntwo\r\n\n"[..]).expect("a message"), "one\ntwo");
        for long in [format!("x{fits}"), format!("one{}two", "\n".repeat(max))] {
            let error = read_message(long.as_bytes()).expect_err("it is too long");
            assert!(error.message.contains("longer than 65536 bytes"), "{}", error.message);
        }
        let error = read_message(&b"\xff"[..]).expect_err("it is not text");
        assert!(error.message.ends_with("it is not valid UTF-8"), "{}", error.message);
    }
}
