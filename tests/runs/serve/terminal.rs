//! What a run writes cannot control the terminal of a person who looks at it.

use sluice_testkit::controller::Daemon;

use super::commands::{GO, detached, ran};
use super::*;

/// Clipboard, link, device control string, title, and the same introducers as single bytes of C1.
const ORDERS: &str = "\u{1b}]52;c;ZXZpbA==\u{7}\u{1b}]8;;http://evil\u{1b}\\\u{1b}P1$r0m\u{1b}\\\u{1b}]0;owned\u{7}\
    \u{9d}52;c;ZXZpbA==\u{9c}\u{90}q\u{9c}\u{9b}2J\u{1b}[2J\u{202e}hi";

/// Gives a command a terminal for its three streams, and forwards its output.
const TERMINAL: [&str; 4] = [
    "bash",
    "-c",
    "export SHELL=/bin/bash; exec script --quiet --return --command \"$(printf '%q ' \"$@\")\" /dev/null",
    "bash",
];

/// Returns what would control a terminal. The terminal itself adds a carriage return to each newline.
fn orders(shown: &str) -> Vec<char> {
    shown.chars().filter(|c| (c.is_control() && !"\r\n\t".contains(*c)) || *c == '\u{202e}').collect()
}

/// A run that writes orders to both streams, to a file, and in an event, and then works on.
async fn writing(daemon: &Daemon<'_>, sluice: &Sluice) -> String {
    let event = json!({"event_type": "agent.message", "event_data": {"text": ORDERS}}).to_string();
    let question = json!({"question": "may I?\u{9b}2J", "options": ["yes\u{9b}2J", "no"]}).to_string();
    let script = format!(
        "printf '%s\\n' '{ORDERS}'; printf '%s\\n' '{ORDERS}' >&2; printf '%s\\n' '{ORDERS}' > text; \
         post() {{ curl -s -o /dev/null --json \"$2\" http://localhost:8080/api/v1/sandboxes/$RUN_ID/$1; }}; \
         post events '{event}'; post questions '{question}'; {GO}"
    );
    let id = detached(daemon, &["--name", "loud", "--", "sh", "-c", &script]).await;
    daemon.reaches(&id, "RUNNING").await;
    daemon.logged(&id, 2).await;
    let message = sluice.file("message", ORDERS);
    let text = std::fs::read_to_string(message).expect("it is ours");
    let sent = json!({"content": text});
    daemon.request("POST", &format!("/api/v1/sandboxes/{id}/messages"), &sent).await.expect(200);
    id
}

#[tokio::test]
async fn no_command_passes_orders_of_a_run_to_terminals() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = writing(&daemon, &sluice).await;
    let live: [&[&str]; 8] = [
        &["logs", &id],
        &["events", &id],
        &["messages", &id],
        &["approvals", &id],
        &["inspect", &id],
        &["ps", "--all"],
        &["top", "--once"],
        &["exec", &id, "--", "cat", "text"],
    ];
    for words in live {
        let shown = daemon.command(words.iter().copied()).wrapper(TERMINAL).finish().await;
        assert_eq!(orders(&shown.stdout), [], "{words:?}: {}", shown.stdout);
        assert_eq!(shown.code, 0, "{words:?}: {}{}", shown.stdout, shown.stderr);
    }
    let attached = daemon.command(["attach", &id]).wrapper(TERMINAL).spawn();
    attached.prints("hi").await;
    go(&sluice, &id);
    let attached = attached.finish().await;
    assert_eq!(orders(&attached.stdout), [], "attach: {}", attached.stdout);
    let logs = ran(&daemon, &["logs", &id], 0).await;
    assert!(logs.stdout.contains('\u{9b}'), "a pipe gets what the run wrote");
}
