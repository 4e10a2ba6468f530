//! The clock of the deadline: it is stopped and started again, and the deadline moves.

use sluice_testkit::{PATIENCE, poll};

use super::*;

#[tokio::test]
async fn a_stopped_clock_outlives_the_deadline() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--deadline", "20", "--audit-sync", "off"]).start().await;
    let stopped = change(&sidecar, "/clock", json!({"stopped": true})).await.expect(200).json();
    assert_eq!(stopped["deadline"]["stopped"], true);

    let stood = poll(PATIENCE, async || state(&sidecar).await["deadline"]["stopped_s"].as_u64() >= Some(21)).await;
    assert!(stood, "the clock stands still for longer than the deadline");
    sidecar.post(CHAT, call()).await.expect(200);
    change(&sidecar, "/clock", json!({"stopped": true})).await.expect(200);
    change(&sidecar, "/clock", json!({"stopped": false})).await.expect(200);

    assert_eq!(sidecar.wait().await.code, Some(0));
    let audit = sidecar.audit();
    assert_eq!(audit.kinds(), ["open", "control", "intent", "outcome", "control", "close"]);
    assert_eq!(audit.close()["reason"], "deadline");
}

#[tokio::test]
async fn a_raised_deadline_moves_the_end() {
    let upstream = Upstream::provider("hello").start().await;
    let began = std::time::Instant::now();
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--deadline", "20", "--audit-sync", "off"]).start().await;
    change(&sidecar, "/caps", json!({"deadline_s": 24})).await.expect(200);

    assert_eq!(sidecar.wait().await.code, Some(0));
    assert!(began.elapsed().as_secs_f64() > 23.0, "{:?}", began.elapsed());
    assert_eq!(sidecar.audit().close()["reason"], "deadline");
}

#[tokio::test]
async fn a_run_without_a_deadline_has_no_clock() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    for (path, body) in [("/clock", json!({"stopped": true})), ("/caps", json!({"deadline_s": 9}))] {
        assert_eq!(refused(&change(&sidecar, path, body).await), (409, "not_limited".to_owned()), "{path}");
    }
}
