//! Progress of a run: on a terminal while it goes on, and as JSON lines.

use serde_json::{Value, json};
use sluice_testkit::controller::RunningCommand;
use sluice_testkit::{Sluice, Upstream};

/// Starts `sluice run` in its own terminal, in which a user takes these steps.
fn start<'a>(sluice: &'a Sluice, words: &[&str], steps: &Value) -> RunningCommand<'a> {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/python/in_terminal.py");
    let wrapper = ["python3".to_owned(), driver.to_owned(), steps.to_string()];
    sluice.run(words).wrapper(wrapper).env("TERM", "xterm-256color").spawn()
}

#[tokio::test]
async fn a_status_line_shows_what_an_agent_waits_for() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sluice = Sluice::to(&upstream);
    let steps = json!([["expect", "1 call; waiting for the model"], ["send", "\u{3}"], ["expect", "stopping"]]);
    let live = start(&sluice, &["--model", "m", "hello"], &steps);
    live.prints("; stopping").await;
    upstream.release();

    let ran = live.finish().await.expect(0);

    assert!(ran.stderr.contains("\"code\": 130"), "{}", ran.stderr);
    let plain = ran.stdout.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    assert!(!plain.contains('\u{1b}'), "nothing but bold words: {:?}", ran.stdout);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn ctrl_c_says_what_it_waits_for() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let shell = "trap 'echo ignored' TERM INT; echo up; while :; do sleep 0.1; done";
    let words = ["--stop-grace", "10m", "--timeout", "30m", "--", "sh", "-c", shell];
    let told = "the program has 10m to end; press Ctrl-C again to kill it at once";
    let steps = json!([
        ["expect", "up\r\n"],
        ["send", "\u{3}"],
        ["expect", told],
        ["expect", "ignored"],
        ["send", "\u{3}"],
        ["expect", "killing the program"]
    ]);

    let ran = start(&sluice, &words, &steps).finish().await.expect(0);

    assert!(ran.stderr.contains("\"code\": 130"), "{}", ran.stderr);
    // The terminal shows the program's own output, so there is no status line.
    assert!(!ran.stdout.contains("the program works"), "{}", ran.stdout);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_log_can_be_json_lines() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);

    let ran = sluice.run(["--log-format", "json", "--model", "m", "hello"]).finish().await.expect(0);
    let refused = sluice.command(["logs", "nothing"]).env("SLUICE_LOG_FORMAT", "json").finish().await.expect(2);

    assert_eq!(ran.stdout, "hello\n");
    let events: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let names: Vec<_> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"run_started"), Some(&"run_ended")), "{names:?}");
    let end = events.last().expect("there is one");
    assert_eq!((&end["ok"], &end["calls"], &end["exit_code"]), (&json!(true), &json!(1), &json!(0)));
    let message: Value = serde_json::from_str(&refused.stderr).expect("it is JSON");
    assert_eq!((&message["level"], &message["event"]), (&json!("warning"), &json!("message")));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn run_ended_is_the_last_event_of_a_failure() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let words = ["--log-format", "json", "--", "sh", "-c", "echo to-stderr >&2; exit 3"];

    let ran = sluice.run(words).finish().await.expect(3);
    let quiet = sluice.run(["--quiet"]).args(words).finish().await.expect(3);

    // The program's own stderr is passed on as it is.
    assert!(ran.stderr.lines().any(|line| line == "to-stderr"), "{}", ran.stderr);
    let last = ran.stderr.lines().rfind(|line| *line != "to-stderr").unwrap_or_default();
    let end: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{last}"));
    let found = json!([end["event"], end["level"], end["error_code"]]);
    assert_eq!(found, json!(["run_ended", "error", "container_failed"]), "{}", ran.stderr);
    assert!(end["run"].is_string() && end["error_message"].is_string(), "{last}");
    // With --quiet there are no events, so a message has the error.
    let last = quiet.stderr.lines().rfind(|line| *line != "to-stderr").unwrap_or_default();
    assert!(last.contains(r#""event":"message""#) && last.contains("container_failed: "), "{}", quiet.stderr);
    sluice.assert_nothing_left().await;
}
