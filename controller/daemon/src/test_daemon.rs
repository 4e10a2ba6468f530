//! A daemon in a temporary directory, and a client for its requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sluice_git::{GitHome, GitProgram};
use sluice_runs::forbidden_mounts::ForbiddenPlaces;
use sluice_runs::sandbox_user::DEFAULT_UIDS;
use sluice_runs::verdict::Contract;
use sluice_state::control_log::{self, ControlLine};
use sluice_state::keys::Keys;
use sluice_state::layout::{Layout, RunPaths};
use sluice_state::process::Process;
use sluice_state::sandboxes::{ClaimLimits, SandboxStep, SandboxVerdict};
use sluice_state::store::{Store, now_us};
use sluice_state::tokens::{NewToken, Token, TokenValue, create_value};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::chat_settings::ChatSettings;
use crate::daemon::{Daemon, RunningDaemon};
use crate::event_limits::EventLimits;
use crate::grants::GrantPolicy;
use crate::limits::HttpLimits;
use crate::monitor::{HostCheck, MetricsReaders};
use crate::on_cap::CapTreatment;
use crate::principal::Role;
use crate::run_policy::{ASK_TIMEOUT, Graph, Project, RunPolicy};
use crate::settings::DaemonSettings;
use crate::stored_request::StoredLimits;
use crate::upkeep::UpkeepSettings;

/// A daemon with eight tokens: `slu_admin`, `slu_alice` (owner of acct-1), `slu_alice2` (alice with acct-3), `slu_bob` (of
/// acct-2), `slu_eve` (who shares acct-1 with alice), `slu_viewer` and `slu_chat` (acct-1), `slu_metrics`.
pub(crate) struct TestDaemon {
    pub(crate) running: RunningDaemon,
    pub(crate) settings: DaemonSettings,
    tokens: BTreeMap<String, (TokenValue, Token)>,
    _scratch: TempDir,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) fn settings(scratch: &Path) -> DaemonSettings {
    DaemonSettings {
        state: scratch.join("st"),
        run_dir: scratch.join("run"),
        git: GitHome::new(scratch.join("st/git"), GitProgram::unconfined("/usr/bin/git".into())),
        listen: vec!["127.0.0.1:0".to_owned()],
        tls_cert: None,
        tls_key: None,
        behind_proxy: None,
        metrics: MetricsReaders::WithRole,
        checks: vec![HostCheck { name: "engine", status: "pass" }, HostCheck { name: "image", status: "warn" }],
        viewer_files: true,
        chat: ChatSettings::default(),
        runs: None,
        limits: HttpLimits::default(),
        // The disk of a test may be nearly full.
        upkeep: UpkeepSettings {
            events: EventLimits { disk_free_min: 0, ..EventLimits::default() },
            ..UpkeepSettings::default()
        },
        log: |_| {},
    }
}

/// Returns a policy with one program, `sandbox:agent`.
pub(crate) fn policy() -> RunPolicy {
    let limits = StoredLimits {
        timeout_s: 600,
        memory: 1 << 30,
        cpu_millis: 1000,
        pids: 256,
        max_calls: None,
        max_tokens: None,
        max_concurrency: None,
        rate: None,
        idle_s: None,
        workspace: 1 << 30,
    };
    RunPolicy {
        graphs: vec![Graph {
            graph_id: "sandbox:agent".to_owned(),
            name: "agent".to_owned(),
            description: "an agent".to_owned(),
            image: Some("agent@sha256:0".to_owned()),
            takes_one_message: true,
            output: Contract::Envelope,
            models: vec!["small".to_owned()],
            limits: limits.clone(),
            max_cost: None,
        }],
        default_image: "base@sha256:0".to_owned(),
        images: vec!["tools@sha256:0".to_owned()],
        projects: vec![
            Project { name: "site".to_owned(), owners: vec!["alice".to_owned()], repository: None },
            Project { name: "depot".to_owned(), owners: vec!["alice".to_owned(), "bob".to_owned()], repository: None },
        ],
        grants: GrantPolicy {
            roots: Vec::new(),
            forbidden: ForbiddenPlaces::default(),
            users: DEFAULT_UIDS.parse().expect("a range"),
        },
        models: vec!["small".to_owned()],
        accounts: Vec::new(),
        account: "acct-host".to_owned(),
        limits_max: StoredLimits {
            timeout_s: 7200,
            memory: 2 << 30,
            cpu_millis: 2000,
            workspace: 2 << 30,
            ..limits.clone()
        },
        limits,
        run_time: Duration::from_secs(7200),
        max_cost: None,
        max_cost_max: None,
        hold: 1_000_000_000,
        running_max: 10,
        owner_running_max: 10,
        project_running_max: 5,
        queued_max: 3,
        on_cap: CapTreatment::Refuse,
        ask_timeout: ASK_TIMEOUT,
        second_person: None,
        session_approval_max: None,
    }
}

