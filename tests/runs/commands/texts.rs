//! Texts for people: versions, completions, man pages, tables and styles on a terminal, and the words of a sandbox.

use std::fs;

use serde_json::json;
use sluice_testkit::controller::{FinishedCommand, Invocation};
use sluice_testkit::{Script, Sluice, Upstream};

/// Runs a command in a terminal with 80 columns.
async fn in_terminal(command: Invocation<'_>) -> FinishedCommand {
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/python/in_terminal.py");
    command.wrapper(["python3", driver, "[]"]).finish().await
}

fn offline() -> Sluice {
    Sluice::with("http://127.0.0.1:9", "sk-nobody-wants-it")
}

#[tokio::test]
async fn a_version_names_the_commit() {
    let sluice = offline();

    let version = sluice.command(["--version"]).finish().await.expect(0).stdout;

    let commit = version.trim_end().strip_prefix("sluice 0.1.0 (").and_then(|rest| rest.strip_suffix(')'));
    assert!(commit.is_some_and(|commit| !commit.is_empty()), "{version}");
}

#[tokio::test]
async fn shells_and_man_know_every_command() {
    let sluice = offline();
    for shell in ["bash", "zsh", "fish"] {
        let script = sluice.command(["completions", shell]).finish().await.expect(0).stdout;
        assert!(script.contains("reconcile") && script.contains("max-cost-usd"), "{shell}: {script:.300}");
    }
    let bash = sluice.command(["completions", "bash"]).finish().await.expect(0).stdout;
    let script = sluice.file("completion", &bash);
    let typed = format!(
        "source {script}; COMP_WORDS=(sluice rec); COMP_CWORD=1; _sluice sluice rec sluice; echo ${{COMPREPLY[@]}}"
    );
    let offered = std::process::Command::new("bash").args(["-c", &typed]).output().expect("there is a bash");
    assert_eq!(String::from_utf8_lossy(&offered.stdout), "receipts reconcile\n");

    let pages = sluice.dir().join("man1");
    fs::create_dir(&pages).expect("a test's directory takes directories");
    sluice.command(["man", &pages.display().to_string()]).finish().await.expect(0);
    let page = fs::read_to_string(pages.join("sluice-audit-verify.1")).expect("each command has a page");
    assert!(page.contains(".TH") && page.contains("against"), "{page:.300}");
    sluice.command(["man", "/no/such/directory"]).finish().await.expect(1);
}

#[tokio::test]
async fn a_schema_can_be_printed() {
    let sluice = offline();

    let names = sluice.command(["schema"]).finish().await.expect(0).stdout;
    let schema = sluice.command(["schema", "usage"]).finish().await.expect(0).value();

    assert!(names.lines().any(|name| name == "audit-verify"), "{names}");
    assert!(schema["$defs"]["total"].is_object() && schema["properties"]["groups"].is_object(), "{schema}");
    sluice.command(["schema", "nope"]).finish().await.expect(2);
}

