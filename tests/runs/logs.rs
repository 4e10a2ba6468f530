//! `sluice logs`: the output of a run, while it runs and later.

use nix::sys::signal::Signal;
use serde_json::json;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{Sluice, Upstream};

#[tokio::test]
async fn a_follower_sees_output_from_begin_to_end() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("follow");
    let shell = "trap 'echo last; exit 0' TERM; echo first; echo to-stderr >&2; while :; do sleep 0.1; done";
    let live = sluice.run(["--quiet", "--run-id", &run, "--stop-grace", "20s", "--", "sh", "-c", shell]).spawn();
    live.prints("first").await;

    let follower = sluice.command(["logs", "-f", &run]).spawn();
    follower.prints("first").await;
    follower.says("to-stderr").await;
    assert!(follower.is_running());
    live.signal(Signal::SIGINT);
    live.finish().await;

    let followed = follower.finish().await.expect(130);
    assert_eq!(followed.stdout, "first\nlast\n");
    assert_eq!(followed.stderr, format!("to-stderr\nsluice: run {run}.0 ended: cancelled\n"));
    let later = sluice.command(["logs", &run, "--stderr"]).finish().await.expect(0);
    assert_eq!((later.stdout.as_str(), later.stderr.as_str()), ("to-stderr\n", ""));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn long_output_keeps_its_beginning_and_its_end() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("long");
    let shell = "echo begin; seq 1000000; echo end";
    let ran = sluice.run(["--quiet", "--run-id", &run, "--", "sh", "-c", shell]).finish().await.expect(0);
    assert_eq!(ran.stdout.lines().count(), 1_000_002);

    let logs = sluice.command(["logs", &run]).finish().await.expect(0);

    assert!(logs.bytes.len() < 300_000, "{}", logs.bytes.len());
    assert!(logs.stdout.starts_with("begin\n1\n2\n") && logs.stdout.ends_with("1000000\nend\n"));
    assert!(logs.stdout.contains("bytes left out]"));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_pipe_gets_bytes_and_a_terminal_gets_text() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("bytes");
    let shell = r"printf '\033[31m\377red\033]0;owned\007'";
    sluice.run(["--quiet", "--run-id", &run, "--", "sh", "-c", shell]).finish().await.expect(0);

    let piped = sluice.command(["logs", &run]).finish().await.expect(0);
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/python/in_terminal.py");
    let shown = sluice.command(["logs", &run]).wrapper(["python3", driver, "[]"]).finish().await.expect(0);

    assert_eq!(piped.bytes, b"\x1b[31m\xffred\x1b]0;owned\x07");
    assert!(shown.stdout.contains("red") && !shown.stdout.contains('\u{1b}'), "{:?}", shown.stdout);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn lines_of_a_one_shot_run_are_selected() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("lines");
    let shell = "echo one; echo two; echo three; echo four >&2";
    sluice.run(["--quiet", "--run-id", &run, "--", "sh", "-c", shell]).finish().await.expect(0);

    for (flags, stdout, stderr) in [
        (&["--tail", "2"][..], "two\nthree\n", "four\n"),
        (&["--grep", "o", "--stdout"], "one\ntwo\n", ""),
        (&["--tail", "1", "--stderr"], "four\n", ""),
    ] {
        let shown = sluice.command(["logs", &run]).args(flags).finish().await.expect(0);
        assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), (stdout, stderr), "{flags:?}");
    }
    let line = sluice.command(["logs", &run, "--json", "--grep", "four"]).finish().await.expect(0);
    assert_eq!(line.value(), json!({ "stream": "stderr", "ts": null, "text": "four\n" }));
    let since = sluice.command(["logs", &run, "--since", "10m"]).finish().await.expect(2);
    assert!(since.stderr.contains("the record of a run of sluice run has no times"), "{}", since.stderr);
    sluice.assert_nothing_left().await;
}