/// Makes the tokens, each known to a test by a short name.
async fn make_tokens(settings: &DaemonSettings) -> BTreeMap<String, (TokenValue, Token)> {
    let layout = Layout::open(&settings.state).expect("there is room");
    let store = Store::open(&layout.database()).expect("there is room");
    let mut tokens = BTreeMap::new();
    for (name, role, accounts) in [
        ("admin", Role::Admin, &[][..]),
        ("alice", Role::Owner, &["acct-1"]),
        ("alice2", Role::Owner, &["acct-3"]),
        ("bob", Role::Owner, &["acct-2"]),
        ("eve", Role::Owner, &["acct-1"]),
        ("viewer", Role::Viewer, &["acct-1"]),
        ("chat", Role::Chat, &["acct-1"]),
        ("metrics", Role::Metrics, &[]),
    ] {
        let owner = name.trim_end_matches('2').to_owned();
        let accounts = accounts.iter().map(ToString::to_string).collect();
        let new =
            NewToken { owner, role, accounts, label: None, life_us: None, runs_per_day: None, cost_per_day: None };
        let value = create_value().expect("the kernel has random bytes");
        let token = store.create_token(&value, new, now_us()).await.expect("there is room");
        tokens.insert(format!("slu_{name}"), (value, token));
    }
    tokens
}

