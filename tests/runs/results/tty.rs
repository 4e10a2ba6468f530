//! A program on our terminal: its view of the terminal, its output, and the terminal's state afterwards.

use serde_json::{Value, json};
use sluice_testkit::controller::{FinishedCommand, RunningCommand};
use sluice_testkit::{Sluice, Upstream, engine};

/// Beginning of the receipt: after the reset of the display, only the controller writes.
const RESET: &str = "\x1b]8;;\x1b\\\x1b[0m\r\n";

/// Starts `sluice run` with these words in its own terminal, in which a user takes these steps.
fn start<'a>(sluice: &'a Sluice, words: &[&str], steps: &Value) -> RunningCommand<'a> {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/python/in_terminal.py");
    let wrapper = ["python3".to_owned(), driver.to_owned(), steps.to_string()];
    sluice.run(words).wrapper(wrapper).env("TERM", "xterm-256color").spawn()
}

/// Checks that the terminal has its modes back and that all steps were taken. Returns the exit code of the run.
#[track_caller]
fn code(ran: &FinishedCommand) -> i64 {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|_| panic!("no result: {}", ran.stderr));
    assert_eq!((&told["restored"], &told["left"]), (&json!(true), &json!([])), "{told}\n{}", ran.stdout);
    told["code"].as_i64().expect("a process has an exit code")
}

/// The texts on the terminal before and after the reset of the display.
#[track_caller]
fn parts(ran: &FinishedCommand) -> (&str, &str) {
    ran.stdout.split_once(RESET).unwrap_or_else(|| panic!("no reset in {:?}", ran.stdout))
}

#[tokio::test]
async fn a_program_sees_our_window_and_its_changes() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // An engine before API 1.42 sets the size when the program may have begun.
    let script = "until [ \"$(stty size)\" = '24 80' ]; do sleep 0.05; done; trap 'stty size; exit 4' WINCH; \
        echo $TERM; echo up; while :; do sleep 0.1; done";
    let steps = json!([["expect", "xterm-256color\r\nup\r\n"], ["raw"], ["resize", 50, 132], ["expect", "50 132\r\n"]]);

    let ran = start(&sluice, &["-q", "-it", "--", "bash", "-c", script], &steps).finish().await;

    assert_eq!(code(&ran), 4, "{}", ran.stdout);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn every_byte_passes_both_ways() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // Chunks that look like frames of the engine, and like the beginning of one.
    let script = r"stty raw -echo; for byte in 000 001 002 003; do printf '\'$byte'\000\000\000\000\000\377\377x'; sleep 0.2; \
        printf '\'$byte; sleep 0.2; done; printf up; head -c 257 | od -A n -v -t x1 | tr -d ' \n'";
    // The engine holds a last 0xff back: it could begin the keys to detach.
    let all: String = (0..=255_u8).chain([0]).map(char::from).collect();
    let steps = json!([["expect", "up"], ["send", all]]);

    let ran = start(&sluice, &["-q", "-it", "--", "bash", "-c", script], &steps).finish().await;

    assert_eq!(code(&ran), 0, "{}", ran.stdout);
    let mut expected: Vec<u8> = Vec::new();
    for byte in 0..4 {
        expected.extend([byte, 0, 0, 0, 0, 0, 0xff, 0xff, b'x', byte]);
    }
    expected.extend(b"up");
    expected.extend((0..=255_u8).chain([0]).flat_map(|byte| format!("{byte:02x}").into_bytes()));
    let end = ran.bytes.windows(2).position(|pair| pair == [0x18, 0x1b]).expect("the display is reset");
    assert_eq!(&ran.bytes[..end], &expected[..]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn every_end_of_a_run_restores_the_terminal() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // Leaves the display in every state that it can.
    let mess = r"printf '\033[?1049h\033[?1000h\033[?2004h\033[31;8m\033]11;#000\007\033]0;begun'";
    let up = |then: &str| format!("{mess}; stty -echo raw; echo up; {then}");
    let waits = up("sleep 60");
    for (flags, script, steps, expected, told) in [
        (&[][..], up("exit 0"), json!([]), 0, "  ok\r\n"),
        (&[], up("exit 3"), json!([]), 3, "exit code 3"),
        (&["--timeout", "20s"], waits.clone(), json!([]), 124, "timeout"),
        (&[], waits.clone(), json!([["expect", "up"], ["raw"], ["signal", "SIGTERM"]]), 143, "cancelled"),
        (&[], waits.clone(), json!([["expect", "up"], ["raw"], ["signal", "SIGHUP"]]), 129, "cancelled"),
        (&[], waits.clone(), json!([["expect", "up"]]), 137, "container_failed"),
        (
            &[],
            "trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.1; done".to_owned(),
            json!([["expect", "up"], ["raw"], ["send", "\x03"], ["expect", "caught"]]),
            5,
            "exit code 5",
        ),
    ] {
        let is_killed = expected == 137;
        let words: Vec<&str> = flags.iter().copied().chain(["-i", "--tty", "--", "bash", "-c", &script]).collect();
        let live = start(&sluice, &words, &steps);
        if is_killed {
            live.prints("up").await;
            let name = sluice.containers().await.pop().expect("it runs");
            engine::lines(["kill", &name]).await;
        }
        let ran = live.finish().await;

        assert_eq!(code(&ran), expected, "{script}: {}", ran.stdout);
        let (before, receipt) = parts(&ran);
        assert!(before.contains("up"), "{before:?}");
        assert!(before.starts_with("\x1b[1msluice:\x1b[0m run "), "{before:?}");
        // Only our own words are bold.
        let plain = receipt.replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert!(plain.contains(told) && plain.contains("\naudit   "), "{script}: {receipt}");
        assert!(!plain.contains('\x1b'), "{receipt:?}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn without_interactive_a_program_draws_and_gets_no_keys() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let steps = json!([["expect", "up"], ["send", "\x03"]]);

    let ran = start(&sluice, &["-t", "--", "bash", "-c", "printf '\\033[1mup'; sleep 60"], &steps).finish().await;

    // Ctrl-C stops the run, because the program gets no keys.
    assert_eq!(code(&ran), 130, "{}", ran.stdout);
    assert!(parts(&ran).0.contains("\x1b[1mup"), "{}", ran.stdout);
    let told: Value = serde_json::from_str(&ran.stderr).expect("a result");
    assert_eq!(told["raw_seen"], false);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_terminal_that_cannot_be_given_is_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let ran = sluice.run(["-it", "--", "true"]).finish().await.expect(125);
    assert!(ran.stderr.contains("--tty: stdin is not a terminal"), "{}", ran.stderr);
    for (words, why) in [
        (&["-t", "--json", "--", "true"][..], "--tty: --json prints one object on stdout"),
        (&["-t", "--model", "m", "hello"], "--tty: a terminal is for a program after --"),
    ] {
        let ran = start(&sluice, words, &json!([])).finish().await;
        assert_eq!(code(&ran), 125, "{words:?}");
        assert!(ran.stdout.contains(why), "{words:?}: {}", ran.stdout);
    }
    assert!(sluice.runs().is_empty());
}
