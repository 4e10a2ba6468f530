//! Clients in runs of a daemon. The clients are mounted read-only as grants, and begin when a test lets them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::controller::Daemon;
use sluice_testkit::{RawClient, Sluice, Upstream, engine, poll};

use super::clients::{COUNTED, Client};
use super::commands::Agent;

/// Longest wait for a client on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);

/// Models that the clients name, also for titles.
const MODELS: [&str; 5] = ["claude-sonnet-5", "claude-haiku-4-5-20251001", "claude-opus-4-8", "gpt-5.5", "gpt-6.1-sol"];

/// Starts a client. Node programs look for packages beside themselves, so the script copies them to a directory that
/// can hold a link to the packages. socat records each request. `$FIRST` is shell code that runs before the client; its
/// requests are not counted.
const SCRIPT: &str = r#"
if [ -n "$PROGRAMS" ]; then cp -r "$PROGRAMS" kit && ln -s "$MODULES" kit/node_modules; fi
eval "$FIRST"
socat -v TCP-LISTEN:9000,bind=127.0.0.1,reuseaddr,fork TCP:127.0.0.1:8080 2> /tmp/traffic &
export OPENAI_BASE_URL=$COUNTED/v1 OPENAI_API_BASE=$COUNTED ANTHROPIC_BASE_URL=$COUNTED
until curl -sf "$COUNTED/health" > /dev/null; do sleep 0.05; done
until [ -e go ]; do sleep 0.05; done
"$@" < /dev/null
code=$?
echo; cat sluice-*.txt 2> /dev/null; echo "requests: $(grep -ac '^POST ' /tmp/traffic)"
exit $code
"#;

/// Lets the runs of a daemon read the directories of the clients.
pub(crate) fn with_grants(sluice: Sluice) -> Sluice {
    let roots =
        [concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/agents"), concat!(env!("CARGO_MANIFEST_DIR"), "/agents")];
    let roots: Vec<_> = roots.iter().map(|root| real(Path::new(root))).collect();
    sluice.file("sluice.toml", &format!("grant_roots = {roots:?}\n"));
    sluice
}

/// The path without links.
fn real(path: &Path) -> String {
    fs::canonicalize(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).display().to_string()
}

/// A client in a run.
#[derive(Debug)]
pub(crate) struct ClientRun<'a> {
    sluice: &'a Sluice,
    daemon: &'a Daemon<'a>,
    pub(crate) client: Client,
    pub(crate) id: String,
}

/// Starts a run for each client; `members` adds members to its request or replaces them. `first` is shell code that the
/// run does at once; the client itself begins with [`ClientRun::go`].
pub(crate) async fn start<'a>(
    sluice: &'a Sluice,
    daemon: &'a Daemon<'a>,
    clients: Vec<Client>,
    first: &str,
    members: &Value,
) -> Vec<ClientRun<'a>> {
    let mut runs = Vec::new();
    for client in clients {
        let id = create(daemon, &client, first, members).await;
        runs.push(ClientRun { sluice, daemon, client, id });
    }
    for run in &runs {
        daemon.reaches(&run.id, "RUNNING").await;
    }
    runs
}

/// Registers an agent that has the directories of a client as grants. Returns a function that translates a path of the
/// client to its path in the runs.
pub(crate) async fn grants_of(daemon: &Daemon<'_>, agent: &Agent) -> impl Fn(&str) -> String {
    let grants: Vec<_> = agent.mounts.iter().map(|(host, at)| (real(host), at.clone())).collect();
    let paths: Vec<_> = grants.iter().map(|(host, _)| host).collect();
    let registered = daemon.request("POST", "/api/v1/agents", &json!({"agent_id": agent.name, "grants": paths})).await;
    registered.expect(201);
    move |word| {
        let places = grants.iter();
        places.fold(word.to_owned(), |word, (host, at)| word.replace(at.as_str(), &format!("/mnt/grants{host}")))
    }
}

/// Creates the run of a client, with an agent that has the client's directories as grants.
async fn create(daemon: &Daemon<'_>, client: &Client, first: &str, members: &Value) -> String {
    let agent = &client.agent;
    let of_grants = grants_of(daemon, agent).await;
    let grants: Vec<_> = agent.mounts.iter().map(|(host, at)| (real(host), at)).collect();

    let has_programs = grants.iter().any(|(_, at)| *at == "/opt/agents");
    let inside = |word: &str| {
        // The script copies these programs.
        of_grants(&word.replace("/opt/agents", "/workspace/kit"))
    };
    let mut env: serde_json::Map<_, _> =
        agent.env.iter().map(|(name, value)| (name.clone(), json!(inside(value)))).collect();
    env.extend([("FIRST", first), ("COUNTED", COUNTED)].map(|(name, value)| (name.to_owned(), json!(value))));
    for (host, at) in grants.iter().filter(|_| has_programs) {
        let name = if *at == "/opt/agents" { "PROGRAMS" } else { "MODULES" };
        env.insert(name.to_owned(), json!(format!("/mnt/grants{host}")));
    }
    let prompt = format!("[[task {}]] Do it.", format!("{} {}", agent.name, agent.options).trim());
    let words = agent.argv.iter().map(|word| inside(word)).chain([prompt]).chain(agent.after.iter().cloned());
    let argv: Vec<_> = ["sh", "-c", SCRIPT, "sh"].into_iter().map(str::to_owned).chain(words).collect();
    let mut request = json!({
        "argv": argv, "env": env, "agent_id": agent.name, "model": MODELS[0], "models": MODELS,
        "limits": {"memory": "1g", "timeout": "20m"},
    });
    for (name, value) in members.as_object().into_iter().flatten() {
        match (request[name].as_object_mut(), value.as_object()) {
            (Some(inner), Some(more)) => inner.extend(more.clone()),
            _ => request[name] = value.clone(),
        }
    }
    daemon.create(request).await
}

