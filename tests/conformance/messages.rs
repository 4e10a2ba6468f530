//! Unmodified agents in runs of the daemon get the operator's messages with the next call, at one place in every later
//! call, and do what the messages say. An agent does not repeat a call that an interruption ended.

use std::fs;

use serde_json::{Value, json};
use sluice_testkit::agent_provider::AgentProvider;
use sluice_testkit::controller::Daemon;
use sluice_testkit::{Sluice, Upstream};

use super::clients::{self, Client};
use super::sandboxes::{ClientRun, calls_at, requests, start, with_grants};

/// The provider does what the note says, see `tests/python/agent_provider.py`.
const TEXT: &str = "please write another word: [[note otter]]";

/// The agents with a task that waits for the file `told`: in a command of the agent's shell or, for aider, in the
/// command that tests its first edit, which fails without the word.
fn waiting_agents() -> Vec<Client> {
    let waiting = |mut client: Client| {
        let is_aider = client.agent.options.contains("edit");
        client.agent = client.agent.with("told", "waits");
        if is_aider {
            let test = "sh -c 'touch waits; until [ -e told ]; do sleep 0.1; done; grep otter sluice-*.txt'";
            client.agent =
                client.agent.after(["--map-tokens", "0", "--no-auto-commits", "--auto-test", "--test-cmd", test]);
        }
        client
    };
    clients::agents().into_iter().map(waiting).collect()
}

/// Sends the message while the agent works, and lets the agent go on once the sidecar has it. Returns the number of
/// calls that the agent had made before.
async fn tell(daemon: &Daemon<'_>, run: &ClientRun<'_>, provider: &AgentProvider) -> usize {
    run.until("the agent does not work", async || run.work().join("waits").exists()).await;
    let before = provider.requests(run.client.name()).len();
    daemon.command(["send", &run.id, TEXT]).finish().await.expect(0);
    run.until("not offered", async || run.get("messages").await["messages"][0]["status"] == "offered").await;
    fs::write(run.work().join("told"), "").expect("the run has its workspace");
    before
}

/// Fails unless a call with this number or a later one, and each call after it, holds the message once, at the same item,
/// and no earlier call holds it.
fn assert_kept(name: &str, requests: &[Value], from: usize) {
    let mut place = None;
    for (number, request) in requests.iter().enumerate() {
        let body = &request["body"];
        let items = body["input"].as_array().or(body["messages"].as_array()).cloned().unwrap_or_default();
        let found: Vec<_> = (0..items.len()).filter(|at| items[*at].to_string().contains(TEXT)).collect();
        // An agent whose command takes long makes calls while the message is on its way.
        if place.is_none() && found.is_empty() {
            continue;
        }
        assert!(number >= from, "{name}, call {number}: {found:?}");
        assert_eq!(found.len(), 1, "{name}, call {number} of {}: {found:?} of {} items", requests.len(), items.len());
        assert_eq!(*place.get_or_insert(found[0]), found[0], "{name}, call {number}");
        assert_eq!(body.to_string().matches(TEXT).count(), 1, "{name}, call {number}");
    }
    assert!(place.is_some(), "{name} made no call after the message");
}

#[tokio::test]
async fn a_message_changes_what_an_agent_does() {
    let provider = AgentProvider::shared().await;
    let sluice = with_grants(Sluice::with(provider.litellm().url(), provider.litellm().key()));
    let daemon = sluice.serve().await;
    let runs = start(&sluice, &daemon, waiting_agents(), "", &json!({})).await;
    for run in &runs {
        run.go();
    }
    let mut before = Vec::new();
    for run in &runs {
        before.push(tell(&daemon, run, provider).await);
    }

    for (run, before) in runs.iter().zip(before) {
        let (ended, said) = run.ended().await;
        let name = run.client.name();
        assert_eq!(ended["outcome"], "success", "{name}: {ended}\n{said}");
        assert!(said.contains("\nthe answer is otter\n"), "{name}: {said}");
        assert_kept(name, &provider.requests(name), before);
        assert_eq!(run.get("messages").await["messages"][0]["status"], "delivered", "{name}");
        assert_eq!(sluice.audit(&run.id).refused_reasons(), [""; 0], "{name}");
    }
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn agents_do_not_repeat_an_interrupted_call() {
    let upstream = Upstream::never().start().await;
    let sluice = with_grants(Sluice::to(&upstream));
    let daemon = sluice.serve().await;
    let runs = start(&sluice, &daemon, clients::agents(), "", &json!({})).await;
    for run in &runs {
        run.go();
    }

    for run in &runs {
        let calls = async || run.control("GET", "/state", &Value::Null).await["open_calls"] == 1;
        run.until("no call", calls).await;
        daemon.command(["interrupt", &run.id, "--message", "stop"]).finish().await.expect(0);
    }

    for run in &runs {
        let (ended, said) = run.ended().await;
        let name = run.client.name();
        let code = if run.client.fails { json!("interrupted") } else { Value::Null };
        assert_eq!(ended["failure_code"], code, "{name}: {ended}\n{said}");
        assert!(said.contains("interrupted"), "{name}: {said}");
        assert_eq!(requests(&said), 1, "{name}: {said}");
        let audit = sluice.audit(&run.id);
        assert_eq!(audit.only_call().result(), "interrupted", "{name}");
        // No record is between the two; tests/e2e/control/interrupt.rs checks the limit of one second.
        let kinds = audit.kinds();
        let interrupted = kinds.iter().rposition(|kind| *kind == "control").expect("a record of the interruption");
        assert_eq!(kinds[interrupted + 1], "outcome", "{name}: {kinds:?}");
    }
    assert_eq!(calls_at(&upstream), runs.len());
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}
