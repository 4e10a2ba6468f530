//! The control socket of a daemon run: the daemon's alone, before and after a restart of the daemon.

use std::os::unix::fs::MetadataExt;

use sluice_testkit::RawClient;

use super::*;

#[tokio::test]
async fn the_control_socket_outlives_the_daemon() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    // Nothing in the sandbox leads to it: no file of that name, and no path of the call socket.
    let script = format!(
        "find / -xdev -name 'control.sock' 2> /dev/null; {CALL}; curl -s -o /dev/null -w '%{{http_code}}\\n' \
         http://localhost:8080/state; while [ ! -e go ]; do sleep 0.05; done"
    );
    let mut request = shell(&script);
    request["limits"] = json!({"max_calls": 1});
    let id = daemon.create(request).await;
    daemon.reaches(&id, "RUNNING").await;
    let first = daemon.logged(&id, 1).await;
    assert_eq!(first[0]["text"], "404\n", "{first:?}");
    let conf = sluice.state().join("runs").join(format!("{id}.0")).join("conf");
    let socket = conf.join("control.sock");
    let mode = std::fs::metadata(&socket).expect("a sidecar with a control socket").mode() & 0o777;
    assert_eq!(mode, 0o600);

    daemon.kill().await;
    let raise = json!({"by": "alice", "reason": "a test", "max_calls": 5});
    let raised = RawClient::connect(&socket).await.post_json("/caps", raise).await.expect(200).json();
    assert_eq!((&raised["caps"]["max_calls"], &raised["used"]["calls"]), (&json!(5), &json!(1)));
    let daemon = sluice.serve().await;
    let state = RawClient::connect(&socket).await.get("/state").await.expect(200).json();
    assert_eq!(state["caps"]["max_calls"], 5);

    std::fs::write(conf.with_file_name("work").join("go"), "").expect("the run has its workspace");
    daemon.reaches(&id, "COMPLETED").await;
    assert_eq!(sluice.audit(&id).kinds(), ["open", "intent", "outcome", "refused", "control", "close"]);
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}
