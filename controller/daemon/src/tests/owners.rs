//! Objects of another owner answer as if they never existed: each operation of the document with each kind of id.
//!
//! New operations are found automatically. Their paths, and query parameters that look like an id, must be of a listed
//! kind.

use serde_json::{Value, json};
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};

use super::document::{Documented, operations};
use super::stream_client::{Client, append};
use crate::test_daemon::{TestAnswer, TestDaemon, policy};

/// An id that no run has.
const NEVER: &str = "r_00000000000000000000";

/// Objects of alice, and of bob.
struct Objects {
    daemon: TestDaemon,
    /// Run of alice with the name `mine`, of her agent `bot`.
    mine: String,
    /// Run of bob, of his agent `own`.
    own: String,
    /// An event of alice's run.
    event_id: String,
    seq: i64,
    /// A login code of alice.
    login_id: String,
}

impl Objects {
    async fn new() -> Self {
        let daemon = TestDaemon::with_policy(Some(policy()), |settings| {
            settings.limits.requests_per_second = 10_000;
            settings.limits.request_burst = 10_000;
        })
        .await;
        for (token, agent) in [("slu_alice", "bot"), ("slu_bob", "own")] {
            let agent = json!({ "agent_id": agent });
            assert_eq!(daemon.request(token, "POST", "/api/v1/agents", Some(&agent)).await.status, 201);
        }
        let own = daemon.create("slu_bob", json!({ "task": "x", "agent_id": "own" })).await;
        let mine = daemon.create("slu_alice", json!({ "task": "x", "agent_id": "bot", "name": "mine" })).await;
        let seq = append(&daemon, "alice", &mine, "agent.progress", &json!({})).await;
        let events = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{mine}/events")).await.json();
        let event_id = events["events"][0]["id"].as_str().expect("an id").to_owned();
        let login = daemon.request("slu_alice", "POST", "/api/v1/login-codes", Some(&json!({}))).await.json();
        let login_id = login["login_id"].as_str().expect("an id").to_owned();
        Self { daemon, mine, own, event_id, seq, login_id }
    }

    /// Returns pairs for the first parameter of a path: an id of alice's object, and an id that never existed.
    fn of_path(&self, collection: &str) -> Option<Vec<(String, String)>> {
        let pairs = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(one, other)| ((*one).to_owned(), (*other).to_owned())).collect())
        };
        match collection {
            "sandboxes" => pairs(&[
                (&self.mine, NEVER),
                ("mine", "never"),
                ("alice%2Fmine", "alice%2Fnever"),
                (&self.mine, "x%20y"),
            ]),
            "runs" => pairs(&[(&self.mine, NEVER), ("mine", "never")]),
            "agents" => pairs(&[("bot", "never"), ("alice%2Fbot", "alice%2Fnever"), ("alice%2Fbot", "carol%2Fbot")]),
            "budgets" => pairs(&[("acct-1", "acct-9")]),
            "login-codes" => pairs(&[(&self.login_id, "00000000000000000000000000000000")]),
            _ => None,
        }
    }

    /// Returns such pairs for a member of a query.
    fn of_query(&self, name: &str, schema: &Value) -> Option<Vec<(String, String)>> {
        let is_number = schema.to_string().contains("integer");
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        Some(match name {
            "account" => vec![pair("acct-1", "acct-9")],
            "agent" | "agent_id" => vec![pair("bot", "never"), pair("alice%2Fbot", "alice%2Fnever")],
            "sandbox" | "sandbox_id" | "run_id" => {
                vec![pair(&self.mine, NEVER), pair("mine", "never"), pair("alice%2Fmine", "alice%2Fnever")]
            }
            "owner" | "owner_id" => vec![pair("alice", "carol")],
            // The name that a client uses for its own user.
            "user_id" => vec![pair("ann", "nobody")],
            "q" => vec![pair("mine", "never")],
            // Both positions are after bob's objects.
            "cursor" | "after" if is_number => vec![pair(&self.seq.to_string(), "1000000")],
            "cursor" | "after" => {
                vec![pair(&format!("1.{}", self.mine), &format!("1.{NEVER}")), pair("alice/bot", "alice/never")]
            }
            _ => return None,
        })
    }

    /// Returns the values of a path with bob's own objects; `None` if a path has none.
    fn own(&self, operation: &Documented) -> Option<Vec<String>> {
        let value = |(collection, name): (&str, &str)| match collection {
            "sandboxes" | "runs" => Some(self.own.clone()),
            "agents" => Some("own".to_owned()),
            "budgets" | "login-codes" => None,
            _ => Some(of_run(name).to_owned()),
        };
        operation.parameters().into_iter().map(value).collect()
    }

    /// Returns the answer to bob: its status, its head without the date, and its body or the first frame of its stream.
    async fn to_bob(&self, operation: &Documented, path: &str) -> (u16, Vec<String>, String) {
        if operation.is_stream {
            let mut client = Client::open(&self.daemon, "slu_bob", path, "").await;
            let status = client.status().await;
            if status == 200 {
                return (status, Vec::new(), client.frame().await.expect("a snapshot").data.to_string());
            }
        }
        let answer = self.daemon.request("slu_bob", &operation.method, path, operation.body.as_ref()).await;
        (answer.status, head(&answer), answer.body)
    }
}

