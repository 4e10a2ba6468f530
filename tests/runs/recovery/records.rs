//! The database of runs when it is wrong, busy or full.

use std::process::{Child, Command, Stdio};

use sluice_testkit::engine::Hold;
use sluice_testkit::{Sluice, Upstream};

use super::{UNTIL_GO, go, killed_at};

/// An unrelated process, which is killed at the end of the test.
struct UnrelatedProcess(Child);

impl UnrelatedProcess {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().expect("there is sleep"))
    }

    /// Pid, and start in clock ticks since boot.
    fn identity(&self) -> (u32, u64) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it runs");
        let fields: Vec<_> = stat.rsplit_once(')').expect("its name is in parentheses").1.split_whitespace().collect();
        (self.0.id(), fields[19].parse().expect("a number"))
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("it is our child").is_none()
    }
}

impl Drop for UnrelatedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_reused_pid_is_not_our_process() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let mut innocent = UnrelatedProcess::new();
    let (pid, start) = innocent.identity();
    // The same pid in another boot, or with another start time in this boot.
    for (start, boot) in [(start, "'another'"), (start - 1, "owner_boot")] {
        killed_at(&sluice, &Hold::answer("/start"), &["--", "sleep", "600"]).await;
        sluice
            .sql(&format!(
                "UPDATE runs SET owner_pid = {pid}, owner_start = {start}, sidecar_pid = {pid}, \
                 sidecar_start = {start}, sidecar_boot = {boot}, owner_boot = {boot} WHERE phase <> 'closed'"
            ))
            .await;

        sluice.command(["sweep"]).finish().await.expect(0);

        assert!(innocent.is_running(), "a process was ended for its number");
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_sweep_finds_a_run_without_its_record() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--json"]).args(UNTIL_GO).spawn();
    sluice.started().await;
    // The trigger fails as a full disk would.
    sluice.sql("CREATE TRIGGER full BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'disk is full'); END").await;
    go(&sluice);

    let ran = live.finish().await.expect(125);

    assert!(ran.stderr.contains("cannot use the database: disk is full"), "{}", ran.stderr);
    sluice.sql("DROP TRIGGER full").await;
    assert_eq!(sluice.leftovers().await.len(), 1);
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_that_cannot_be_recorded_does_not_start() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.sql("CREATE TRIGGER full BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'disk is full'); END").await;

    let ran = sluice.run(["--", "true"]).finish().await.expect(125);

    assert!(ran.stderr.contains("cannot use the database: disk is full"), "{}", ran.stderr);
    assert_eq!(sluice.assert_nothing_left().await.len(), 0);
}

#[tokio::test]
async fn an_invalid_database_is_refused_and_kept() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    std::fs::create_dir(sluice.state()).expect("the test's directory takes directories");
    let text = "not a database, but somebody's notes\n".repeat(100);
    std::fs::write(sluice.state().join("sluice.db"), &text).expect("our own file");

    let ran = sluice.run(["--", "true"]).finish().await.expect(125);

    assert!(ran.stderr.contains("sluice.db"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(sluice.state().join("sluice.db")).expect("our own file"), text);
}

#[tokio::test]
async fn first_commands_at_once_make_one_database() {
    let upstream = Upstream::never().start().await;
    for _ in 0..4 {
        let sluice = Sluice::to(&upstream);
        let sweep = || sluice.command(["sweep"]).finish();

        let all = tokio::join!(sweep(), sweep(), sweep(), sweep(), sweep(), sweep());

        for ran in <[_; 6]>::from(all) {
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        }
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn first_runs_at_once_share_one_state_directory() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let ask = async |account: &'static str| {
        let words = ["--model", "m", "--account", account, "--json", "hello"];
        (account, sluice.run(words).finish().await.expect(0).json())
    };

    let all = tokio::join!(ask("acct-1"), ask("acct-2"), ask("acct-3"), ask("acct-4"));

    for (account, report) in <[_; 4]>::from(all) {
        let audit = sluice.audit(&report.run_id);
        assert_eq!(audit.only_call().id(), report.only_receipt().call_id);
        assert_eq!(audit.open()["billing_account_id"], account);
    }
    let mut paid: Vec<_> = upstream.requests().iter().map(|request| request.json()["user"].to_string()).collect();
    paid.sort();
    assert_eq!(paid, [r#""acct-1""#, r#""acct-2""#, r#""acct-3""#, r#""acct-4""#]);
    assert_eq!(sluice.assert_nothing_left().await.len(), 4);
}

#[tokio::test]
async fn an_earlier_audit_file_does_not_bill_this_run() {
    let upstream = Upstream::chat("hello").start().await;
    let (sluice, other) = (Sluice::to(&upstream), Sluice::to(&upstream));
    let earlier = other.run(["--model", "m", "--json", "hello"]).finish().await.expect(0).json();
    // The database does not know the run id that the file has used.
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    std::fs::copy(other.audit_path(&earlier.run_id), sluice.audit_path(&earlier.run_id)).expect("both are ours");

    let words = ["--run-id", &earlier.run_id, "--model", "m", "--json", "hello"];
    let report = sluice.run(words).finish().await.expect(125).json();

    assert_eq!(report.verdict(), (false, Some("creation_failed"), 125));
    assert!(report.message().contains("a run id is used once"), "{}", report.message());
    assert_eq!((report.receipts.len(), report.cost_usd, report.usage.total, report.audit.lines), (0, None, None, 0));
    assert_eq!(sluice.assert_nothing_left().await.len(), 2);
}
