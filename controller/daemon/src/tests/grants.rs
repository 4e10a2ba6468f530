//! Grants of agents over HTTP: who makes them, which paths they may name, and which directories runs see.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::test_daemon::{TestAnswer, TestDaemon, policy};

const AGENTS: &str = "/api/v1/agents";
const RUNS: &str = "/api/v1/sandboxes";

/// A directory with subdirectories that may be granted, and a daemon that grants directories under it.
struct Granting {
    daemon: TestDaemon,
    scratch: TempDir,
}

impl Granting {
    async fn start() -> Self {
        let scratch = tempfile::tempdir().expect("there is room");
        let root = fs::canonicalize(scratch.path()).expect("it is there");
        for name in ["data", "data/deep", "models", "state"] {
            fs::create_dir(root.join(name)).expect("there is room");
            fs::set_permissions(root.join(name), Permissions::from_mode(0o755)).expect("it is ours");
        }
        let mut policy = policy();
        policy.grants.roots = vec![root.clone()];
        policy.grants.forbidden.state = root.join("state");
        policy.grants.forbidden.audit = root.join("state/audit");
        Self { daemon: TestDaemon::with_policy(Some(policy), |_| {}).await, scratch }
    }

    fn path(&self, name: &str) -> String {
        fs::canonicalize(self.scratch.path()).expect("it is there").join(name).display().to_string()
    }

    fn mounted(&self, name: &str) -> String {
        format!("/mnt/grants{}", self.path(name))
    }

    /// Registers an agent of alice.
    async fn register(&self, id: &str, grants: &[&str]) -> TestAnswer {
        let grants: Vec<_> = grants.iter().map(|name| self.path(name)).collect();
        let body = json!({ "agent_id": id, "owner_id": "alice", "billing_account_id": "acct-1", "grants": grants });
        self.daemon.request("slu_admin", "POST", AGENTS, Some(&body)).await
    }

