//! `sluice agent`: the registered agents of a daemon.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_client::{AgentPage, ApiAgent, ApiClient, ApiRequest, ClientError};
use sluice_contract::Account;
use sluice_state::store::Store;

use super::database::open_for_queries;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{dash, print, print_json, terminal_width};
use super::sandbox_object::agent_of;
use super::server_args::ServerArgs;
use super::table::{Column, Table};

const EXAMPLES: &str = "\
Examples:
  sluice agent add reviewer --account acct-1
  sluice run -d --as reviewer --model gpt-4o-mini \"review the last change\"
  sluice agent ls
  sluice agent suspend reviewer";

/// Maximum number of agents in one read.
const PAGE: u32 = 500;

/// Registers, shows and suspends agents. An agent is an identity with an owner and an account: it has one live run at a time.
///
/// ls and show read the state directory unless a daemon is named; the others need a daemon.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
    #[command(flatten)]
    host: HostArgs,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Registers an agent; one that is registered already stays as it is
    Add(Box<AddArgs>),
    /// Lists agents
    Ls {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Shows an agent
    Show(OneArgs),
    /// Suspends an agent: it gets no further run, and a live one goes on
    Suspend(OneArgs),
    /// Ends a suspension; that of an admin only an admin may end
    Resume(OneArgs),
    /// Removes an agent that has no live run
    Rm(OneArgs),
}

