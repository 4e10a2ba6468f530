//! `sluice run -d`: a run that a daemon drives.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use sluice_client::{ApiClient, ApiCreatedRun, ApiRequest, ClientError};
use sluice_contract::exit;

use super::super::error::CommandError;
use super::super::object::CommandObject;
use super::super::output::{print, print_json, print_object};
use super::super::retry::idempotent;
use super::args::RunArgs;
use super::environment::environment;
use super::input::prompt;

/// Creates a run at a daemon, and prints its id.
pub(super) async fn run(args: &RunArgs) -> Result<ExitCode, CommandError> {
    match create(args).await {
        Ok(created) => {
            if args.json {
                print_json(&created);
            } else {
                print(&format!("{}\n", created.sandbox_id));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let error = error.without_program();
            if args.json {
                print_object(&CommandObject::failed_with("creation_failed", &error, json!({})));
            }
            Err(error)
        }
    }
}

async fn create(args: &RunArgs) -> Result<ApiCreatedRun, CommandError> {
    let usage = |message: String| CommandError { code: exit::NOT_STARTED, message };
    let unknown = args.not_for_daemons();
    if !unknown.is_empty() {
        let them = if unknown.len() == 1 { "it" } else { "them" };
        let flags = unknown.join(", ");
        return Err(usage(format!("a run of a daemon does not take {flags}; leave {them} out, or leave out -d")));
    }
    let api = args.server.daemon(&args.host)?;
    Ok(send_new(&api, &body(args)?).await?)
}

/// Creates a run at a daemon.
pub(super) async fn send_new(api: &ApiClient, body: &Value) -> Result<ApiCreatedRun, ClientError> {
    send(api, idempotent(ApiRequest::post(&["sandboxes"]).json(body))).await
}

/// Sends the request, and once more if its answer broke off: its key makes one run of both.
async fn send(api: &ApiClient, request: ApiRequest) -> Result<ApiCreatedRun, ClientError> {
    match api.send(request.clone()).await {
        Err(ClientError::Interrupted(..) | ClientError::Late(..)) => api.send(request).await,
        answer => answer,
    }
}

/// Returns the request as the API takes it.
fn body(args: &RunArgs) -> Result<Value, CommandError> {
    let failed = |error: super::request_error::RequestError| CommandError::not_started(&error);
    let prompt = prompt(args).map_err(failed)?;
    let messages = prompt.messages.as_deref().filter(|_| prompt.message.is_none());
    let messages = messages.map(serde_json::from_slice::<Value>).transpose();
    let messages = messages.map_err(|error| CommandError::not_started(&error))?;
    let env = environment(args).map_err(failed)?;
    let (model, models) = args.model.split_first().map_or((None, None), |(first, rest)| (Some(first), Some(rest)));
    let labels = labels(&args.label)?;
    let metadata = metadata(args.metadata())?;
    let (owner, agent) = args.as_agent.as_deref().map(owner_and_id).unzip();
    let members = [
        ("task", prompt.message.map(Value::from)),
        ("messages", messages),
        ("argv", (!args.argv.is_empty()).then(|| json!(args.argv))),
        ("graph_id", args.agent.clone().map(Value::from)),
        ("owner_id", owner.flatten().map(Value::from)),
        ("agent_id", agent.map(Value::from)),
        ("name", args.name.clone().map(Value::from)),
        ("model", model.cloned().map(Value::from)),
        ("models", models.filter(|rest| !rest.is_empty()).map(|rest| json!(rest))),
        ("image", args.image.clone().map(Value::from)),
        ("env", (!env.is_empty()).then(|| json!(env))),
        ("limits", args.limits_of_daemon().map(Value::from)),
        ("max_cost_usd", args.cap().map(Value::from)),
        ("on_cap", args.on_cap.clone().map(Value::from)),
        ("keep_workspace", args.keep_workspace.then(|| true.into())),
        ("priority", args.priority.map(Value::from)),
        ("depends_on", (!args.depends_on.is_empty()).then(|| json!(args.depends_on))),
        ("labels", (!labels.is_empty()).then(|| json!(labels))),
        ("metadata", metadata.map(Value::from)),
    ];
    let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Value::Object(members.collect::<Map<_, _>>()))
}

/// Returns the owner and the id of `OWNER/ID`; no owner for an id alone.
fn owner_and_id(agent: &str) -> (Option<&str>, &str) {
    agent.rsplit_once('/').map_or((None, agent), |(owner, id)| (Some(owner), id))
}

fn metadata(given: Option<&str>) -> Result<Option<Map<String, Value>>, CommandError> {
    let message = "--metadata is not a JSON object; write '{\"user_id\": \"ada\"}'".to_owned();
    let wrong = |_| CommandError { code: exit::NOT_STARTED, message };
    given.map(serde_json::from_str).transpose().map_err(wrong)
}

fn labels(given: &[String]) -> Result<BTreeMap<&str, &str>, CommandError> {
    let mut labels = BTreeMap::new();
    for text in given {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let message = "--label: write NAME=VALUE, and repeat the flag for more".to_owned();
            return Err(CommandError { code: exit::NOT_STARTED, message });
        };
        labels.insert(name, value);
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parse(words: &[&str]) -> RunArgs {
        Line::try_parse_from([&["run"], words].concat()).unwrap_or_else(|error| panic!("{error}")).run
    }

    #[test]
    fn flags_become_members_of_the_request() {
        let args = parse(&[
            "-d", "--name", "nightly", "--as", "reviewer", "--label", "team=core", "--priority", "-5", "--depends-on",
            "r_1", "--model", "a", "--model", "b", "--env", "A=1=2", "--memory", "64m", "--max-cost-usd", "0.5",
            "--on-cap", "ask", "--keep-workspace", "--metadata", r#"{"user_id":"ada"}"#, "--", "sh", "-c", "true",
        ]);
        let expected = json!({
            "argv": ["sh", "-c", "true"], "agent_id": "reviewer", "name": "nightly", "model": "a", "models": ["b"],
            "env": {"A": "1=2"}, "limits": {"memory": "64m"}, "max_cost_usd": "0.5", "on_cap": "ask", "priority": -5,
            "keep_workspace": true,
            "depends_on": ["r_1"], "labels": {"team": "core"}, "metadata": {"user_id": "ada"}
        });
        assert_eq!(body(&args).expect("each flag is known"), expected);
        assert_eq!(args.not_for_daemons(), [""; 0]);
        assert_eq!(body(&parse(&["-d", "say hello"])).expect("a task"), json!({ "task": "say hello" }));
        let of_other = body(&parse(&["-d", "--as", "alice/reader", "say hello"])).expect("a task");
        assert_eq!(of_other, json!({ "task": "say hello", "owner_id": "alice", "agent_id": "reader" }));
    }

    #[test]
    fn flags_of_one_shot_runs_are_named() {
        let args = parse(&["-d", "--repo", ".", "--key-mode", "auto", "--allow", "GET /x", "--out", "o", "--", "true"]);
        assert_eq!(args.not_for_daemons(), ["--out", "--repo", "--allow", "--key-mode"]);
        assert!(body(&parse(&["-d", "--label", "x", "--", "true"])).is_err());
        assert!(body(&parse(&["-d", "--metadata", "[]", "--", "true"])).is_err());
    }
}