/// Returns a value for a parameter after the run's: it names a part of that run.
fn of_run(name: &str) -> &'static str {
    match name {
        "event_id" | "name" | "path" | "exec_id" | "message_id" | "approval_id" | "question_id" => "x",
        _ => panic!("the kind of {{{name}}} is not known here: say how another owner's one is made"),
    }
}

fn head(answer: &TestAnswer) -> Vec<String> {
    answer.head.lines().filter(|line| !line.starts_with("date:")).map(str::to_owned).collect()
}

/// Returns true if a name looks like the name of an id.
fn is_id(name: &str) -> bool {
    name.ends_with("_id") || ["id", "account", "owner", "agent", "sandbox", "run", "cursor", "after"].contains(&name)
}

#[tokio::test]
async fn foreign_objects_in_paths_never_existed() {
    let objects = Objects::new().await;
    let mut seen = 0;
    for operation in operations() {
        let parameters = operation.parameters();
        let Some((&(collection, name), inner)) = parameters.split_first() else { continue };
        let pairs = objects.of_path(collection);
        let pairs = pairs.unwrap_or_else(|| panic!("{}: the kind of {{{name}}} is not known here", operation.path));
        for (foreign, missing) in pairs {
            let inner: Vec<_> = inner.iter().map(|(_, name)| of_run(name)).collect();
            let at = |first: &str| operation.at(&[&[first][..], &inner].concat());
            let foreign = objects.to_bob(&operation, &at(&foreign)).await;
            let missing = objects.to_bob(&operation, &at(&missing)).await;
            let shown = format!("{} {}", operation.method, at("…"));
            assert_eq!(foreign, missing, "{shown}");
            let is_refused = foreign.0 == 404 || (foreign.0 == 403 && foreign.2.contains("admin_only"));
            assert!(is_refused, "{shown}: {foreign:?}");
            seen += 1;
        }
    }
    assert!(seen >= 40, "{seen}");
    // The objects are unchanged.
    let mine = objects.daemon.get("slu_alice", "/api/v1/sandboxes/mine").await.json();
    assert_eq!((&mine["state"], &mine["generation"]), (&json!("PENDING"), &json!(0)));
    let bot = objects.daemon.get("slu_alice", "/api/v1/agents/bot").await.json();
    assert_eq!((&bot["state"], &bot["last_heartbeat"]), (&json!("CONNECTED"), &Value::Null));
}

