//! `sluice exec` and `sluice cp` with a live sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use super::commands::{detached, faults, ran};
use super::*;

#[tokio::test]
async fn a_program_in_a_sandbox_has_its_exit_code() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = detached(&daemon, &["--name", "box", "--", "sleep", "600"]).await;
    daemon.reaches(&id, "RUNNING").await;

    let script = "echo $A; pwd; echo err >&2; exit 7";
    let words = ["exec", "box", "--env", "A=one", "--cwd", "/workspace", "--", "sh", "-c", script];
    let plain = ran(&daemon, &words, 7).await;
    let object = ran(&daemon, &["exec", "box", "--json", "--", "printf", "a\\377"], 0).await.value();
    ran(&daemon, &["exec", "box", "--timeout", "1s", "--", "sleep", "600"], 124).await;
    let interrupted = daemon.command(["exec", "box", "--", "sh", "-c", "echo begun; sleep 600"]).spawn();
    interrupted.prints("begun").await;
    interrupted.signal(Signal::SIGINT);
    interrupted.finish().await.expect(130);
    let left = ran(&daemon, &["exec", "box", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], 0).await;

    assert_eq!(plain.stdout, "one\n/workspace\n");
    assert!(plain.stderr.ends_with("err\n"), "{}", plain.stderr);
    assert_eq!((&object["stdout"], &object["bytes"]["stdout"]), (&json!("a\u{fffd}"), &json!(2)), "{object}");
    assert!(!left.stdout.contains("echo begun"), "Ctrl-C ends the program: {}", left.stdout);
    let found = faults(&[("exec", object)]).await;
    assert!(found.is_empty(), "{found:?}");
    ran(&daemon, &["cancel", "box", "--wait"], 0).await;
    let late = ran(&daemon, &["exec", "box", "--", "true"], 125).await;
    assert!(late.stderr.contains("invalid_state"), "{}", late.stderr);
}

#[tokio::test]
async fn files_come_out_of_a_sandbox_without_links() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "mkdir -p out/sub; echo 42 > out/answer; : > out/empty; head -c 9000000 /dev/zero > out/sub/big
        ln -s /etc/passwd out/link; ln -s sub out/also; mkfifo out/pipe; touch ready; sleep 600";
    let id = detached(&daemon, &["--name", "box", "--", "sh", "-c", script]).await;
    daemon.reaches(&id, "RUNNING").await;
    let is_ready = "until [ -e ready ]; do sleep 0.05; done";
    ran(&daemon, &["exec", "box", "--", "sh", "-c", is_ready], 0).await;

    let copied = ran(&daemon, &["cp", "box:/workspace/out", "results", "--json"], 0).await.value();
    let file = ran(&daemon, &["cp", "box:/workspace/out/answer", "one", "--json"], 0).await.value();
    ran(&daemon, &["cp", "box:/workspace/out", "results"], 1).await;
    ran(&daemon, &["cp", "box:/etc", "etc"], 2).await;
    sluice.file("fix.diff", "fixed\n");
    let put = ran(&daemon, &["cp", "fix.diff", "box:/workspace/", "--json"], 0).await.value();
    let read = ran(&daemon, &["exec", "box", "--", "cat", "fix.diff"], 0).await.stdout;

    let results = sluice.dir().join("results");
    assert_eq!(fs::read_to_string(results.join("answer")).expect("it was copied"), "42\n");
    assert_eq!(fs::metadata(results.join("sub/big")).expect("it was copied").len(), 9_000_000);
    assert_eq!(fs::metadata(results.join("empty")).expect("it was copied").permissions().mode() & 0o7777, 0o644);
    for name in ["link", "also", "pipe"] {
        assert!(fs::symlink_metadata(results.join(name)).is_err(), "{name}");
    }
    assert_eq!(copied["left_out"].as_array().map(Vec::len), Some(3), "{copied}");
    assert_eq!((&copied["files"], &copied["bytes"]), (&json!(3), &json!(9_000_003)), "{copied}");
    assert_eq!(fs::read_to_string(sluice.dir().join("one/answer")).expect("it was copied"), "42\n");
    assert!(!sluice.dir().join("etc").exists(), "nothing is left of a copy that failed");
    assert_eq!(read, "fixed\n");
    let found = faults(&[("cp", copied), ("cp", file), ("cp", put)]).await;
    assert!(found.is_empty(), "{found:?}");
    ran(&daemon, &["cancel", "box"], 0).await;
}