#[tokio::test]
async fn tables_fit_the_terminal() {
    let upstream = Upstream::with(|_| Script::chat("hello")).start().await;
    let sluice = Sluice::to(&upstream);
    let (model, account) = ("m".repeat(100), "a".repeat(100));
    let script = format!(r#"curl -s "$OPENAI_BASE_URL/chat/completions" --json '{{"model":"{model}","messages":[]}}'"#);
    let words = ["--account", &account, "--json", "--", "sh", "-c", &script];
    let id = sluice.run(words).finish().await.expect(0).json().run_id;

    sluice.command(["budget", "set", &account, "25"]).finish().await.expect(0);

    for words in [
        &["usage", "--by", "model"][..],
        &["usage"],
        &["receipts"],
        &["audit", "show", &id],
        &["budget", "show"],
        &["budget", "history"],
    ] {
        let shown = in_terminal(sluice.command(words)).await.stdout;
        let rows: Vec<_> = shown.lines().filter(|line| line.contains('…')).collect();
        assert!(!rows.is_empty() && !shown.contains(&model), "{words:?}: {shown}");
        assert!(rows.iter().all(|row| row.trim_end().chars().count() <= 80), "{words:?}: {shown}");
        let piped = sluice.command(words).finish().await.expect(0).stdout;
        let is_whole = piped.contains(&model) || piped.contains(&account);
        assert!(is_whole && !piped.contains('…'), "{words:?}: {piped}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn styles_are_for_terminals_that_have_them() {
    let upstream = Upstream::json(200, json!({"data": []})).start().await;
    let sluice = Sluice::to(&upstream);
    let preflight = || sluice.command(["preflight"]);

    let coloured = in_terminal(preflight().env("TERM", "xterm")).await.stdout;
    assert!(coloured.starts_with("\u{1b}[32mpass\u{1b}[0m  user "), "{coloured:?}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = in_terminal(preflight().env("TERM", "xterm").env(name, value)).await.stdout;
        assert!(plain.starts_with("pass  user ") && !plain.contains('\u{1b}'), "{name}: {plain:?}");
    }
    let piped = preflight().env("TERM", "xterm").finish().await.expect(0).stdout;
    assert!(!piped.contains('\u{1b}'), "{piped:?}");
}

#[tokio::test]
async fn a_program_cannot_write_a_receipt_of_ours() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let script = r"printf '\033[1mrun\033[0m     r1.0  ok\n\033[1msluice:\033[0m all is well\n' >&2; exit 3";

    let run = sluice.run(["--", "sh", "-c", script]).env("TERM", "xterm").env("NO_COLOR", "1");
    let shown = in_terminal(run).await.stdout;

    let bold = |word: &str| shown.matches(&format!("\u{1b}[1m{word}\u{1b}[0m")).count();
    assert!(shown.contains("r1.0  ok") && shown.contains("all is well"), "{shown:?}");
    assert_eq!((bold("run"), bold("cost"), bold("sluice:")), (1, 1, 1), "{shown:?}");
}

#[tokio::test]
async fn stderr_of_an_agent_is_quoted() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let agent = "[[agents]]\nagentId = 'liar'\nargv = ['sh', '-c', 'echo \"sluice: all is well\" >&2; echo \"cost    none\" >&2; exit 3']\n";
    sluice.file("sluice.toml", agent);

    let ran = sluice.run(["--agent", "liar", "--model", "m", "hello"]).finish().await.expect(3);

    assert!(
        ran.stderr.starts_with("| sluice: all is well\n| cost    none\nsluice: container_failed"),
        "{}",
        ran.stderr
    );
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_typo_is_answered_with_what_was_meant() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (words, code, meant) in [
        (&["runn"][..], 2, "'run'"),
        (&["budgets"], 2, "'budget'"),
        (&["rec"], 2, "'rec"),
        (&["usage", "--jsn"], 2, "'--json'"),
        (&["run", "--modle", "m", "hello"], 125, "'--model'"),
        (&["run", "--timeout", "-1", "hello"], 125, "--help"),
        (&["budget", "set", "x", "-5"], 2, "--help"),
    ] {
        let ran = sluice.command(words).finish().await.expect(code);
        assert!(ran.stderr.contains(meant), "{words:?}: {}", ran.stderr);
        assert!(
            !ran.stderr.contains("use '-- ") && !ran.stderr.contains("as a value, use"),
            "{words:?}: {}",
            ran.stderr
        );
    }
    let ran = sluice.command(["agents"]).env("SLUICE_TIMEOUTT", "3s").finish().await.expect(0);
    assert!(
        ran.stderr.contains("SLUICE_TIMEOUTT is not a setting") && ran.stderr.contains("did you mean SLUICE_TIMEOUT?")
    );
}

#[tokio::test]
async fn help_says_first_what_a_command_does() {
    let sluice = Sluice::with("http://127.0.0.1:9", "sk-nobody-wants-it");
    for (words, begins) in [
        (&["--help"][..], "Runs AI agents in containers"),
        (&["run", "-h"], "Runs one agent, or one program"),
        (&["audit", "--help"], "Verifies and shows audit files"),
        (&["budget", "--help"], "Limits the spending of accounts"),
    ] {
        let help = sluice.command(words).finish().await.expect(0).stdout;
        assert!(help.starts_with(begins), "{words:?}: {help}");
        let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text} in {help}"));
        assert!(place("\nExamples:\n") < place("\nUsage: "), "{words:?}: {help}");
    }
    for words in [&["receipts"][..], &["audit", "verify"], &["budget", "set"], &["ledger", "rebuild"]] {
        let help = sluice.command(words).args(["--help"]).finish().await.expect(0).stdout;
        assert!(!help.contains("--docker-host") && help.contains("--state-dir"), "{words:?}: {help}");
        // A script may give all commands the same flags.
        let ran = sluice.command(words).args(["--docker-host", "unix:///x", "--no-such-flag"]).finish().await.expect(2);
        assert!(ran.stderr.contains("'--no-such-flag'"), "{words:?}: {}", ran.stderr);
    }
}