#[tokio::test]
async fn foreign_ids_in_queries_never_existed() {
    let objects = Objects::new().await;
    let mut seen = 0;
    for operation in operations().iter().filter(|operation| operation.method == "GET") {
        let Some(own) = objects.own(operation) else { continue };
        let path = operation.at(&own.iter().map(String::as_str).collect::<Vec<_>>());
        for (name, schema) in &operation.query {
            let Some(pairs) = objects.of_query(name, schema) else {
                assert!(!is_id(name), "{path}: the kind of {name} is not known here");
                continue;
            };
            for (foreign, missing) in pairs {
                let foreign = objects.to_bob(operation, &format!("{path}?{name}={foreign}")).await;
                let missing = objects.to_bob(operation, &format!("{path}?{name}={missing}")).await;
                assert_eq!(foreign, missing, "{path} {name}");
                assert!(foreign.0 < 500, "{path} {name}: {foreign:?}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 20, "{seen}");
}

#[tokio::test]
async fn parts_of_foreign_runs_never_existed() {
    let objects = Objects::new().await;
    let mut seen = 0;
    for operation in operations().iter().filter(|one| one.parameters().iter().any(|(_, name)| *name == "event_id")) {
        let at = |event: &str| operation.at(&[&objects.own, event]);
        let foreign = objects.to_bob(operation, &at(&objects.event_id)).await;
        assert_eq!(foreign, objects.to_bob(operation, &at("evt_never")).await);
        assert_eq!(foreign.0, 404, "{foreign:?}");
        seen += 1;
    }
    assert!(seen > 0);
}

#[tokio::test]
async fn foreign_ids_in_bodies_never_existed() {
    let Objects { daemon, mine, .. } = Objects::new().await;
    let path = "/api/v1/sandboxes";
    for (field, foreign, missing, status) in [
        ("depends_on", json!([mine]), json!([NEVER]), 422),
        ("agent_id", json!("bot"), json!("never"), 404),
        ("agent_id", json!("alice/bot"), json!("alice/never"), 404),
    ] {
        for query in ["", "?dry_run=true"] {
            let send = async |id: &Value| {
                let body = json!({ "task": "x", field: id });
                daemon.request("slu_bob", "POST", &format!("{path}{query}"), Some(&body)).await
            };
            let (foreign, missing) = (send(&foreign).await, send(&missing).await);
            assert_eq!((foreign.status, &foreign.body), (status, &missing.body), "{field}");
            assert_eq!(head(&foreign), head(&missing), "{field}");
        }
    }
}

#[tokio::test]
async fn a_key_of_another_token_is_new() {
    let daemon = TestDaemon::with_runs().await;
    let body = json!({ "task": "x" });
    let key = "Idempotency-Key: the-same";
    let send =
        async |token: &str, key: &str| daemon.with_header(token, ("POST", "/api/v1/sandboxes"), &body, key).await;
    let first = send("slu_alice", key).await;
    let foreign = send("slu_bob", key).await;
    let fresh = send("slu_bob", "Idempotency-Key: another").await;
    let id = |answer: &TestAnswer| answer.json()["sandbox_id"].as_str().expect("an id").to_owned();
    let without =
        |answer: &TestAnswer| (answer.status, format!("{:?}{}", head(answer), answer.body).replace(&id(answer), "ID"));
    assert_eq!(without(&foreign), without(&fresh));
    assert_ne!(id(&first), id(&foreign));
    let again = send("slu_alice", key).await;
    assert_eq!((again.status, id(&again)), (200, id(&first)));
    daemon
        .store()
        .revoke_token(daemon.token_id("slu_alice"), sluice_state::store::now_us())
        .await
        .expect("it is there");
    assert_eq!(send("slu_alice", key).await.status, 401);
}

#[tokio::test]
async fn a_key_sent_at_once_creates_one_run() {
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| {
        settings.limits.connections_per_address = 200;
        settings.limits.request_burst = 200;
    })
    .await;
    let body = json!({ "task": "x" });
    let key = "Idempotency-Key: once";
    let sends = (0..100).map(|_| daemon.with_header("slu_alice", ("POST", "/api/v1/sandboxes"), &body, key));
    let answers = futures_util::future::join_all(sends).await;
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(201), count(201) + count(200) + count(409)), (1, 100), "{answers:?}");
    let listed = daemon.get("slu_alice", "/api/v1/sandboxes").await.json();
    assert_eq!(listed["sandboxes"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn owners_of_one_account_see_their_own_runs() {
    let daemon = TestDaemon::with_runs().await;
    let budget = json!({ "kind": "set", "usd": "5" });
    assert_eq!(daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&budget)).await.status, 200);
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for path in ["/api/v1/budgets", "/api/v1/usage", "/api/v1/receipts"] {
        let own = daemon.get("slu_alice", path).await;
        let other = daemon.get("slu_eve", path).await;
        assert_eq!((own.status, other.status), (200, 200), "{path}");
        assert_eq!(own.body.contains(&id), !path.ends_with("receipts"), "{}", own.body);
        assert!(!other.body.contains(&id), "{}", other.body);
    }
    let shared = daemon.get("slu_eve", "/api/v1/budgets").await.json();
    assert_eq!((&shared["budgets"][0]["held_usd"], &shared["budgets"][0]["holds"]), (&json!("1"), &json!([])));
}

#[tokio::test]
async fn a_retry_spends_from_an_account_of_its_token() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("/api/v1/sandboxes/{id}");
    let failed = SandboxStep::Drop(SandboxVerdict::Failed { code: "internal".to_owned(), message: None });
    daemon.step(&id, failed).await;
    let answer = daemon.request("slu_alice2", "POST", &format!("{path}/retry"), None).await;
    assert_eq!(answer.error(), (403, "account_not_allowed".to_owned()));
    assert_eq!(daemon.request("slu_alice", "POST", &format!("{path}/retry"), None).await.status, 200);
}
