//! Lists.

use super::*;

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
    for (text, expected) in [("web_", "r1"), ("WEB", "r1"), ("web%", ""), ("core", "r3"), ("r", "r3 r2 r1")] {
        assert_eq!(found(SandboxFilter { text: Some(text.into()), ..all() }).await, expected, "{text}");
    }
    let filter = SandboxFilter { states: vec![SandboxState::Pending], owner: Some("o".into()), ..all() };
    let counts = page(&daemon, filter, None, 9).await.counts;
    assert_eq!(counts, BTreeMap::from([(SandboxState::Pending, 1), (SandboxState::Completed, 1)]));
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
