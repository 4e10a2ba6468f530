//! Work that stays on this host: workspaces with commits that did not come out, and the branch of a run that was
//! stopped.

use sluice_testkit::engine::Hold;

use super::git::{COMMIT_AND_PUSH, COMMIT_AND_WAIT, Forge, has_begun, on_repository, received};
use super::*;

/// Bug: the daemon deleted commits that were nowhere else when the bundle of them failed.
#[tokio::test]
async fn a_workspace_stays_while_its_commits_are_inside() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let commit = "cd repo && echo four >> text && git add -A && git";
    for script in [
        format!("{commit} commit -qm x && cd .. && mv repo clone && ln -s /etc repo"),
        format!("{commit} -c user.email=boss@example.org commit -qm x && cd .. && cp -r repo clone"),
    ] {
        let id = daemon.create(on_repository(&script, json!({}))).await;
        let run = daemon.ended(&id).await;

        let received = received(&daemon, &id).await;
        assert_eq!(received["is_complete"], false, "{received}\n{run}");
        let text = std::fs::read_to_string(forge.kept(&id).join("clone/text")).expect("it is kept");
        assert_eq!(text, "one\ntwo\nthree\nfour\n");
        let seen = daemon.get(&format!("/api/v1/sandboxes/{id}/files/workspace/clone/text")).await;
        assert_eq!(seen.text(), text, "its owner sees it");
    }
    assert_eq!(forge.branches(), ["main"]);
    forge.remove_kept();
}

#[tokio::test]
async fn adopted_commits_that_stay_inside_are_kept() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let script = format!("{COMMIT_AND_WAIT}; cd .. && mv repo clone");
    let id = daemon.create(on_repository(&script, json!({}))).await;
    has_begun(&forge, &id).await;

    daemon.kill().await;
    go(&forge.sluice, &id);
    let daemon = forge.sluice.serve().await;
    daemon.ended(&id).await;

    let received = received(&daemon, &id).await;
    assert_eq!(received["is_complete"], false, "{received}");
    let text = std::fs::read_to_string(forge.kept(&id).join("clone/text")).expect("it is kept");
    assert_eq!(text, "one\ntwo\nthree\nfour\nfive\n");
    forge.remove_kept();
}

#[tokio::test]
async fn kept_workspaces_of_an_owner_are_bounded() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let run = async |megabytes: u32, limit: &str| {
        let script = format!("head -c {megabytes}000000 /dev/urandom > large && mv repo clone && ln -s /etc repo");
        let mut request = on_repository(&script, json!({}));
        request["limits"] = json!({ "workspace": limit });
        let id = daemon.create(request).await;
        daemon.ended(&id).await;
        id
    };

    let ids = [run(6, "8m").await, run(6, "8m").await, run(6, "8m").await];
    assert_eq!([0, 1, 2].map(|n: usize| forge.kept(&ids[n]).exists()), [false, true, true], "two times 8 MB");
    let over = run(9, "8m").await;
    assert!(!forge.kept(&over).exists(), "it is over its own limit");
    assert_eq!([1, 2].map(|n: usize| forge.kept(&ids[n]).exists()), [true, true]);
    let small = run(0, "2m").await;
    assert!(forge.kept(&small).exists(), "it fits");
    assert_eq!([1, 2].map(|n: usize| forge.kept(&ids[n]).exists()), [true, true], "each has the limit of its own run");
    assert!(daemon.process().stderr().contains("its kept workspace: it is not kept"), "{}", daemon.process().stderr());
    forge.remove_kept();
}

/// Bug: an accepted cancellation in the teardown of a run did not keep its branch on this host.
#[tokio::test]
async fn a_run_that_is_cancelled_late_publishes_nothing() {
    let forge = Forge::new("publish = 'auto'").await;
    let engine = Hold::request("DELETE /");
    let daemon = forge.sluice.serve_with(["--docker-host", &engine.host()]).await;
    let id = daemon.create(on_repository(COMMIT_AND_PUSH, json!({}))).await;
    engine.held().await;
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    engine.release();

    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "cancelled", "{run}");
    assert_eq!(forge.branches(), ["main"]);
    assert_eq!(received(&daemon, &id).await["commits"], 1);
}
