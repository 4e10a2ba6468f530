//! Runs that go on from an earlier one: its transcript and its kept workspace, in real sandboxes.

use super::*;

/// Script of the first run, which leaves files also when it is cancelled.
const WORK: &str = "mkdir -p .sluice src; echo '{\"n\":1}' > .sluice/transcript.jsonl; echo mine > src/a; \
                    printf '#!/bin/sh\\necho ran\\n' > src/run; chmod 750 src/run; ln -s /etc/passwd link; mkfifo fifo; \
                    git init -q repo 2> /dev/null || mkdir repo; touch ready; sleep 600";

#[tokio::test]
async fn a_kept_workspace_comes_back() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let mut request = shell(WORK);
    request["keep_workspace"] = json!(true);
    let id = daemon.create(request).await;
    let work = sluice.state().join("runs").join(format!("{id}.0")).join("work");
    assert!(poll(PATIENCE, async || work.join("ready").exists()).await);
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    daemon.ended(&id).await;
    let file = daemon.get(&format!("/api/v1/sandboxes/{id}/files/workspace/src/a")).await.expect(200);
    assert_eq!(file.text(), "mine\n", "a kept workspace is read after the end");

    let script = "cat src/a .sluice/transcript.jsonl && src/run && readlink link && echo more >> src/a && ls repo -d && \
                  [ ! -e fifo ] && [ ! -L .sluice ] && stat -c %a src/run";
    let next = json!({"argv": ["sh", "-c", script], "model": "m", "resume_from": id, "keep_workspace": true});
    let next = daemon.create(next).await;
    let ended = daemon.ended(&next).await;
    assert_eq!(ended["outcome"], "success", "{ended}\n{}", daemon.process().stderr());
    let printed = sluice.command(["logs", &next]).finish().await.expect(0);
    assert_eq!(printed.stdout, "mine\n{\"n\":1}\nran\n/etc/passwd\nrepo\n750\n");

    // The third run goes on from the second one, and the first one has not changed.
    let last = json!({"argv": ["cat", "src/a"], "model": "m", "resume_from": next});
    let last = daemon.create(last).await;
    daemon.ended(&last).await;
    let printed = sluice.command(["logs", &last]).finish().await.expect(0);
    assert_eq!(printed.stdout, "mine\nmore\n");
    let file = daemon.get(&format!("/api/v1/sandboxes/{id}/files/workspace/src/a")).await.expect(200);
    assert_eq!(file.text(), "mine\n");
    daemon.get(&format!("/api/v1/sandboxes/{last}/files/workspace/src/a")).await.expect(410);
    daemon.stop().await;
    std::fs::remove_dir_all(sluice.state().join("kept")).expect("we are root");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_detached_run_keeps_its_workspace() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let words = ["run", "-d", "--keep-workspace", "--model", "m", "--", "sh", "-c", "echo mine > a"];
    let id = daemon.command(words).finish().await.expect(0).stdout.trim().to_owned();
    daemon.ended(&id).await;
    let kept = sluice.state().join("kept").join(format!("{id}.0")).join("a");
    assert_eq!(std::fs::read_to_string(kept).expect("it is kept"), "mine\n");
}
