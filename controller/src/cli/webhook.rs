//! `sluice webhook`: the webhooks of the daemon, and messages that were given up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_contract::text::error_chain;
use sluice_daemon::webhooks::{Webhook, send, test_message};
use sluice_state::control_log::ControlEntry;
use sluice_state::store::now_us;
use sluice_state::webhooks::{MessageChoice, WebhookMessage, WebhookRow};

use super::database::{open, open_for_queries};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::operator_record;
use super::output::{print, print_json, timestamp_to_second};

const EXAMPLES: &str = "\
Examples:
  sluice webhook list
  sluice webhook test ops
  sluice webhook dead ops
  sluice webhook retry ops --id msg_0f8fad5bd9cb469fa16570867728950e";

/// Shows and tests the webhooks of the daemon, and sends messages again that were given up.
///
/// Webhooks are tables of the configuration file, [[webhooks]]. The daemon reads them when it starts. A message that fails is
/// tried 8 times within 6 hours and is then given up; it is kept for 7 days.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct WebhookArgs {
    #[command(subcommand)]
    command: WebhookCommand,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Subcommand)]
enum WebhookCommand {
    /// Lists the webhooks of the configuration file, and how far each one is
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Sends a message of the type webhook.test once, and waits for the answer
    Test {
        /// The webhook
        #[arg(value_name = "NAME")]
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Lists messages that were given up, oldest first
    Dead {
        /// The webhook; all by default
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Begins a new series of tries for messages that were given up
    Retry {
        /// The webhook
        #[arg(value_name = "NAME")]
        name: String,
        /// Only this message, msg_…
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// The state directory, and the webhooks of the configuration file.
struct Configured {
    state: PathBuf,
    webhooks: Vec<Webhook>,
}

impl Configured {
    fn read(host: &HostArgs) -> Result<Self, CommandError> {
        let layers = host.layers(BTreeMap::new()).map_err(|error| CommandError::usage(&error))?;
        let webhooks = layers.webhooks().map_err(|error| CommandError::usage(&error))?;
        Ok(Self { state: layers.state_dir(), webhooks })
    }

    fn find(&self, name: &str) -> Result<&Webhook, CommandError> {
        let unknown = || {
            CommandError::wrong_usage(format!(
                "there is no webhook {name} in the configuration file; sluice webhook list"
            ))
        };
        self.webhooks.iter().find(|webhook| webhook.name == name).ok_or_else(unknown)
    }
}

pub(super) async fn run(args: &WebhookArgs) -> Result<ExitCode, CommandError> {
    match &args.command {
        WebhookCommand::List { json } => list(&Configured::read(&args.host)?, *json).await?,
        WebhookCommand::Test { name, json } => test(Configured::read(&args.host)?.find(name)?, *json).await?,
        WebhookCommand::Dead { name, json } => dead(&args.host.state_dir()?, name.clone(), *json).await?,
        WebhookCommand::Retry { name, id, json } => {
            let configured = Configured::read(&args.host)?;
            // Messages of a webhook that is not configured would never be sent.
            configured.find(name)?;
            let choice = MessageChoice { webhook: Some(name.clone()), id: id.clone() };
            retry(&configured.state, name, choice, *json).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(configured: &Configured, json: bool) -> Result<(), CommandError> {
    let rows =
        open_for_queries(&configured.state)?.webhook_rows().await.map_err(|error| CommandError::failed(&error))?;
    let state = |webhook: &Webhook| rows.iter().find(|row| row.name == webhook.name);
    let objects = configured.webhooks.iter().map(|webhook| object(webhook, state(webhook)));
    if json {
        print_json(&json!({ "webhooks": objects.collect::<Vec<_>>() }));
        return Ok(());
    }
    let mut text =
        format!("{:<20} {:>7} {:>5} {:<20} {:<20} to\n", "name", "waiting", "dead", "delivered (UTC)", "fault");
    for webhook in &configured.webhooks {
        let row = state(webhook);
        let (waiting, dead) = row.map_or((0, 0), |row| (row.waiting, row.dead));
        let delivered = row.and_then(|row| row.last_success_us).map_or_else(|| "-".to_owned(), timestamp_to_second);
        let fault = row.and_then(|row| row.fault.as_deref()).unwrap_or("-");
        text +=
            &format!("{:<20} {waiting:>7} {dead:>5} {delivered:<20} {fault:<20} {}\n", webhook.name, webhook.target);
    }
    print(&text);
    Ok(())
}

fn object(webhook: &Webhook, row: Option<&WebhookRow>) -> Value {
    json!({
        "name": webhook.name,
        "target": webhook.target.to_string(),
        "types": webhook.types,
        "owners": webhook.owners,
        "allow_private": webhook.allow_private,
        "position": row.map(|row| row.position),
        "waiting": row.map_or(0, |row| row.waiting),
        "dead": row.map_or(0, |row| row.dead),
        "last_success_at": row.and_then(|row| row.last_success_us).map(timestamp_to_second),
        "last_failure_at": row.and_then(|row| row.last_failure_us).map(timestamp_to_second),
        "fault": row.and_then(|row| row.fault.as_deref()),
    })
}

async fn test(webhook: &Webhook, json: bool) -> Result<(), CommandError> {
    let (id, started) = (format!("msg_{}", uuid::Uuid::new_v4().simple()), Instant::now());
    let sent = send(webhook, &id, &test_message(SystemTime::now())).await;
    let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    sent.map_err(|error| CommandError {
        code: sluice_contract::exit::FAILED,
        message: format!("webhook {} ({}): {}", webhook.name, webhook.target, error_chain(&error)),
    })?;
    if json {
        print_json(&json!({ "message_id": id, "milliseconds": milliseconds }));
    } else {
        print(&format!("{} has taken {id} after {milliseconds} ms\n", webhook.target));
    }
    Ok(())
}

async fn dead(state: &std::path::Path, webhook: Option<String>, json: bool) -> Result<(), CommandError> {
    let store = open_for_queries(state)?;
    let choice = MessageChoice { webhook, id: None };
    let messages = store.dead_webhook_messages(choice).await.map_err(|error| CommandError::failed(&error))?;
    if json {
        print_json(&json!({ "messages": messages.iter().map(message_object).collect::<Vec<_>>() }));
        return Ok(());
    }
    let mut text = format!("{:<36} {:<20} {:<20} {:<16} type\n", "id", "webhook", "given up (UTC)", "fault");
    for message in &messages {
        let (given_up, fault) =
            (message.dead_us.map(timestamp_to_second).unwrap_or_default(), message.fault.as_deref().unwrap_or("-"));
        text +=
            &format!("{:<36} {:<20} {given_up:<20} {fault:<16} {}\n", message.id, message.webhook, message.event_type);
    }
    print(&text);
    Ok(())
}

fn message_object(message: &WebhookMessage) -> Value {
    json!({
        "id": message.id,
        "webhook": message.webhook,
        "seq": message.seq,
        "event_type": message.event_type,
        "attempts": message.attempts,
        "fault": message.fault,
        "created_at": timestamp_to_second(message.created_us),
        "given_up_at": message.dead_us.map(timestamp_to_second),
    })
}

async fn retry(state: &std::path::Path, name: &str, choice: MessageChoice, json: bool) -> Result<(), CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    let store = open(state)?;
    let found = store.dead_webhook_messages(choice.clone()).await.map_err(|error| failed(&error))?;
    if found.is_empty() {
        return Err(CommandError::wrong_usage(format!(
            "webhook {name} has no such message; sluice webhook dead lists them"
        )));
    }
    let entry = ControlEntry {
        operation: "webhook.retry".to_owned(),
        object: Some(name.to_owned()),
        after: Some(json!({ "id": choice.id, "messages": found.len() })),
        ..ControlEntry::default()
    };
    let recorded = operator_record::begin(state, entry)?;
    let count = recorded.end(store.retry_webhook_messages(choice, now_us()).await.map_err(|error| failed(&error)))?;
    if json {
        print_json(&json!({ "retried": count }));
    } else {
        print(&format!("{count} messages are tried again by the daemon\n"));
    }
    Ok(())
}
