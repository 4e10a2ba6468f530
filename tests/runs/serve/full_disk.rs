//! A full disk while runs wait, begin and end: requests are refused, nothing is lost, and all goes on when there is
//! room.

use super::http::{address, get, token};
use super::*;
use crate::audit::faults::Disk;
use sluice_testkit::{PATIENCE, poll};

#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let disk = Disk::at(&sluice.state(), "96m");
    let daemon = sluice.serve().await;
    // The first ends while the disk is full, and the second waits for it.
    let script = format!("touch hold; {CALL}; while [ -e hold ]; do sleep 0.05; done; echo done");
    let first = daemon.create(shell(&script)).await;
    let second = daemon.create(json!({"argv": ["sh", "-c", CALL], "model": "m", "depends_on": [first]})).await;
    daemon.reaches(&first, "RUNNING").await;
    let hold = work(&sluice, &first).join("hold");
    assert!(poll(PATIENCE, async || hold.exists() && upstream.requests().len() == 1).await);

    let token = token(&sluice, "root", "owner", "acct-1").await;
    disk.fill();
    // The last page of a file still has room.
    let mut agents = 0;
    let refused = loop {
        let agent = json!({"agent_id": format!("agent-{agents}")});
        match daemon.request("POST", "/api/v1/agents", &agent).await {
            answer if answer.status == 201 => agents += 1,
            answer => break answer,
        }
    };
    let run = daemon.request("POST", "/api/v1/sandboxes", &shell("true")).await;
    for answer in [&refused, &run] {
        let body = answer.json();
        let is_known = ["audit_unavailable", "storage_unavailable"].iter().any(|word| body["error"]["code"] == *word);
        assert!(answer.status == 503 && is_known, "{}", answer.text());
    }
    // What is there is still shown, also to a token whose use cannot be recorded.
    let path = format!("/api/v1/sandboxes/{first}");
    assert_eq!(daemon.run(&first).await["state"], "RUNNING");
    assert_eq!(get(&address(&daemon), &token, &path).await.status, 200);
    std::fs::remove_file(&hold).expect("the run has its workspace");
    sluice.container_event("die", 1).await;
    assert!(!["FAILED", "COMPLETED"].contains(&daemon.run(&first).await["state"].as_str().expect("a state")));

    disk.free();
    let ended = daemon.ended(&first).await;
    let next = daemon.ended(&second).await;
    assert_eq!((&ended["outcome"], &next["outcome"]), (&json!("success"), &json!("success")), "{ended} {next}");
    let listed = daemon.get("/api/v1/agents?limit=500").await.expect(200).json();
    assert_eq!(listed["agents"].as_array().map(Vec::len), Some(agents), "what was answered with 201 is there");
    let created = daemon.create(shell("true")).await;
    daemon.reaches(&created, "COMPLETED").await;
    for (id, calls) in [(&first, 1), (&second, 1)] {
        let events = daemon.events(id).await;
        let count = |kind: &str| events.iter().filter(|event| event["event_type"] == kind).count();
        assert_eq!((count("llm.call_started"), count("llm.call")), (calls, calls), "{events:?}");
        let receipts = daemon.get(&format!("/api/v1/sandboxes/{id}/receipts")).await.expect(200).json();
        assert_eq!(receipts["receipts"].as_array().map(Vec::len), Some(calls), "{receipts}");
    }
    sluice.command(["audit", "verify", "control"]).finish().await.expect(0);
    daemon.stop().await;
}
