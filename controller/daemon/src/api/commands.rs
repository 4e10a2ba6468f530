//! Terminal commands that do the same as a page, for the `sluice` program and for curl.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::sandboxes::lookup;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::on_cap::CapTreatment;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::shell_command::{ShellCommand, UnsafeWord, curl};

mod branch;

#[derive(OpenApi)]
#[openapi(paths(of_creation, of_run, branch::of_branch))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/commands", post(of_creation))
        .route("/api/v1/sandboxes/{id}/commands", get(of_run))
        .route("/api/v1/sandboxes/{id}/git/commands", get(branch::of_branch))
}

/// A run to create, with the members that the page for it has. They are not checked here.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CommandRequest {
    /// A name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// One message of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    /// `sandbox:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph_id: Option<String>,
    /// A registered agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    /// A model.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// A project of the host. The program has no flag for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    /// Work on the repository of the project, as in the request for a run. The program has no flag for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<RepositoryMembers>,
    /// Limits by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<String, String>,
    /// Cap in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cost_usd: Option<String>,
    /// Treatment of a call that would exceed a cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_cap: Option<CapTreatment>,
}

/// Members of a repository that the page has. They are not checked here.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RepositoryMembers {
    /// Branch that the run begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    /// A ticket.
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    /// Title of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// Type of the work.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// True for a draft of a pull request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pull_request: Option<bool>,
}

/// A command in two forms.
#[derive(Debug, Serialize, ToSchema)]
struct CommandView {
    /// Effect of the command, for people.
    name: &'static str,
    /// The command of the program; null where it has none, as for a task of several lines.
    cli: Option<String>,
    /// The same with curl, whose token is that of the variable `SLUICE_TOKEN`.
    curl: String,
}

/// Commands for a terminal.
#[derive(Debug, Default, Serialize, ToSchema)]
struct Commands {
    commands: Vec<CommandView>,
}

/// Limits that the program has flags for.
const LIMITS: [&str; 8] = ["timeout", "memory", "cpus", "pids", "max_calls", "max_tokens", "max_concurrency", "rate"];

impl CommandRequest {
    fn cli(&self) -> Option<ShellCommand> {
        if self.project.is_some()
            || self.repository.is_some()
            || self.limits.keys().any(|name| !LIMITS.contains(&name.as_str()))
        {
            return None;
        }
        let mut command = ShellCommand::of(&["sluice", "run", "-d"])
            .flag("--name", self.name.as_deref())
            .flag("--agent", self.graph_id.as_deref())
            .flag("--as", self.agent_id.as_deref())
            .flag("--model", self.model.as_deref())
            .flag("--max-cost-usd", self.max_cost_usd.as_deref())
            .flag("--on-cap", self.on_cap.map(CapTreatment::as_str));
        for (name, value) in &self.limits {
            command = command.flag(&format!("--{}", name.replace('_', "-")), Some(value));
        }
        // A message that begins with a hyphen would be read as a flag; after `--`, it would be read as a program.
        match self.task.as_deref() {
            Some(task) if task.starts_with('-') => None,
            Some(task) => Some(command.word(task)),
            None => Some(command),
        }
    }
}

/// Returns the commands that create a run. A text that turns itself around makes none.
#[utoipa::path(
    post, path = "/api/v1/commands", request_body = CommandRequest,
    responses(
        (status = 200, body = Commands), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 413, body = ErrorBody), (status = 415, body = ErrorBody),
        (status = 422, body = ErrorBody)
    )
)]
async fn of_creation(
    State(context): Context,
    principal: Principal,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<CommandRequest>,
) -> Result<Json<Commands>, ApiError> {
    principal.require(Operation::Create)?;
    let json = serde_json::to_string(&body.value).map_err(|error| ApiError::internal(&error))?;
    // JSON has escapes for lines; the words of a command do not.
    let cli = body.value.cli().and_then(|command| command.text().ok());
    let url = format!("{}/api/v1/sandboxes", origin(&context));
    let curl = curl("POST", &url, Some(&json)).map_err(unsafe_word)?;
    Ok(Json(Commands { commands: vec![CommandView { name: "Create this sandbox", cli, curl }] }))
}

