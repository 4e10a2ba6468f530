//! Data for the pictures: runs in many states, with realistic texts.

use serde_json::{Value, json};
use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, Sluice, poll};

use super::git::bare_repository;

/// Model of the runs.
pub(super) const MODEL: &str = "claude-sonnet-4-5";

/// Shell code at the beginning of each program.
const BEGIN: &str = r#"
run=$(curl -sf http://localhost:8080/health | sed -n 's/.*"runId":"\([^"]*\)".*/\1/p')
event() { curl -sf --json "{\"event_type\":\"$1\",\"event_data\":$2}" "http://localhost:8080/api/v1/sandboxes/$run/events" > /dev/null; }
call() { curl -sf --retry 10 --retry-max-time 600 --json '{"model":"claude-sonnet-4-5","max_tokens":400,"messages":[{"role":"user","content":"Go on."}]}' "$OPENAI_BASE_URL/chat/completions" > /dev/null; }
says() { event agent.assistant_message "{\"text\":\"$1\"}"; }
"#;

/// Program that finds, fixes and tests a fault; then a person writes, and the agent asks.
const FIX: &str = r#"
printf 'def parse(text):\n    """Splits a text at its spaces."""\n    return text.split()[:-1]\n' > parser.py
event agent.user_message '{"text":"Fix the failing test in parser.py, and explain what was wrong."}'
call
says 'I run the tests first.'
event agent.tool_use '{"id":"t1","name":"Bash","input":{"command":"python -m pytest -q"}}'
printf 'F.  [100%%]\n'; printf '\033[31m1 failed\033[0m, 1 passed in 0.03s\n'
printf 'AssertionError: parse("a b c") is ["a", "b"]\n' >&2
event agent.tool_result '{"tool_use_id":"t1","name":"Bash","content":"1 failed, 1 passed in 0.03s","stderr":"AssertionError: parse(\"a b c\") is [\"a\", \"b\"]","is_error":true,"exit_code":1}'
call
sleep 0.7
event agent.thinking '{"text":"The slice [:-1] drops the last word. Nothing else uses it."}'
event agent.tool_use '{"id":"t2","name":"Edit","input":{"file_path":"parser.py"}}'
printf 'def parse(text):\n    """Splits a text at its spaces."""\n    return text.split()\n' > parser.py
event agent.tool_result '{"tool_use_id":"t2","name":"Edit","content":"The file is changed."}'
call
sleep 0.4
event agent.tool_use '{"id":"t3","name":"Bash","input":{"command":"python -m pytest -q"}}'
printf '..  [100%%]\n'; printf '\033[32m2 passed\033[0m in 0.02s\n'
event agent.tool_result '{"tool_use_id":"t3","name":"Bash","content":"2 passed in 0.02s","exit_code":0}'
says 'The slice [:-1] dropped the last word of each text. Without it, both tests pass.'
while [ ! -e go ]; do sleep 0.2; done
call
says 'Yes: README.md says that the last word is left out.'
curl -sf --json '{"question":"Should I update README.md too?","options":["Yes, update it","No"]}' "http://localhost:8080/api/v1/sandboxes/$run/questions" > /dev/null
sleep 600
"#;

/// Two commits on the branch of a run.
const BRANCH: &str = r#"
call
cd repo
printf 'one\ntwo\n' > text
git commit -qam 'Add the second line'
printf '# Site\n\nHow to build it.\n' > README.md
git add README.md
git commit -qm 'Describe the build'
git push -q
call
"#;

/// Returns the path of the configuration: the model with its prices, and a project with its repository.
pub(super) fn settings(sluice: &Sluice) -> String {
    let prices = json!({"data": [{"model_name": MODEL,
        "model_info": {"input_cost_per_token": 3e-6, "output_cost_per_token": 15e-6}}]});
    let prices = sluice.file("prices.json", &prices.to_string());
    let bare = bare_repository(sluice);
    sluice.file(
        "sluice.toml",
        &format!(
            "model = \"{MODEL}\"\nprices = \"{prices}\"\nsession_approval_max = 5\n\
             [[projects]]\nname = 'site'\nowners = ['root']\nrepository = '{}'\nforge = 'local'\n",
            bare.display()
        ),
    )
}

fn program(name: &str, script: &str) -> Value {
    json!({"argv": ["sh", "-c", format!("{BEGIN}{script}")], "model": MODEL, "name": name, "labels": {"team": "core"}})
}

/// Ids of the runs that the pictures open.
pub(super) struct Story {
    /// The run that asks its question.
    pub(super) asking: String,
    /// The run with a branch.
    pub(super) branch: String,
}

/// Creates the data: the budget first, then the agents and runs.
pub(super) async fn play(sluice: &Sluice, daemon: &Daemon<'_>) -> Story {
    daemon.request("PUT", "/api/v1/budgets/default", &json!({"kind": "set", "usd": "20"})).await.expect(200);
    for (agent, about) in [("reviewer", "Reviews changes"), ("releaser", "Writes release notes")] {
        let body = json!({"agent_id": agent, "name": about, "allow_sandbox": true});
        daemon.request("POST", "/api/v1/agents", &body).await.expect(201);
    }
    for (name, script) in [
        ("explain-parser", "call\ncall\nsays 'parse splits a text at its spaces.'"),
        ("update-changelog", "call\nsays 'The changelog has the new release.'"),
        ("bisect-crash", "call\ncall\nsays 'I could not find the commit.'\nexit 1"),
    ] {
        let id = daemon.create(program(name, script)).await;
        daemon.ended(&id).await;
    }
    let mut review = program("review-pr-118", "call\ncall\nsays 'Two remarks, no fault.'");
    review["agent_id"] = json!("reviewer");
    let id = daemon.create(review).await;
    daemon.ended(&id).await;
    let mut branch = program("describe-build", BRANCH);
    branch["project"] = json!("site");
    branch["repository"] = json!({"ticket": "ABC-12", "title": "Describe the build", "type": "docs"});
    let branch = daemon.create(branch).await;
    daemon.ended(&branch).await;
    let mut capped = program("translate-manual", "call\ncall\ncall\nsleep 600");
    capped["on_cap"] = json!("ask");
    capped["max_cost_usd"] = json!("0.045");
    let capped = daemon.create(capped).await;
    waits_for(daemon, &capped, "approval").await;
    let asking = asking(daemon).await;
    let mut after = program("release-notes", "call");
    after["depends_on"] = json!([asking]);
    after["agent_id"] = json!("releaser");
    daemon.create(after).await;
    // The pictures show the URL of a forge, not a directory of the test.
    sluice.sql("UPDATE git_runs SET url = 'https://forge.example/team/site.git'").await;
    let shown = "UPDATE approvals SET subject = json_set(subject, '$.url', 'https://forge.example/team/site.git') WHERE kind = 'publish'";
    sluice.sql(shown).await;
    Story { asking, branch }
}

async fn asking(daemon: &Daemon<'_>) -> String {
    let mut run = program("fix-parser", FIX);
    run["max_cost_usd"] = json!("0.25");
    let id = daemon.create(run).await;
    daemon.reaches(&id, "RUNNING").await;
    let message = json!({"content": "Does the README say anything about it?"});
    daemon.request("POST", &format!("/api/v1/sandboxes/{id}/messages"), &message).await.expect(200);
    daemon
        .request("PUT", &format!("/api/v1/sandboxes/{id}/files/workspace/go?directory=true"), &Value::Null)
        .await
        .expect(201);
    waits_for(daemon, &id, "answer").await;
    id
}

/// Waits until `waiting_for` of a run is `reason`.
async fn waits_for(daemon: &Daemon<'_>, id: &str, reason: &str) {
    let mut seen = Value::Null;
    let waits = poll(PATIENCE * 4, async || {
        seen = daemon.run(id).await;
        seen["waiting_for"] == reason
    });
    assert!(waits.await, "{seen}");
}