/// An agent to register.
#[derive(Debug, Args)]
struct AddArgs {
    /// The id, unique for its owner
    #[arg(value_name = "ID")]
    id: String,
    /// A name for people
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The owner; admins only [default: the one of the token, or root]
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// The account that pays for its runs; admins only [default: the first one of the token]
    #[arg(long, value_name = "ID")]
    account: Option<Account>,
    /// A host directory that its runs may read, below one of the setting grant_roots; admins only; repeat for more
    #[arg(long, value_name = "DIR")]
    grant: Vec<String>,
    /// A zone, which its events have
    #[arg(long, value_name = "ID")]
    zone: Option<String>,
    /// A JSON object that is kept with it
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A registered agent.
#[derive(Debug, Args)]
struct OneArgs {
    /// The id, or OWNER/ID
    #[arg(value_name = "ID")]
    id: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: &AgentArgs) -> Result<ExitCode, CommandError> {
    let host = &args.host;
    match &args.command {
        AgentCommand::Add(add) => show(&register(&add.server.daemon(host)?, add).await?, add.json),
        AgentCommand::Ls { json, server } => {
            let agents = match server.named(host)? {
                Some(api) => listed(&api).await?,
                None => listed_here(&open_for_queries(&host.state_dir()?)?).await?,
            };
            list(&agents, *json);
        }
        AgentCommand::Show(one) => {
            let agent = match one.server.named(host)? {
                Some(api) => api.send(ApiRequest::get(&["agents", &one.id])).await?,
                None => found_here(&open_for_queries(&host.state_dir()?)?, &one.id).await?,
            };
            show(&agent, one.json);
        }
        AgentCommand::Suspend(one) => {
            let api = one.server.daemon(host)?;
            show(&transition(&api, &one.id, "SUSPENDED", None).await?, one.json);
        }
        AgentCommand::Resume(one) => {
            let api = one.server.daemon(host)?;
            let agent: ApiAgent = api.send(ApiRequest::get(&["agents", &one.id])).await?;
            if agent.state != "SUSPENDED" {
                return Err(CommandError::wrong_usage(format!(
                    "agent {} is not suspended; it is {}",
                    one.id, agent.state
                )));
            }
            // This is the only transition from a suspension; without a live run, the agent is idle.
            let connected = transition(&api, &one.id, "CONNECTED", None).await?;
            let agent = match transition(&api, &one.id, "IDLE", Some(connected.generation)).await {
                Err(error) if error.failure().is_some_and(|failure| failure.code == "agent_busy") => connected,
                moved => moved?,
            };
            show(&agent, one.json);
        }
        AgentCommand::Rm(one) => {
            let api = one.server.daemon(host)?;
            api.bytes(ApiRequest::delete(&["agents", &one.id])).await?;
            if one.json {
                print_json(&json!({ "removed": one.id }));
            } else {
                print(&format!("removed {}\n", one.id));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn register(api: &ApiClient, args: &AddArgs) -> Result<ApiAgent, CommandError> {
    let metadata = match args.metadata.as_deref().map(serde_json::from_str::<Value>) {
        None => None,
        Some(Ok(object)) if object.is_object() => Some(object),
        Some(_) => {
            return Err(CommandError::wrong_usage("--metadata is not a JSON object; write '{\"team\":\"core\"}'"));
        }
    };
    let members = [
        ("name", args.name.clone().map(Value::from)),
        ("owner_id", args.owner.clone().map(Value::from)),
        ("billing_account_id", args.account.as_ref().map(|account| account.to_string().into())),
        ("grants", (!args.grant.is_empty()).then(|| json!(args.grant))),
        ("zone_id", args.zone.clone().map(Value::from)),
        ("metadata", metadata),
    ];
    let mut body = json!({ "agent_id": args.id });
    for (name, value) in members {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    Ok(api.send(ApiRequest::post(&["agents"]).json(&body)).await?)
}

async fn transition(api: &ApiClient, id: &str, target: &str, expected: Option<u64>) -> Result<ApiAgent, ClientError> {
    let mut body = json!({ "target_state": target });
    if let Some(expected) = expected {
        body["expected_generation"] = expected.into();
    }
    api.send(ApiRequest::post(&["agents", id, "transition"]).json(&body)).await
}

async fn listed(api: &ApiClient) -> Result<Vec<ApiAgent>, CommandError> {
    let (mut agents, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let request = ApiRequest::get(&["agents"]).query("limit", "500").query_of("cursor", cursor.as_deref());
        let page: AgentPage = api.send(request).await?;
        agents.extend(page.agents);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(agents);
        }
    }
}

async fn listed_here(store: &Store) -> Result<Vec<ApiAgent>, CommandError> {
    let (mut agents, mut after) = (Vec::new(), None);
    loop {
        let page = store.list_agents(None, after, PAGE).await.map_err(|error| CommandError::failed(&error))?;
        after = page.last().map(|agent| (agent.owner.clone(), agent.agent_id.clone()));
        let is_last = page.len() < PAGE as usize;
        agents.extend(page.into_iter().map(agent_of));
        if is_last {
            return Ok(agents);
        }
    }
}

/// Finds the agent of `OWNER/ID`, or the only one of this id.
async fn found_here(store: &Store, id: &str) -> Result<ApiAgent, CommandError> {
    let is_named = |agent: &ApiAgent| agent.agent_id == id || format!("{}/{}", agent.owner_id, agent.agent_id) == id;
    let mut found: Vec<_> = listed_here(store).await?.into_iter().filter(is_named).collect();
    match found.len() {
        0 => Err(CommandError::wrong_usage(format!("there is no agent '{id}'; sluice agent ls lists them"))),
        1 => Ok(found.remove(0)),
        _ => {
            let named: Vec<_> = found.iter().map(|agent| format!("{}/{}", agent.owner_id, agent.agent_id)).collect();
            Err(CommandError::wrong_usage(format!("several owners have an agent '{id}'; write {}", named.join(" or "))))
        }
    }
}

const COLUMNS: [Column; 6] = [
    Column::text("AGENT"),
    Column::text("OWNER").optional(1),
    Column::text("STATE"),
    Column::text("ACCOUNT").optional(2),
    Column::number("GENERATION").optional(3),
    Column::text("NAME").cut().optional(4),
];

fn list(agents: &[ApiAgent], as_json: bool) {
    if as_json {
        return print_json(&json!({ "agents": agents }));
    }
    print(&table(agents, terminal_width()));
}

fn table(agents: &[ApiAgent], terminal: Option<usize>) -> String {
    let mut table = Table::new(terminal, COLUMNS);
    for agent in agents {
        table.row([
            agent.agent_id.clone(),
            agent.owner_id.clone(),
            agent.state.clone(),
            agent.billing_account_id.clone(),
            agent.generation.to_string(),
            dash(agent.name.as_ref()),
        ]);
    }
    table.take()
}

/// Returns whether an agent may have runs, for people.
fn may_run(agent: &ApiAgent) -> &'static str {
    match (agent.allow_sandbox, agent.state.as_str()) {
        (false, _) => "no",
        (true, "SUSPENDED") => "no: suspended",
        (true, _) => "yes",
    }
}

fn show(agent: &ApiAgent, as_json: bool) {
    if as_json {
        return print_json(&json!({ "agent": agent }));
    }
    let grants = if agent.grants.is_empty() { "-".to_owned() } else { agent.grants.join(" ") };
    let allowed = may_run(agent);
    for (name, value) in [
        ("agent", &agent.agent_id),
        ("owner", &agent.owner_id),
        ("state", &agent.state),
        ("account", &agent.billing_account_id),
        ("name", &dash(agent.name.as_ref())),
        ("may run", &allowed.to_owned()),
        ("grants", &grants),
        ("registered", &agent.created_at),
    ] {
        print(&format!("{name:<11} {}\n", sluice_contract::text::sanitize(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(state: &str, is_allowed: bool) -> ApiAgent {
        serde_json::from_value(json!({
            "agent_id": "one", "owner_id": "alice", "zone_id": null, "name": null, "billing_account_id": "acct-1",
            "allow_sandbox": is_allowed, "grants": [], "metadata": {}, "state": state, "generation": 2,
            "last_heartbeat": null, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
        }))
        .expect("an agent")
    }

    /// The end of a suspension raises the generation, too, so it is not the number of runs.
    #[test]
    fn the_generation_is_listed_under_its_name() {
        let listed = table(&[agent("IDLE", true)], None);
        assert_eq!(
            listed,
            "AGENT  OWNER  STATE  ACCOUNT  GENERATION  NAME\none    alice  IDLE   acct-1            2  -\n"
        );
    }

    #[test]
    fn a_suspended_agent_may_not_run() {
        for (state, is_allowed, expected) in [
            ("IDLE", true, "yes"),
            ("IDLE", false, "no"),
            ("SUSPENDED", true, "no: suspended"),
            ("SUSPENDED", false, "no"),
        ] {
            assert_eq!(may_run(&agent(state, is_allowed)), expected, "{state}");
        }
    }
}
