//! An agent's output cannot control the operator's terminal, and reaches a pipe byte for byte.

use sluice_testkit::{Sluice, Upstream};

/// A title, a bell, a cleared screen by one byte and by two, and another direction of writing.
const ORDERS: &str = "\u{1b}]0;owned\u{7}hi\u{9b}2J\u{1b}[2J\u{202e}you";

/// Gives a command a terminal for its three streams, and forwards its output.
const TERMINAL: [&str; 4] = [
    "bash",
    "-c",
    "export SHELL=/bin/bash; exec script --quiet --return --command \"$(printf '%q ' \"$@\")\" /dev/null",
    "bash",
];

#[tokio::test]
async fn no_command_lets_an_agent_speak_to_the_terminal() {
    let upstream = Upstream::chat(ORDERS).start().await;
    let sluice = Sluice::to(&upstream);
    let shell = format!("printf '%s\\n\\tnext\\n' '{ORDERS}'; printf '%s' '{ORDERS}' >&2; exit 3");
    let path = format!("curl --silent --get \"$OPENAI_BASE_URL/\u{9b}2J\"; printf '{ORDERS}'");
    for (args, code) in [
        (vec!["--model", "m", "hello"], 0),
        (vec!["--json", "--model", "m", "hello"], 0),
        (vec!["--", "sh", "-c", &shell], 3),
        (vec!["--run-id", "shown", "--", "sh", "-c", &path], 0),
    ] {
        let ran = sluice.run(&args).wrapper(TERMINAL).finish().await.expect(code);
        silent(&ran.stdout, &args);
        assert!(ran.stdout.contains("hi") && ran.stdout.contains("you"), "{args:?}: {}", ran.stdout);
    }
    for args in [&["audit", "show", "shown"][..], &["audit", "tail", "--json", "shown"], &["receipts"]] {
        let ran = sluice.command(args).wrapper(TERMINAL).finish().await.expect(0);
        silent(&ran.stdout, &args);
    }
    sluice.assert_nothing_left().await;
}

/// Checks that the output has no control character. A terminal adds a carriage return to each newline.
#[track_caller]
fn silent(shown: &str, of: &dyn std::fmt::Debug) {
    let orders: Vec<_> =
        shown.chars().filter(|c| (c.is_control() && !"\r\n\t".contains(*c)) || *c == '\u{202e}').collect();
    assert!(orders.is_empty(), "{of:?}: {orders:?} in {shown}");
}

#[tokio::test]
async fn a_pipe_gets_what_the_agent_wrote() {
    let upstream = Upstream::chat(ORDERS).start().await;
    let sluice = Sluice::to(&upstream);

    let answer = sluice.run(["--quiet", "--model", "m", "hello"]).finish().await.expect(0);
    let shell = format!("printf '%s' '{ORDERS}'");
    let written = sluice.run(["--quiet", "--", "sh", "-c", &shell]).finish().await.expect(0);

    assert_eq!((answer.stdout, written.stdout), (format!("{ORDERS}\n"), ORDERS.to_owned()));
    sluice.assert_nothing_left().await;
}
