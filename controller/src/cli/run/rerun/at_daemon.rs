//! `sluice rerun` of a run of a daemon: its request, once more, over the API.

use std::process::ExitCode;

use serde_json::{Map, Value, json};
use sluice_client::{ApiClient, ApiCreatedRun, ApiRequest};
use sluice_contract::exit;

use super::super::super::error::CommandError;
use super::super::super::named_run;
use super::super::super::output::{print, print_json};
use super::super::detached::send_new;
use super::{RerunArgs, with_values};

/// Members of a run that a request has under the same names.
const SAME: [&str; 9] =
    ["graph_id", "image", "project", "max_cost_usd", "on_cap", "ttl_minutes", "priority", "keep_workspace", "retry_on"];

/// Creates a run with the request of an earlier one, and prints its id.
pub(super) async fn rerun(api: &ApiClient, args: &RerunArgs) -> Result<ExitCode, CommandError> {
    if args.run_id.is_some() {
        let message = "a daemon chooses the ids of its runs; leave out --run-id".to_owned();
        return Err(CommandError { code: exit::NOT_STARTED, message });
    }
    let earlier = named_run::find(api, &args.run).await?.sandbox.sandbox_id;
    let run: Value = api.send(ApiRequest::get(&["sandboxes", &earlier])).await?;
    let sender: Value = api.send(ApiRequest::get(&["session"])).await?;
    if run["owner_id"] != sender["owner"] {
        let message = format!(
            "run {earlier} belongs to {}, and a run that {} creates has another account and other agents; use a token of its \
             owner (--token-file)",
            run["owner_id"], sender["owner"]
        );
        return Err(CommandError { code: exit::NOT_STARTED, message });
    }
    let task: Value = api.send(ApiRequest::get(&["sandboxes", &earlier, "task"])).await?;
    let names = run["env_names"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let env = with_values(names, |name| std::env::var(name).ok())?;
    let mut request = request_of(&run, &task, &args.model);
    if !env.is_empty() {
        let env: Map<_, _> = env.into_iter().map(|(name, value)| (name, value.into())).collect();
        request.insert("env".to_owned(), env.into());
    }
    let agent = run["agent_id"].as_str().unwrap_or_default();
    if is_registered(api, agent).await? {
        request.insert("agent_id".to_owned(), agent.into());
    }
    let created: ApiCreatedRun = send_new(api, &Value::Object(request)).await?;
    if args.json {
        print_json(&created);
    } else {
        print(&format!("{}\n", created.sandbox_id));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether an agent is a registered one. A run without one has an agent of its own, which no route shows.
async fn is_registered(api: &ApiClient, agent: &str) -> Result<bool, CommandError> {
    match api.send::<Value>(ApiRequest::get(&["agents", agent])).await {
        Ok(_) => Ok(true),
        Err(error) if error.failure().is_some_and(|failure| failure.status == 404) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the request of a run, from the run and its task. `models` replace those of the earlier run.
fn request_of(run: &Value, task: &Value, models: &[String]) -> Map<String, Value> {
    let models = if models.is_empty() { run["models"].clone() } else { json!(models) };
    let (model, more) = models
        .as_array()
        .and_then(|all| all.split_first())
        .map_or((None, None), |(first, rest)| (Some(first.clone()), (!rest.is_empty()).then(|| json!(rest))));
    let messages = task["messages"].as_array().filter(|messages| !messages.is_empty());
    let messages = messages.filter(|_| task["task"].is_null()).map(|messages| json!(messages));
    let own = [
        ("model", model),
        ("models", more),
        ("task", Some(task["task"].clone())),
        ("messages", messages),
        ("argv", Some(task["argv"].clone())),
        ("repository", Some(without_nulls(&task["repository"]))),
        ("limits", Some(without_nulls(&run["limits"]))),
        ("labels", Some(without_nulls(&run["labels"]))),
        ("metadata", Some(without_nulls(&run["metadata"]))),
    ];
    let same = SAME.map(|name| (name, Some(run[name].clone())));
    let members = own.into_iter().chain(same).filter_map(|(name, value)| Some((name.to_owned(), value?)));
    members.filter(|(_, value)| !value.is_null()).collect()
}

/// Returns an object without the members that are null; null for an empty one.
fn without_nulls(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let members: Map<_, _> = members.map(|(name, value)| (name.clone(), value.clone())).collect();
    if members.is_empty() { Value::Null } else { Value::Object(members) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_made_of_a_run_and_its_task() {
        let run = json!({
            "graph_id": "sandbox:agent", "models": ["a", "b"], "image": "i", "project": null, "max_cost_usd": "0.5",
            "on_cap": "ask", "ttl_minutes": null, "priority": 3, "limits": {"memory": "1g", "max_calls": null},
            "keep_workspace": true, "retry_on": ["container_failed"], "labels": {"team": "core"}, "metadata": {},
            "state": "COMPLETED", "generation": 7
        });
        let task = json!({
            "sandbox_id": "r1", "task": "say hello", "messages": [{"role": "user", "content": "say hello"}],
            "argv": null, "repository": null
        });
        let expected = json!({
            "graph_id": "sandbox:agent", "model": "a", "models": ["b"], "image": "i", "max_cost_usd": "0.5",
            "on_cap": "ask", "priority": 3, "limits": {"memory": "1g"}, "labels": {"team": "core"}, "task": "say hello",
            "keep_workspace": true, "retry_on": ["container_failed"]
        });
        assert_eq!(Value::Object(request_of(&run, &task, &[])), expected);
        let other = request_of(&run, &json!({"task": null, "messages": [], "argv": ["true"]}), &["c".to_owned()]);
        assert_eq!((&other["model"], &other["argv"]), (&json!("c"), &json!(["true"])));
        assert!(["models", "task", "messages"].iter().all(|name| !other.contains_key(*name)), "{other:?}");
    }
}