impl TestDaemon {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut DaemonSettings)) -> Self {
        Self::with_policy(None, change).await
    }

    pub(crate) async fn with_policy(policy: Option<RunPolicy>, change: impl FnOnce(&mut DaemonSettings)) -> Self {
        let scratch = tempfile::tempdir().expect("there is room");
        let mut settings = settings(scratch.path());
        change(&mut settings);
        let tokens = make_tokens(&settings).await;
        let running = Daemon::start_with(&settings, policy).await.expect("it starts");
        Self { running, settings, tokens, _scratch: scratch }
    }

    /// Starts a daemon that creates runs. They stay in the queue.
    pub(crate) async fn with_runs() -> Self {
        Self::with_policy(Some(policy()), |_| {}).await
    }

    /// The database, with the daemon's own signal of commits.
    pub(crate) fn store(&self) -> &Store {
        &self.running.context.store
    }

    /// Creates a run, and returns its id.
    pub(crate) async fn create(&self, token: &str, body: Value) -> String {
        let answer = self.request(token, "POST", "/api/v1/sandboxes", Some(&body)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["sandbox_id"].as_str().expect("an id").to_owned()
    }

    /// Takes a step of a run, as the orchestrator does.
    pub(crate) async fn step(&self, run_id: &str, step: SandboxStep) {
        let run_id = run_id.parse().expect("an id");
        let run = self.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
        self.store().step_sandbox(&run_id, run.generation, step, "test", now_us()).await.expect("it is legal");
    }

    /// Claims the next run.
    pub(crate) async fn claim(&self) {
        let limits = ClaimLimits { host: 10, project: 10, owner: 10 };
        let claim = self.store().claim_next(&Process::current().expect("it is there"), limits, now_us()).await;
        claim.expect("it is writable").claimed.expect("one waits");
    }

    /// Creates a run that works, with a workspace and a record, and returns its id and its paths.
    pub(crate) async fn working_run(&self) -> (String, RunPaths) {
        let (id, paths) = self.claimed_run().await;
        self.step(&id, SandboxStep::Start).await;
        (id, paths)
    }

    /// Creates the same run, but does not record its start.
    pub(crate) async fn claimed_run(&self) -> (String, RunPaths) {
        let id = self.create("slu_alice", serde_json::json!({ "task": "x" })).await;
        self.claim().await;
        let key = format!("{id}.0").parse().expect("a key");
        let paths = self.running.context.layout.run(&key);
        std::fs::create_dir_all(&paths.work).expect("there is room");
        self.running.context.layout.records().create(&key).expect("there is room");
        (id, paths)
    }

    /// Ends a run with success.
    pub(crate) async fn end(&self, id: &str) {
        self.step(id, SandboxStep::Decide(SandboxVerdict::Success)).await;
        self.step(id, SandboxStep::Finish).await;
    }

    /// Returns the control log.
    pub(crate) fn control_log(&self) -> Vec<ControlLine> {
        let keys = Keys::at(&self.settings.state).public().expect("they were made");
        let (path, mut lines) = (Layout::at(&self.settings.state).control_log(), Vec::new());
        control_log::verify(&path, &keys, |line| lines.push(line.clone())).expect("it is whole");
        lines
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.addresses()[0]
    }

    /// Returns the header of a token; any other text stays as it is.
    pub(crate) fn bearer(&self, name: &str) -> String {
        format!("Authorization: Bearer {}", self.tokens.get(name).map_or(name, |(value, _)| value.expose()))
    }

    /// Returns the id of a token.
    pub(crate) fn token_id(&self, name: &str) -> &str {
        &self.tokens[name].1.id
    }

    /// Makes a token of a viewer of this owner, and returns its value.
    pub(crate) async fn viewer_of(&self, owner: &str) -> String {
        let value = create_value().expect("the kernel has random bytes");
        let new = NewToken {
            owner: owner.to_owned(),
            role: Role::Viewer,
            accounts: Vec::new(),
            label: None,
            life_us: None,
            runs_per_day: None,
            cost_per_day: None,
        };
        self.store().create_token(&value, new, now_us()).await.expect("there is room");
        value.expose().to_owned()
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.settings.run_dir.join(name)
    }

    /// Sends a request over TCP with a token.
    pub(crate) async fn request(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> TestAnswer {
        let stream = TcpStream::connect(self.address()).await.expect("it listens");
        let host = format!("Host: {}", self.address());
        let token = self.bearer(token);
        exchange(stream, method, path, &[&host, &token], body.map(Value::to_string).as_deref()).await
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> TestAnswer {
        self.request(token, "GET", path, None).await
    }

    /// Sends a request over TCP with a token and one more header; null is no body.
    pub(crate) async fn with_header(
        &self,
        token: &str,
        request: (&str, &str),
        body: &Value,
        header: &str,
    ) -> TestAnswer {
        let stream = TcpStream::connect(self.address()).await.expect("it listens");
        let headers = [&format!("Host: {}", self.address()), &self.bearer(token), header];
        exchange(
            stream,
            request.0,
            request.1,
            &headers.map(|header| header as &str),
            (!body.is_null()).then(|| body.to_string()).as_deref(),
        )
        .await
    }

    /// Sends a request over TCP with only these headers.
    pub(crate) async fn bare(&self, method: &str, path: &str, headers: &[&str]) -> TestAnswer {
        let stream = TcpStream::connect(self.address()).await.expect("it listens");
        exchange(stream, method, path, headers, None).await
    }

    /// Sends a request to a unix socket.
    pub(crate) async fn over_socket(&self, name: &str, method: &str, path: &str, headers: &[&str]) -> TestAnswer {
        let stream = UnixStream::connect(self.socket(name)).await.expect("it listens");
        let headers: Vec<_> = ["Host: localhost"].iter().chain(headers).copied().collect();
        exchange(stream, method, path, &headers, None).await
    }
}

/// Sends one request, and reads its answer to the end of the connection.
pub(crate) async fn exchange<S>(
    mut stream: S,
    method: &str,
    path: &str,
    headers: &[&str],
    body: Option<&str>,
) -> TestAnswer
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    headers.iter().for_each(|header| text += &format!("{header}\r\n"));
    if let Some(body) = body {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    text += body.unwrap_or_default();
    // The daemon may answer and close before it has read everything.
    let _ = stream.write_all(text.as_bytes()).await;
    read_answer(stream).await
}

pub(crate) async fn read_answer(mut stream: impl AsyncRead + Unpin) -> TestAnswer {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    // The body may be compressed.
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    TestAnswer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

impl TestAnswer {
    /// Returns the body of an answer with a known length.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns status and stable word.
    pub(crate) fn error(&self) -> (u16, String) {
        (self.status, self.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}
