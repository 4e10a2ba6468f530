//! Real agents change a file of a cloned repository, commit and push; then a pull request is open at the forge, with
//! the commit that the agent made.

use serde_json::{Value, json};
use sluice_testkit::agent_provider::AgentProvider;
use sluice_testkit::{Forge, Sluice, poll};

use super::agents::SIDECAR;
use super::commands::{Agent, claude, codex};
use super::sandboxes::{LIMIT, grants_of, with_grants};

const TITLE: &str = "Add a line";
const BRANCH: &str = "feature/AB-7-add-a-line";

fn prompt(agent: &Agent) -> String {
    format!("[[task {} {}]] Do it.", agent.name, agent.options)
}

/// Checks that the forge has one commit of the run on its branch, and nothing else is new there. Returns the commit.
fn assert_published(forge: &Forge, author: &str) -> String {
    assert_eq!(forge.branches(), [BRANCH, "main"]);
    let commits = forge.git(["log", "--format=%H", &format!("main..{BRANCH}")]);
    assert!(!commits.is_empty() && !commits.contains('\n'), "one commit: {commits:?}");
    let shown = forge.git(["show", "--no-patch", "--format=%an <%ae>|%cn <%ce>|%P|%s", &commits]);
    let base = forge.git(["rev-parse", "main"]);
    assert_eq!(shown, format!("{author}|{author}|{base}|Add a line"));
    assert_eq!(forge.git(["diff", "--name-status", "main", BRANCH]), "M\ttext");
    assert_eq!(forge.git(["show", &format!("{BRANCH}:text")]), "one\ntwo\nthree\nfour");
    commits
}

/// Checks that one draft is open, with the documented title and body. Returns the body.
async fn assert_requested(forge: &Forge, run: &str, head: &str) -> String {
    let pulls = forge.pulls().await;
    let [pull] = &pulls[..] else { panic!("one pull request: {pulls:?}") };
    assert_eq!((&pull["state"], &pull["draft"], &pull["number"]), (&json!("open"), &json!(true), &json!(1)), "{pull}");
    let sides = [&pull["head"]["ref"], &pull["head"]["sha"], &pull["base"]["ref"], &pull["title"]];
    assert_eq!(sides, [BRANCH, head, "main", "[AB-7] Add a line"], "{pull}");
    let body = pull["body"].as_str().expect("it has one").to_owned();
    assert!(body.starts_with(&format!("Sluice opened this pull request for run `{run}`.\n\nAsked:\n")), "{body}");
    assert!(body.contains(&format!("Run: `{run}`  \nAudit head: `")) && !body.contains("Audit head: `-`"), "{body}");
    body
}

/// Runs an agent by `sluice run` with a repository and `--pr`.
async fn publishes(agent: &Agent) {
    let provider = AgentProvider::shared().await;
    let (sluice, forge) = (Sluice::with(provider.litellm().url(), provider.litellm().key()), Forge::start().await);
    sluice.file("sluice.toml", &forge.project("author = 'Work Bot <bot@work.test>'"));
    let url = forge.url();
    let run = sluice.run(["--json", "--memory", "1g", "--timeout", "5m", "--repo", &url, "--ticket", "AB-7"]);
    let run = run.args(["--title", TITLE, "--pr"]).args(agent.all_flags());
    // The agent has no terminal, and nothing to read.
    let live = run.args(["--", "sh", "-c", "\"$@\" </dev/null", "sh"]).args(&agent.argv).arg(prompt(agent)).spawn();
    assert!(poll(LIMIT * 2, async || !live.is_running()).await, "{} still runs: {}", agent.name, live.stderr());

    let done = live.finish().await;

    let report = done.json();
    let told = format!("{}\n{}\n{}", report.stdout, report.stderr, done.stderr);
    assert_eq!((report.verdict(), report.refused), ((true, None, 0), 0), "{told}");
    let answer = format!("task {} is done", agent.name);
    assert!(report.stdout.contains(&answer), "no answer: {told}");
    let head = assert_published(&forge, "Work Bot <bot@work.test>");
    let out = report.git.expect("it has a branch");
    assert_eq!((&out["published"], &out["head"]), (&json!(BRANCH), &json!(head)), "{out}");
    assert_eq!((&out["pushes"], &out["ahead"], &out["uncommitted"]), (&json!(1), &json!(1), &Value::Null), "{out}");
    let page = forge.url().replace("/octo/app.git", "/octo/app/pull/1");
    assert_eq!((&out["pull_request"], &out["pr_failed"]), (&json!(page), &json!(false)), "{out}");
    let body = assert_requested(&forge, &report.run_id, &head).await;
    assert!(body.contains(&answer), "the words of the agent: {body}");
    // The repository of the run stays, so assert_nothing_left() does not fit.
    assert!(sluice.containers().await.is_empty() && sluice.processes().is_empty() && sluice.runs().is_empty());
}

