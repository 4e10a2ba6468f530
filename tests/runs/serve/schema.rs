//! The API keeps its OpenAPI document: schemathesis sends what the document allows, and what it does not.
//!
//! `SLUICE_SCHEMA_SECONDS` sets its time; with more than the default, the requests differ each time.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sluice_testkit::{PATIENCE, poll};
use tokio::process::Command;
use tokio::time::timeout;

use super::http::{address, send, token};
use super::*;

const SECONDS: u64 = 40;
const PROGRAM: &str = "from schemathesis.cli import schemathesis; schemathesis()";

fn python() -> PathBuf {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/venv/bin/python");
    assert!(python.exists(), "the Python environment of the tests is missing: run tests/setup/venv.sh");
    python
}

/// Returns the configuration of schemathesis: half of the ids belong to existing objects. The first table that matches
/// an operation counts.
fn configuration(run: &str) -> String {
    format!(
        r#"
rate-limit = "40/s"
request-timeout = 30
max-stream-events = 3
[cache]
enabled = false
[warnings]
display = []
[generation]
database = "none"
[dictionaries.runs]
values = ["{run}", "known"]
[dictionaries.agents]
values = ["bot"]
[dictionaries.accounts]
values = ["acct-1"]
[parameters]
"path.account" = {{ dictionary = "accounts", probability = 0.5 }}
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 402, 403, 404, 409, 410, 422, 429]
[[operations]]
include-path-regex = "^/(v1|ai|api/v1/ai)/"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", 400, 401, 402, 403, 404, 409, 410, 429]
[[operations]]
include-path = "/api/v1/sandboxes/{{id}}/wait"
[operations.parameters]
"query.timeout" = "100ms"
"path.id" = {{ dictionary = "runs", probability = 0.5 }}
[[operations]]
include-path-regex = "^/api/v1/sandboxes/"
[operations.parameters]
"path.id" = {{ dictionary = "runs", probability = 0.5 }}
[[operations]]
include-path-regex = "^/api/v1/agents/"
[operations.parameters]
"path.id" = {{ dictionary = "agents", probability = 0.5 }}
"#
    )
}

async fn check(sluice: &Sluice, address: &str, token: &str, seconds: u64) -> String {
    let mut command = Command::new(python());
    command.args(["-c", PROGRAM, "--config-file", "schemathesis.toml", "run", "--no-color"]);
    command.args(["--max-time", &seconds.to_string(), "--header", &format!("Authorization: Bearer {token}")]);
    if seconds <= SECONDS {
        command.args(["--seed", "17"]);
    }
    command.arg(format!("http://{address}/api/openapi.json")).current_dir(sluice.dir()).env_clear();
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path))).env("HOME", sluice.dir());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    // At the end of its time, schemathesis finishes the part that is under way.
    let output =
        timeout(Duration::from_secs(seconds * 4 + 240), output).await.expect("it keeps its time").expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test]
async fn answers_keep_the_document() {
    let seconds = std::env::var("SLUICE_SCHEMA_SECONDS").map_or(SECONDS, |text| text.parse().expect("a number"));
    // Without an upstream, no program starts: each attempt fails, and removes its container.
    let nowhere = ClosedPort::new();
    let sluice = Sluice::with(&nowhere.url(), "sk-some-key");
    let daemon = sluice.serve().await;
    let owner = token(&sluice, "alice", "owner", "acct-1").await;
    let admin = token(&sluice, "alice", "admin", "acct-1").await;
    let address = address(&daemon);
    let known = json!({"argv": ["true"], "model": "m", "name": "known"});
    assert_eq!(send(&address, &owner, "POST", "/api/v1/sandboxes", &known).await.status, 201);
    assert_eq!(send(&address, &owner, "POST", "/api/v1/agents", &json!({"agent_id": "bot"})).await.status, 201);
    let ended = daemon.create(json!({"argv": ["true"], "model": "m", "owner_id": "alice", "depends_on": []})).await;
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{ended}"), &Value::Null).await;
    daemon.reaches(&ended, "COMPLETED").await;
    sluice.file("schemathesis.toml", &configuration(&ended));

    let (of_owner, of_admin) =
        tokio::join!(check(&sluice, &address, &owner, seconds), check(&sluice, &address, &admin, seconds));

    for said in [of_owner, of_admin] {
        let (before, _) = said.split_once(" generated, ").expect("it says how many");
        let count = before.rsplit(' ').next().and_then(|count| count.parse().ok());
        // A loaded machine makes fewer requests. Each operation has some.
        assert!(count.is_some_and(|count: u32| count > 100), "{said}");
    }
    let is_gone = poll(PATIENCE, async || sluice.containers().await.is_empty());
    assert!(is_gone.await, "containers of failed attempts stay");
    let log = daemon.process().stderr();
    assert!(!log.contains("internal error") && !log.contains("panicked"), "{log}");
    daemon.stop().await;
}
