//! Foreign objects: live runs of other controllers, foreign containers, a newer build's database.

use sluice_testkit::controller::unique_run_id;
use sluice_testkit::engine::{self, Hold};
use sluice_testkit::{Sluice, Upstream};

use super::{UNTIL_GO, go, killed_at};

/// A foreign container; removed at the end.
struct Foreign(String);

impl Foreign {
    async fn named(name: &str, labels: &[&str]) -> Self {
        let labels = labels.iter().flat_map(|label| ["--label", label]);
        let words = ["run", "--detach", "--network", "none", "--name", name].into_iter().chain(labels);
        engine::lines(words.chain(["--entrypoint", "sleep", "sluice-runtime:latest", "600"])).await;
        Self(name.to_owned())
    }

    async fn is_running(&self) -> bool {
        engine::exists(&self.0).await && engine::inspect(&self.0).await["State"]["Running"] == true
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = std::process::Command::new("timeout").args(["30", "docker", "rm", "--force", &self.0]).output();
    }
}

#[tokio::test]
async fn a_live_run_of_another_process_is_not_swept() {
    let upstream = Upstream::never().start().await;
    for moment in ["/containers/create", "/start", "DELETE /"] {
        for hold in [Hold::request(moment), Hold::answer(moment)] {
            let sluice = Sluice::to(&upstream);
            let live = sluice.run(["--json"]).args(UNTIL_GO).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
            if moment.starts_with("DELETE") {
                sluice.started().await;
                go(&sluice);
            }
            hold.held().await;

            let swept = sluice.command(["sweep"]).finish().await.expect(0);
            sluice.run(["-q", "--", "true"]).finish().await.expect(0);

            assert_eq!(swept.stdout, "nothing is left over\n", "{moment}");
            if !moment.starts_with("DELETE") {
                go(&sluice);
            }
            hold.release();
            assert_eq!(live.finish().await.expect(0).json().verdict(), (true, None, 0), "{moment}");
            sluice.assert_nothing_left().await;
        }
    }
}

#[tokio::test]
async fn containers_of_others_are_not_touched() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run_id = killed_at(&sluice, &Hold::answer("/start"), &["--", "sleep", "600"]).await;
    let run = format!("sluice.run={run_id}");
    let other = "sluice.instance=00000000000000000000000000000000";
    let foreign = [
        Foreign::named(&unique_run_id("sluice-foreign"), &[]).await,
        Foreign::named(&format!("sluice-{run_id}.1"), &[]).await,
        Foreign::named(&unique_run_id("sluice-foreign"), &[other, &run, "sluice.attempt=0", "sluice.role=sandbox"])
            .await,
        Foreign::named(&unique_run_id("sluice-foreign"), &["sluice.instance", &run, "sluice.attempt=0"]).await,
    ];

    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);

    for foreign in &foreign {
        assert!(foreign.is_running().await, "{} was touched", foreign.0);
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_foreign_container_name_is_reported_and_kept() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run_id = unique_run_id("taken");
    let name = format!("sluice-{run_id}.0");
    let foreign = Foreign::named(&name, &[]).await;

    let report = sluice.run(["--run-id", &run_id, "--json", "--", "true"]).finish().await.expect(125).json();

    assert_eq!(report.verdict(), (false, Some("creation_failed"), 125));
    assert!(
        report.message().contains(&name) && report.message().contains("sluice did not make"),
        "{}",
        report.message()
    );
    assert!(foreign.is_running().await);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_of_another_operator_is_not_removed() {
    let upstream = Upstream::never().start().await;
    let (theirs, ours) = (Sluice::to(&upstream), Sluice::to(&upstream));
    let run_id = unique_run_id("same");
    let live = theirs.run(["-q", "--run-id", &run_id, "--", "sh", "-c", "echo up; exec sleep 600"]).spawn();
    live.prints("up\n").await;

    let report = ours.run(["--run-id", &run_id, "--json", "--", "true"]).finish().await.expect(125).json();

    let message = report.message();
    assert!(message.contains("belongs to a run of another state directory"), "{message}");
    assert!(message.contains("choose another --run-id, and do not remove it"), "{message}");
    assert!(live.is_running());
    ours.assert_nothing_left().await;
}

#[tokio::test]
async fn a_name_taken_in_the_meantime_is_kept() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // Killed before it had a container of its own.
    let run_id = killed_at(&sluice, &Hold::request("/containers/create"), &["--", "true"]).await;
    let foreign = Foreign::named(&format!("sluice-{run_id}.0"), &[]).await;

    sluice.command(["sweep"]).finish().await;

    assert!(foreign.is_running().await, "a foreign container was taken down for its name");
}

#[tokio::test]
async fn two_controllers_may_use_the_same_run_id() {
    let upstream = Upstream::never().start().await;
    let (one, two) = (Sluice::to(&upstream), Sluice::to(&upstream));
    let run_id = killed_at(&one, &Hold::request("/containers/create"), &["--", "true"]).await;
    let live = two.run(["--run-id", &run_id, "--json"]).args(UNTIL_GO).spawn();
    let container = two.started().await;

    one.command(["sweep"]).finish().await;

    assert!(engine::exists(&container).await, "another controller's run was taken down");
    go(&two);
    assert_eq!(live.finish().await.expect(0).json().verdict(), (true, None, 0));
    two.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_id_is_used_once() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run_id = unique_run_id("once");
    sluice.run(["--run-id", &run_id, "-q", "--", "true"]).finish().await.expect(0);
    let before = sluice.audit(&run_id).lines().to_vec();

    let ran = sluice.run(["--run-id", &run_id, "-q", "--", "true"]).finish().await.expect(125);

    assert!(ran.stderr.contains(&format!("there is a run {run_id}.0 already")), "{}", ran.stderr);
    assert_eq!(sluice.audit(&run_id).lines(), before);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_database_of_a_newer_build_is_left_alone() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    sluice.sql("PRAGMA user_version = 99").await;

    for (command, code) in [(&["run", "--", "true"][..], 125), (&["sweep"], 1)] {
        let ran = sluice.command(command).finish().await.expect(code);
        for word in ["sluice.db", "schema 99", "newer"] {
            assert!(ran.stderr.contains(word), "{command:?}: {}", ran.stderr);
        }
    }

    assert_eq!(sluice.sql("PRAGMA user_version").await, "[[99]]");
    assert_eq!(sluice.sql("SELECT count(*) FROM runs").await, "[[1]]");
    assert_eq!(sluice.containers().await, [""; 0]);
    assert!(sluice.runs().is_empty());
}