impl ClientRun<'_> {
    /// Lets the client begin.
    pub(crate) fn go(&self) {
        fs::write(self.work().join("go"), "").expect("the run has its workspace");
    }

    /// Path of the run's workspace on this host.
    pub(crate) fn work(&self) -> std::path::PathBuf {
        self.directory().join("work")
    }

    fn directory(&self) -> std::path::PathBuf {
        self.sluice.state().join("runs").join(format!("{}.0", self.id))
    }

    /// The run as the API shows it.
    pub(crate) async fn shown(&self) -> Value {
        self.daemon.run(&self.id).await
    }

    /// Sends a request to a route of the run.
    pub(crate) async fn post(&self, route: &str, body: &Value) -> Value {
        let path = format!("/api/v1/sandboxes/{}/{route}", self.id);
        self.daemon.request("POST", &path, body).await.expect(200).json()
    }

    /// Reads a route of the run.
    pub(crate) async fn get(&self, route: &str) -> Value {
        self.daemon.get(&format!("/api/v1/sandboxes/{}/{route}", self.id)).await.expect(200).json()
    }

    /// Sends a request to the control socket of its sidecar, as its daemon does.
    pub(crate) async fn control(&self, method: &str, path: &str, body: &Value) -> Value {
        let socket = self.directory().join("conf/control.sock");
        assert!(socket.exists(), "{} has ended: {}\n{}", self.client.name(), self.shown().await, self.output().await);
        let mut client = RawClient::connect(socket).await.allowing_any();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        client.request(method, path, &[], body).await.expect(200).json()
    }

    /// Ids of the calls that wait in the sidecar now.
    pub(crate) async fn waiting(&self) -> Vec<String> {
        let held = self.control("GET", "/held", &Value::Null).await;
        let waiting = held.as_array().into_iter().flatten().filter(|held| held["waiting"] != 0);
        waiting.filter_map(|held| held["hold_id"].as_str().map(str::to_owned)).collect()
    }

    /// Returns true if the run's container is frozen.
    pub(crate) async fn is_frozen(&self) -> bool {
        let label = format!("sluice.run={}", self.id);
        let [container] = &engine::containers_with(&label).await[..] else { return false };
        engine::inspect(container).await["State"]["Paused"] == true
    }

    /// Waits until `ready` returns true, and fails with `what` after [`LIMIT`].
    pub(crate) async fn until(&self, what: &str, ready: impl AsyncFnMut() -> bool) {
        self.until_within(LIMIT, what, ready).await;
    }

    /// Does the same as `until`, with another limit.
    pub(crate) async fn until_within(&self, limit: Duration, what: &str, ready: impl AsyncFnMut() -> bool) {
        if !poll(limit, ready).await {
            let (run, said) = (self.shown().await, self.output().await);
            panic!("{}: {what}: {run}\n{said}\n{}", self.client.name(), self.daemon.process().stderr());
        }
    }

    /// Waits for the end of the run, and returns the run and its whole output.
    pub(crate) async fn ended(&self) -> (Value, String) {
        let mut run = Value::Null;
        self.until("no end", async || {
            run = self.shown().await;
            run["ended_at"].is_string()
        })
        .await;
        (run, self.output().await)
    }

    /// Returns all output of the run so far.
    pub(crate) async fn output(&self) -> String {
        let path = format!("/api/v1/sandboxes/{}/logs", self.id);
        let text = self.daemon.get(&path).await.expect(200).text();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter_map(|line| line["text"].as_str().map(str::to_owned)).collect()
    }
}

/// Number of calls that have reached the upstream. The daemon itself looks up open costs there after a minute.
pub(crate) fn calls_at(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.method == "POST").count()
}

/// Number of requests that the client has sent, which the run printed at its end.
pub(crate) fn requests(output: &str) -> usize {
    let counted = output.rsplit_once("requests: ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    counted.unwrap_or_else(|| panic!("the client was not counted: {output}"))
}