#[tokio::test]
async fn claude_code_opens_a_pull_request() {
    publishes(&claude("sonnet").with("publishes", "repository")).await;
}

#[tokio::test]
async fn codex_opens_a_pull_request() {
    publishes(&codex("gpt-6.1-sol", SIDECAR).with("publishes", "repository")).await;
}

/// Runs the worker of the image with an agent in a run of a daemon: the only work is what the owner's task says.
/// `start` returns the worker's arguments before the prompt from the path of the agent's program. Returns the events of
/// the run.
async fn worker_publishes(agent: &Agent, models: [&str; 2], start: impl Fn(&str) -> Vec<String>) -> Vec<Value> {
    let provider = AgentProvider::shared().await;
    let (sluice, forge) = (Sluice::with(provider.litellm().url(), provider.litellm().key()), Forge::start().await);
    let sluice = with_grants(sluice);
    let roots = std::fs::read_to_string(sluice.dir().join("sluice.toml")).expect("it was written");
    sluice.file("sluice.toml", &format!("{roots}{}", forge.project("publish = 'auto'")));
    let daemon = sluice.serve().await;
    let program = grants_of(&daemon, agent).await(&agent.argv[0]);
    let argv: Vec<_> = ["sluice-worker".to_owned()].into_iter().chain(start(&program)).collect();

    let request = json!({
        "argv": argv.into_iter().chain(["--".to_owned(), prompt(agent)]).collect::<Vec<_>>(), "agent_id": agent.name,
        "project": "work", "model": models[0], "models": models, "limits": {"memory": "1g", "timeout": "20m"},
        "repository": {"ticket": "AB-7", "title": TITLE, "pull_request": true},
    });
    let id = daemon.create(request).await;
    let run = daemon.ended(&id).await;

    let logs = daemon.get(&format!("/api/v1/sandboxes/{id}/logs")).await.expect(200).text();
    assert_eq!(run["outcome"], "success", "{run}\n{logs}\n{}", daemon.process().stderr());
    let head = assert_published(&forge, &format!("Sluice run {id} <run@sluice.invalid>"));
    let body = assert_requested(&forge, &id, &head).await;
    assert!(body.contains(&format!("task {} is done", agent.name)), "the words of the agent: {body}");
    let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json();
    assert_eq!((&branch["published_sha"], &branch["pull_request"]["number"]), (&json!(head), &json!(1)), "{branch}");
    let events = daemon.events(&id).await;
    let data = |name: &str| events.iter().find(|event| event["event_type"] == name).map(|event| &event["event_data"]);
    for kind in ["git.pushed", "git.received", "git.published", "git.pull_request", "agent.completed"] {
        assert!(data(kind).is_some(), "{kind}: {events:?}");
    }
    daemon.stop().await;
    events
}

/// The data of all events of a type.
fn data_of<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event_type"] == name).map(|event| &event["event_data"]).collect()
}

#[tokio::test]
async fn the_worker_opens_a_pull_request_with_claude_code() {
    let agent = claude("claude-sonnet-5").with("worker", "repository");
    let models = ["claude-sonnet-5", "claude-haiku-4-5-20251001"];
    let start = |program: &str| {
        let words = ["claude", "--program", program, "--dangerously-skip-permissions", "--model", models[0]];
        words.map(str::to_owned).to_vec()
    };

    let events = worker_publishes(&agent, models, start).await;

    let edited = data_of(&events, "agent.file_edited");
    assert!(edited.iter().any(|data| data["file_path"] == "/workspace/repo/text"), "{events:?}");
}

#[tokio::test]
async fn the_worker_opens_a_pull_request_with_codex() {
    let agent = codex("gpt-6.1-sol", SIDECAR).with("worker", "repository");
    let start = |program: &str| {
        let own = ["codex", "--program", program].map(str::to_owned);
        own.into_iter().chain(agent.argv[1..].iter().cloned()).collect()
    };

    let events = worker_publishes(&agent, ["gpt-6.1-sol", "gpt-5.5"], start).await;

    let commands = data_of(&events, "agent.tool_use");
    assert!(commands.iter().any(|data| data["name"] == "shell"), "{events:?}");
    let results = data_of(&events, "agent.tool_result");
    assert!(results.iter().any(|data| data["exit_code"] == 0), "{events:?}");
    let completed = data_of(&events, "agent.completed");
    assert!(completed[0]["usage"]["output_tokens"].as_u64() > Some(0), "{completed:?}");
}
