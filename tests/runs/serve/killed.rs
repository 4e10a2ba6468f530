//! A daemon that is killed, and the one that comes after it.

use super::*;

#[tokio::test]
async fn runs_go_on_while_the_daemon_is_dead() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL}; touch begun; while [ ! -e go ]; do sleep 0.05; done; {CALL}; {CALL}; echo done");
    let id = daemon.create(shell(&script)).await;
    daemon.reaches(&id, "RUNNING").await;
    let container = sluice.containers().await;
    let sidecar = sluice.processes();

    daemon.kill().await;
    // Neither a one-shot run nor a sweep touches it.
    sluice.run(["--quiet", "--", "true"]).finish().await.expect(0);
    sluice.command(["sweep"]).finish().await.expect(0);
    assert_eq!((sluice.containers().await, sluice.processes()), (container.clone(), sidecar.clone()));
    go(&sluice, &id);

    let daemon = sluice.serve().await;
    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
    let events = daemon.events(&id).await;
    let calls: Vec<_> = events
        .iter()
        .filter_map(|event| event["event_type"].as_str())
        .filter(|name| name.starts_with("llm."))
        .collect();
    assert_eq!(calls, ["llm.call_started", "llm.call"].repeat(3), "each call is there once");
    assert_eq!(states(&events), ["CREATING", "RUNNING", "COMPLETING", "COMPLETED"]);
    assert_eq!(upstream.requests().len(), 3);
    assert_eq!(sluice.containers().await, [""; 0]);
}

#[tokio::test]
async fn a_daemon_killed_at_any_moment_loses_no_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let mut ids = Vec::new();
    for round in 0..4 {
        let daemon = sluice.serve().await;
        ids.push(daemon.create(shell("exit 0")).await);
        ids.push(daemon.create(shell("sleep 0.2")).await);
        // The kill comes at another step of the two runs in each round.
        for _ in 0..round * 4 {
            daemon.get("/api/v1/sandboxes?limit=5").await.expect(200);
        }
        daemon.kill().await;
    }
    let daemon = sluice.serve().await;
    for id in &ids {
        // Attempts that were killed while they were created are made again.
        let run = daemon.ended(id).await;
        assert_eq!(run["outcome"], "success", "{run}");
    }
    // The sweep removes what a daemon had only begun to remove when it was killed.
    sluice.command(["sweep"]).finish().await.expect(0);
    assert_eq!(sluice.containers().await, [""; 0]);
    assert!(sluice.processes().is_empty());
    assert!(sluice.runs().iter().all(|path| path.to_string_lossy().contains(".removed")), "{:?}", sluice.runs());
}

#[tokio::test]
async fn a_daemon_switched_off_still_ends_its_runs() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell("sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    daemon.stop().await;

    let daemon = sluice.serve_switched_off().await;
    daemon.request("POST", "/api/v1/sandboxes", &shell("true")).await.expect(503);
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!(run["outcome"], "cancelled", "{run}");
    assert_eq!(sluice.containers().await, [""; 0]);
}

#[tokio::test]
async fn a_sweep_ends_the_runs_of_a_dead_daemon() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let running = daemon.create(shell("sleep 600")).await;
    let waiting =
        daemon.create(json!({"argv": ["true"], "model": "m", "depends_on": [running], "env": {"A": "1"}})).await;
    daemon.reaches(&running, "RUNNING").await;
    daemon.kill().await;
    sluice.command(["sweep", "--daemon-runs"]).finish().await.expect(0);
    assert_eq!(sluice.containers().await, [""; 0]);

    let daemon = sluice.serve().await;
    let next = daemon.create(shell("true")).await;
    assert_eq!(daemon.reaches(&next, "COMPLETED").await["outcome"], "success");
    for id in [running, waiting] {
        let run = daemon.run(&id).await;
        assert_eq!((&run["outcome"], &run["attempt"]), (&json!("cancelled"), &json!(0)), "{run}");
    }
}
