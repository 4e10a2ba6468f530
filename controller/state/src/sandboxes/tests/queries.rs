//! Lists.

use super::*;

use crate::events::{CallSums, EventQuota, EventSource, NewLoggedEvent};

async fn page(daemon: &Daemon, filter: SandboxFilter, after: Option<SandboxCursor>, limit: u32) -> SandboxPage {
    daemon.store.list_sandboxes(filter, after, limit).await.expect("it is readable")
}

fn ids(page: &SandboxPage) -> Vec<&str> {
    page.sandboxes.iter().map(|sandbox| sandbox.key.run_id.as_str()).collect()
}

#[tokio::test]
async fn a_walk_returns_each_run_once() {
    let daemon = Daemon::new(&[]).await;
    for number in 0..7 {
        // Several of the same moment.
        daemon.create(daemon.ephemeral(&format!("r{number}")), number / 3).await;
    }
    for limit in [1, 2, 3, 7, 8] {
        let (mut walked, mut cursor) = (Vec::new(), None);
        loop {
            let found = page(&daemon, SandboxFilter::default(), cursor, limit).await;
            walked.extend(ids(&found).iter().map(ToString::to_string));
            assert_eq!(found.counts, BTreeMap::from([(SandboxState::Pending, 7)]));
            cursor = found.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(walked, ["r6", "r5", "r4", "r3", "r2", "r1", "r0"], "{limit}");
    }
}

#[tokio::test]
async fn filters_select_and_counts_ignore_states() {
    let daemon = Daemon::new(&["a"]).await;
    let labels = BTreeMap::from([("team".to_owned(), "x%".to_owned())]);
    daemon.create(NewSandbox { labels, name: Some("Web_1".into()), ..daemon.sandbox("r1", "a") }, 1).await;
    daemon.create(NewSandbox { owner: "p".into(), ..daemon.ephemeral("r2") }, 2).await;
    daemon.create(NewSandbox { project: Some("core".into()), ..daemon.ephemeral("r3") }, 3).await;
    daemon.step("r3", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    let found = async |filter| ids(&page(&daemon, filter, None, 9).await).join(" ");
    let all = SandboxFilter::default;
    assert_eq!(found(all()).await, "r3 r2 r1");
    assert_eq!(found(SandboxFilter { owner: Some("o".into()), ..all() }).await, "r3 r1");
    assert_eq!(found(SandboxFilter { agent_id: Some("a".into()), ..all() }).await, "r1");
    assert_eq!(found(SandboxFilter { states: vec![SandboxState::Completed], ..all() }).await, "r3");
    let label = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
    assert_eq!(found(SandboxFilter { label: label("team", "x%"), ..all() }).await, "r1");
    assert_eq!(found(SandboxFilter { label: label("team", "x"), ..all() }).await, "");
    for (text, expected) in
        [("web_", "r1"), ("WEB", "r1"), ("web%", ""), ("core", "r3"), ("TEAM=x", "r1"), ("r", "r3 r2 r1")]
    {
        assert_eq!(found(SandboxFilter { text: Some(text.into()), ..all() }).await, expected, "{text}");
    }
    let filter = SandboxFilter { states: vec![SandboxState::Pending], owner: Some("o".into()), ..all() };
    let counts = page(&daemon, filter, None, 9).await.counts;
    assert_eq!(counts, BTreeMap::from([(SandboxState::Pending, 1), (SandboxState::Completed, 1)]));
}

#[tokio::test]
async fn runs_whose_calls_wait_are_selected_and_counted() {
    let daemon = Daemon::new(&[]).await;
    for number in 1..=4 {
        daemon.create(daemon.ephemeral(&format!("r{number}")), number).await;
    }
    // r1 waits; r2 has a decision; r3 works on; r4 has an approval of an earlier attempt.
    daemon.sql(
        "INSERT INTO approvals (id, run_id, attempt, kind, cap, old_value, new_value, subject, digest, created_us, expires_us, held_us,
             decision, decided_by, decided_us)
         SELECT 'apr-' || run_id, run_id, iif(run_id = 'r4', 7, 0), 'cap', 'max_calls', 1, 2, '{}', printf('%064d', 0), 1, 9,
             iif(run_id = 'r3', NULL, 1), iif(run_id = 'r2', 'deny', NULL), iif(run_id = 'r2', 'a', NULL), iif(run_id = 'r2', 2, NULL)
         FROM sandboxes",
    );
    let waiting = SandboxFilter { awaited: Some(Awaited::Approval), ..SandboxFilter::default() };
    let found = page(&daemon, waiting.clone(), None, 9).await;
    assert_eq!((ids(&found), found.awaiting_approval), (vec!["r1"], 1));
    assert_eq!(found.counts, BTreeMap::from([(SandboxState::Pending, 4)]), "the counts are for all");
    assert_eq!(page(&daemon, SandboxFilter::default(), None, 1).await.awaiting_approval, 1);
    let other = SandboxFilter { owner: Some("p".into()), ..waiting };
    assert_eq!(page(&daemon, other, None, 9).await.awaiting_approval, 0);

    daemon.sql(
        "INSERT INTO questions (id, run_id, attempt, question, options, state, created_us, expires_us)
         VALUES ('qst-1', 'r4', 0, 'Which?', '[]', 'open', 1, 9)",
    );
    let found =
        page(&daemon, SandboxFilter { awaited: Some(Awaited::Person), ..SandboxFilter::default() }, None, 9).await;
    assert_eq!(
        (ids(&found), found.awaiting_approval, found.awaiting_person),
        (vec!["r4", "r3", "r1"], 1, 3),
        "r3 works on, and its approval is open"
    );
    daemon.step("r3", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    assert_eq!(page(&daemon, SandboxFilter::default(), None, 9).await.awaiting_person, 2, "r3 has ended");
    daemon.sql(
        "INSERT INTO approvals (id, run_id, attempt, kind, subject, digest, created_us, expires_us)
         VALUES ('apr-publish', 'r3', 0, 'publish', '{}', printf('%064d', 0), 1, 9)",
    );
    assert_eq!(page(&daemon, SandboxFilter::default(), None, 9).await.awaiting_person, 3, "its branch waits");
}

#[tokio::test]
async fn a_run_has_the_sums_of_its_calls() {
    let daemon = Daemon::new(&[]).await;
    daemon.create(daemon.ephemeral("r1"), 1).await;
    let end = |id: &str, source, data: &str| NewLoggedEvent {
        id: Some(format!("evt_{id}")),
        source,
        ..NewLoggedEvent::of_run("o", "r1", "llm.call", data.to_owned(), 1)
    };
    let (known, unknown) = (r#"{"cost":{"known":{"usd":"0.5"}}}"#, r#"{"cost":{"unknown":{}}}"#);
    let events = vec![
        end("a", EventSource::System, known),
        end("a", EventSource::System, known),
        end("b", EventSource::System, unknown),
        end("c", EventSource::Worker, known),
        end("d", EventSource::System, r#"{"cost":{"known":{"usd":"0.25"}}}"#),
    ];
    daemon.store.append_events(events, EventQuota::default()).await.expect("it is writable");
    let sums = CallSums { calls: 3, unknown_costs: 1, nano_usd: Some(750_000_000) };
    assert_eq!(daemon.find("r1").await.sums, sums, "each call once, and none that a worker claims");
    assert_eq!(page(&daemon, SandboxFilter::default(), None, 1).await.sandboxes[0].sums, sums);
}

#[tokio::test]
async fn another_owners_run_is_unknown() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(NewSandbox { request: r#"{"task":"x"}"#.into(), ..daemon.sandbox("r1", "a") }, 1).await;
    assert!(daemon.store.find_sandbox(Some("o"), &id("r1")).await.expect("it is readable").is_some());
    assert!(daemon.store.find_sandbox(Some("p"), &id("r1")).await.expect("it is readable").is_none());
    let request = daemon.store.sandbox_request(&id("r1")).await.expect("it is readable");
    assert_eq!(request.as_deref(), Some(r#"{"task":"x"}"#));
    assert_eq!(daemon.store.live_sandboxes().await.expect("it is readable").len(), 1);
}

#[tokio::test]
async fn each_run_of_a_list_has_its_cause() {
    let daemon = Daemon::new(&[]).await;
    for run_id in ["r1", "r2", "r3", "r4", "r5"] {
        daemon.create(daemon.ephemeral(run_id), 1).await;
        assert_eq!(daemon.claim(9).await.as_deref(), Some(run_id));
    }
    daemon.step("r1", SandboxStep::Decide(failed("internal"))).await;
    let generation = daemon.find("r1").await.generation;
    let next = NextAttempt { daemon: daemon.process.clone(), next_try_us: i64::MAX, reason: "internal".to_owned() };
    daemon.store.retry_sandbox(&id("r1"), generation, next, 9).await.expect("it has retries");
    let generation = daemon.find("r2").await.generation;
    daemon.store.set_desired_state(&id("r2"), generation, DesiredState::Paused).await.expect("it is live");
    daemon.sql(
        "INSERT INTO approvals (id, run_id, attempt, kind, cap, old_value, new_value, subject, digest, created_us, expires_us, held_us)
         VALUES ('apr-1', 'r3', 0, 'cap', 'max_calls', 1, 2, '{}', printf('%064d', 0), 1, 9, 1);
         INSERT INTO questions (id, run_id, attempt, question, options, state, created_us, expires_us)
         VALUES ('qst-1', 'r4', 0, 'Which?', '[]', 'open', 1, 9223372036854775807)",
    );
    daemon.step("r5", SandboxStep::Decide(SandboxVerdict::Success)).await;
    daemon.step("r5", SandboxStep::Finish).await;
    let after =
        |run_id: &str, other: &str| NewSandbox { depends_on: BTreeSet::from([id(other)]), ..daemon.ephemeral(run_id) };
    daemon.create(after("r6", "r4"), 2).await;
    daemon.create(after("r7", "r5"), 2).await;

    let found = page(&daemon, SandboxFilter::default(), None, 9).await.sandboxes;
    let causes = daemon.store.wait_causes(&found).await.expect("it is readable");

    let shown: Vec<_> = causes.iter().map(|(key, cause)| format!("{key} {}", cause.waiting_for)).collect();
    let expected = ["r1.1 retry", "r2.0 resume", "r3.0 approval", "r4.0 answer", "r6.0 dependencies", "r7.0 turn"];
    assert_eq!(shown, expected, "r5 has ended");
    let reasons: Vec<_> = causes.values().filter_map(|cause| cause.reason.as_deref()).collect();
    assert_eq!(reasons, ["internal"]);
    for sandbox in &found {
        let alone = daemon.store.wait_cause(sandbox).await.expect("it is readable");
        assert_eq!(alone.as_ref(), causes.get(&sandbox.key), "a run alone has the cause that it has in a list");
    }
}