/// Choice between the commands for a run and those for one of its events.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RunCommandsQuery {
    /// `seq` of an event: only the command that reads it.
    #[param(minimum = 1)]
    event: Option<u32>,
}

/// Returns the commands for a run: those that read it, and those that end it.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/commands",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), RunCommandsQuery),
    responses(
        (status = 200, body = Commands), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn of_run(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<RunCommandsQuery>,
) -> Result<Json<Commands>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let (id, base) = (run.key.run_id.as_str(), format!("{}/api/v1/sandboxes", origin(&context)));
    if let Some(seq) = query.event {
        return Ok(Json(Commands { commands: vec![event_command(&base, id, seq).map_err(unsafe_word)?] }));
    }
    let rows: [(&str, &[&str], &str, &str); 6] = [
        ("Show it", &["sluice", "inspect", id], "GET", ""),
        ("Follow its events", &["sluice", "events", "-f", id], "GET", "/stream?after=0"),
        ("Follow its output", &["sluice", "logs", "-f", id], "GET", "/logs?follow=true"),
        ("Show its audit records", &["sluice", "audit", "show", id], "GET", "/audit"),
        ("Show its receipts", &["sluice", "receipts", "--run", id], "GET", "/receipts"),
        ("Cancel it", &["sluice", "cancel", id], "DELETE", ""),
    ];
    let mut commands = Vec::new();
    for (name, words, method, path) in rows {
        if method == "DELETE" && run.state.is_ended() {
            continue;
        }
        let cli = Some(ShellCommand::of(words).text().map_err(unsafe_word)?);
        let curl = curl(method, &format!("{base}/{id}{path}"), None).map_err(unsafe_word)?;
        commands.push(CommandView { name, cli, curl });
    }
    Ok(Json(Commands { commands }))
}

/// Returns the command that reads one event.
fn event_command(base: &str, id: &str, seq: u32) -> Result<CommandView, UnsafeWord> {
    let before = seq.saturating_sub(1).to_string();
    let cli = ShellCommand::of(&["sluice", "events", id, "--after", &before, "--limit", "1", "--json"]).text()?;
    let url = format!("{base}/{id}/events?cursor={before}&direction=newer&limit=1");
    Ok(CommandView { name: "Read this event", cli: Some(cli), curl: curl("GET", &url, None)? })
}

/// Returns an origin of the daemon, one with TLS if there is one.
fn origin(context: &ApiContext) -> &str {
    let origins = context.origins.get().map(Vec::as_slice).unwrap_or_default();
    let secure = origins.iter().find(|origin| origin.starts_with("https://"));
    secure.or(origins.first()).map_or("http://127.0.0.1:8787", String::as_str)
}

fn unsafe_word(error: UnsafeWord) -> ApiError {
    ApiError::invalid("command", error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_the_flags_of_the_program() {
        let cli = |value| {
            let request: CommandRequest = serde_json::from_value(value).expect("it is a request");
            request.cli().and_then(|command| command.text().ok())
        };
        let whole = json!({
            "name": "n", "task": "say hi", "graph_id": "sandbox:agent", "agent_id": "bot", "model": "m",
            "limits": {"memory": "64m", "max_calls": "3", "rate": "1/s"}, "max_cost_usd": "0.5", "on_cap": "ask"
        });
        let flags = "--name n --agent sandbox:agent --as bot --model m --max-cost-usd 0.5 --on-cap ask --max-calls 3 --memory 64m --rate 1/s";
        assert_eq!(cli(whole), Some(format!("sluice run -d {flags} 'say hi'")));
        for without in [
            json!({"task": "-x"}),
            json!({"task": "a\nb"}),
            json!({"project": "p"}),
            json!({"repository": {"type": "fix", "pull_request": true}}),
            json!({"limits": {"idle": "5m"}}),
        ] {
            assert_eq!(cli(without.clone()), None, "{without}");
        }
    }
}