    async fn create(&self, id: &str) -> Value {
        let body = json!({ "task": "x", "agent_id": id });
        let answer = self.daemon.request("slu_alice", "POST", RUNS, Some(&body)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    async fn event(&self, run: &Value, event_type: &str) -> Value {
        let id = run["sandbox_id"].as_str().expect("an id");
        let events = self.daemon.get("slu_alice", &format!("{RUNS}/{id}/events?event_type={event_type}")).await.json();
        events["events"][0]["event_data"].clone()
    }
}

#[tokio::test]
async fn grants_are_checked_before_they_are_recorded() {
    let test = Granting::start().await;
    symlink(test.path("data"), test.path("link")).expect("it is ours");
    fs::create_dir(test.path("private")).expect("there is room");
    fs::set_permissions(test.path("private"), Permissions::from_mode(0o700)).expect("it is ours");
    for (grant, code, reason) in [
        ("../etc", "invalid_field", Value::Null),
        ("data/", "invalid_field", Value::Null),
        ("state", "grant_forbidden", Value::Null),
        ("state/keys", "grant_forbidden", Value::Null),
        ("link", "grant_unusable", json!("link")),
        ("link/deep", "grant_unusable", json!("link")),
        ("gone", "grant_unusable", json!("missing")),
        ("private", "grant_unusable", json!("unreadable")),
    ] {
        let answer = test.register("bot", &["data", grant]).await;
        assert_eq!(answer.error(), (422, code.to_owned()), "{grant}: {answer:?}");
        let details = &answer.json()["error"]["details"];
        assert_eq!((&details["index"], &details["reason"]), (&json!(1), &reason), "{grant}: {answer:?}");
        assert!(!answer.body.contains(&test.path("")), "no path of the host: {answer:?}");
    }
    for grant in ["/root", "/etc", "/", "/proc/1", "/mnt"] {
        let body = json!({ "agent_id": "bot", "owner_id": "alice", "grants": [grant] });
        let answer = test.daemon.request("slu_admin", "POST", AGENTS, Some(&body)).await;
        assert_eq!(answer.error(), (422, "grant_outside_roots".to_owned()), "{grant}");
    }
    let many = json!({ "agent_id": "bot", "grants": vec![test.path("data"); 17] });
    let answer = test.daemon.request("slu_admin", "POST", AGENTS, Some(&many)).await;
    assert_eq!(answer.error(), (422, "invalid_field".to_owned()));
    let own = json!({ "agent_id": "bot", "grants": [test.path("data")] });
    let answer = test.daemon.request("slu_alice", "POST", AGENTS, Some(&own)).await;
    assert_eq!(answer.error(), (403, "admin_only".to_owned()));
    assert_eq!(test.daemon.get("slu_alice", &format!("{AGENTS}/bot")).await.status, 404, "nothing was recorded");

    let granted = test.register("bot", &["models", "data"]).await;
    assert_eq!((granted.status, &granted.json()["grants"]), (201, &json!([test.path("models"), test.path("data")])));
    let log = fs::read_to_string(test.daemon.settings.state.join("audit/control.jsonl")).expect("it is there");
    assert!(log.lines().any(|line| line.contains("agent.register") && line.contains(&test.path("models"))), "{log}");
}

#[tokio::test]
async fn each_answer_of_a_run_has_its_mount_table() {
    let test = Granting::start().await;
    assert_eq!(test.register("bot", &["models", "data/deep", "data", "models"]).await.status, 201);
    let expected = json!([test.mounted("data"), test.mounted("models")]);
    let body = json!({ "task": "x", "agent_id": "bot", "name": "n" });
    let dry = test.daemon.request("slu_alice", "POST", &format!("{RUNS}?dry_run=true"), Some(&body)).await;
    assert_eq!((dry.status, &dry.json()["mount_table"]), (200, &expected), "{dry:?}");
    let key = "Idempotency-Key: k";
    let created = test.daemon.with_header("slu_alice", ("POST", RUNS), &body, key).await;
    let again = test.daemon.with_header("slu_alice", ("POST", RUNS), &body, key).await;
    assert_eq!((created.status, again.status), (201, 200));
    for answer in [&created, &again] {
        assert_eq!(answer.json()["mount_table"], expected, "{answer:?}");
    }
    let run = created.json();
    assert_eq!(test.event(&run, "sandbox.created").await["mount_paths"], expected);
    let connected = test.daemon.request("slu_alice", "POST", &format!("{RUNS}/n/connect"), None).await;
    assert_eq!((connected.status, &connected.json()["mount_table"]), (200, &expected));
    assert_eq!(test.event(&run, "sandbox.connected").await["mount_paths"], expected);
    assert_eq!(test.daemon.get("slu_alice", &format!("{RUNS}/n")).await.json()["mount_table"], expected);
    let id = run["sandbox_id"].as_str().expect("an id").parse().expect("an id");
    let stored = test.daemon.running.context.stored_request(&id).await.map_err(|error| error.code());
    let sources = stored.map(|stored| stored.mounts.sources().to_vec());
    assert_eq!(sources, Ok(vec![test.path("data"), test.path("models")]));
    assert_eq!(test.register("bot2", &[]).await.status, 201);
    let other = test.create("bot2").await;
    assert_eq!(other["mount_table"], json!([]));
}

#[tokio::test]
async fn a_grant_that_cannot_be_mounted_empties_the_table() {
    let test = Granting::start().await;
    assert_eq!(test.register("bot", &["data", "models"]).await.status, 201);
    fs::remove_dir(test.path("models")).expect("it is ours");
    symlink("/etc", test.path("models")).expect("it is ours");
    let run = test.create("bot").await;
    assert_eq!((&run["mount_table"], &run["agent"]["state"]), (&json!([]), &json!("CONNECTED")));
    assert_eq!(test.event(&run, "sandbox.created").await["mount_paths"], json!([]));
}
