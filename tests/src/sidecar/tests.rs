//! The process half of the test kit, on shell scripts that only pretend to be a sidecar.

use std::path::Path;

use super::{CANARY, Launch, Sidecar, SidecarExit};
use crate::{TempDir, write_script};

const READY: &str = r#"read -r key; echo "{\"event\":\"ready\",\"pid\":$$}""#;

fn script(dir: &TempDir, lines: &str) -> Launch {
    let path = dir.join("fake");
    write_script(&path, lines);
    Sidecar::to_url("http://127.0.0.1:1").binary(path)
}

fn gone(pid: i32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Returns the message of a panic in the drop of a sidecar.
fn drop_fault(sidecar: Sidecar) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(sidecar))).expect_err("a loud drop");
    *panic.downcast::<String>().expect("a formatted panic")
}

#[tokio::test]
async fn a_dropped_sidecar_is_removed_with_its_directory() {
    let dir = TempDir::new();
    let sidecar = script(&dir, &format!("{READY}\nexec sleep 1000")).start().await;
    let (pid, place) = (sidecar.pid(), sidecar.dir().to_owned());
    assert!(!gone(pid) && place.exists() && sidecar.rss_kib() > 0 && sidecar.fds() >= 3 && sidecar.threads() == 1);
    drop(sidecar);
    assert!(gone(pid) && !place.exists());
}

#[tokio::test]
async fn the_end_is_a_code_or_a_signal() {
    let dir = TempDir::new();
    let sidecar = script(&dir, &format!("{READY}\nexit 3")).start().await;
    assert_eq!(sidecar.wait().await, SidecarExit { code: Some(3), signal: None });
    drop(sidecar);
    let sidecar = script(&dir, &format!("{READY}\nexec sleep 1000")).start().await;
    sidecar.sigterm();
    assert_eq!(sidecar.wait().await, SidecarExit { code: None, signal: Some(15) });
}

#[tokio::test]
async fn the_sidecar_gets_flags_and_key_without_foreign_environment() {
    let dir = TempDir::new();
    let lines = r#"echo "$# $*"; read -r key; echo "${#key} ${HOME-none} $MINE $(ulimit -n)" >&2; exit 64"#;
    let failed =
        script(&dir, lines).account("a b").env("MINE", "yes").nofile(50).without("--audit").arg("--x").fail().await;
    assert_eq!((failed.code, failed.stderr.trim()), (64, format!("{} none yes 50", CANARY.len()).as_str()));
    assert!(failed.stdout.starts_with("9 --socket ") && failed.stdout.ends_with("--account a b --x\n"), "{failed:?}");
}

#[tokio::test]
async fn a_key_on_stderr_or_file_fails_the_test() {
    let dir = TempDir::new();
    let sidecar = script(&dir, &format!("{READY}\necho got $key >&2; exec sleep 1000")).start().await;
    sidecar.logs("got").await;
    let pid = sidecar.pid();
    assert!(drop_fault(sidecar).contains("is in stderr") && gone(pid));

    let launch = script(&dir, &format!("read -r key; echo $key > $4.log\n{READY}\nexit 0"));
    let log = launch.dir().join("x");
    let sidecar = launch.upstream("unused").audit_path(&log).start().await;
    std::fs::write(&log, CANARY).expect("its directory still exists");
    sidecar.wait().await;
    assert!(drop_fault(sidecar).contains("is in /tmp"));
}

#[tokio::test]
async fn a_key_in_arguments_or_children_fails_the_test() {
    let dir = TempDir::new();
    for (lines, named) in [
        (format!("{READY}\nkill -STOP $$"), "/proc/PID/cmdline"),
        (format!("sleep 1000 >/dev/null 2>&1 <&- & child=$!\n{READY}\nwait"), "has children"),
    ] {
        let mut launch = script(&dir, &format!("{lines}\nexec sleep 1000"));
        if named.contains("cmdline") {
            launch = launch.args(["--oops", CANARY]);
        }
        let started = tokio::spawn(launch.start()).await;
        let panic = started.expect_err("the fault is loud").into_panic().downcast::<String>();
        assert!(panic.expect("a formatted panic").contains(named));
    }
}
