//! Starts that fail: one line that names the flag, the cause and the fix, an exit code, and no leftovers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use sluice_testkit::sidecar::CANARY;
use sluice_testkit::{FailedStart, Launch, Sidecar, TempDir, Upstream};

use super::{file, launch};

/// Root without the capabilities that bypass file permissions; the binary can still be reached wherever it was built.
const UNPRIVILEGED: [&str; 3] = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"];

/// Makes a key file with this mode.
fn of_mode(dir: &Path, mode: u32) -> String {
    let path = file(dir, "open.key", CANARY);
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
    path
}

/// Name, exit code, the flag at fault, a word of the cause, and the change of the launch that causes it.
type Case = (&'static str, i32, &'static str, &'static str, fn(Launch, &Path) -> Launch);

fn dir_of_mode(dir: &Path, name: &str, mode: u32) -> std::path::PathBuf {
    let path = dir.join(name);
    fs::create_dir(&path).expect("a fresh name");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own directory");
    path
}

async fn assert_refused(cases: &[Case]) {
    let mut faults = Vec::new();
    for (name, code, flag, cause, change) in cases {
        let dir = TempDir::new();
        let failed = change(launch(&dir), dir.path()).finish().await;
        if let Err(fault) = one_helpful_line(&failed, *code, flag, cause) {
            faults.push(format!("{name}: {fault}"));
        }
        if let Some(left) = left_behind(dir.path()) {
            faults.push(format!("{name}: left {left} behind"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Checks that the error is one line that names the flag, the cause and a fix.
fn one_helpful_line(failed: &FailedStart, code: i32, flag: &str, cause: &str) -> Result<(), String> {
    let line = &failed.stderr;
    let fixes = [
        "want ", "wants ", "needs ", "; ", "create it first", "choose", "give ", "write ", "leave ", "such as", "has ",
        "may have", "is 1 to",
    ];
    let rules = [
        (failed.code == code, "the exit code"),
        (failed.stdout.is_empty(), "nothing on stdout"),
        (line.ends_with('\n') && line.lines().count() == 1, "one line"),
        (line.starts_with("sluice-proxy: "), "the program's name"),
        (line.contains(flag), "the flag"),
        (line.contains(cause), "the cause"),
        (fixes.iter().any(|fix| line.contains(fix)), "the fix"),
        (!line.contains("panicked"), "no panic"),
    ];
    let broken: Vec<_> = rules.iter().filter(|(kept, _)| !kept).map(|(_, rule)| *rule).collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err(format!("without {broken:?}, but {} and {line:?}", failed.code))
}

/// Returns a socket that is left, under its own or its temporary name.
fn left_behind(dir: &Path) -> Option<String> {
    let names = fs::read_dir(dir.join("run")).expect("the socket's directory").flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name == "s" || name.starts_with(".s"))
}

#[tokio::test]
async fn wrong_flags_are_usage_errors() {
    assert_refused(&[
        ("no socket", 64, "--socket", "required", |l, _| l.without("--socket")),
        ("no account", 64, "--account", "required", |l, _| l.without("--account")),
        ("no upstream", 64, "--upstream", "required", |l, _| l.without("--upstream")),
        ("unknown flag", 64, "--bogus", "unexpected", |l, _| l.arg("--bogus")),
        ("a flag without its value", 64, "--model", "value is required", |l, _| l.arg("--model")),
        ("a stray word", 64, "stray", "unexpected", |l, _| l.arg("stray")),
        ("the key as a flag", 64, "--key", "unexpected", |l, _| l.args(["--key", "x"])),
        ("no number", 64, "--max-calls", "invalid", |l, _| l.args(["--max-calls", "x"])),
        ("less than none", 64, "--max-tokens", "invalid", |l, _| l.arg("--max-tokens=-1")),
        ("no dollars", 64, "--max-cost-usd", "invalid", |l, _| l.args(["--max-cost-usd", "two"])),
        ("no rate", 64, "--rate", "calls a second", |l, _| l.args(["--rate", "0/s"])),
        ("no size", 64, "--max-body", "size", |l, _| l.args(["--max-body", "0"])),
        ("no time", 64, "--deadline", "0", |l, _| l.args(["--deadline", "0"])),
        ("a time beyond reason", 64, "--drain", "365 days", |l, _| l.args(["--drain", "90y"])),
        ("no mode", 64, "--socket-mode", "octal", |l, _| l.args(["--socket-mode", "9"])),
        ("no choice", 64, "--audit-sync", "invalid", |l, _| l.args(["--audit-sync", "maybe"])),
        ("no level", 64, "--log-level", "invalid", |l, _| l.args(["--log-level", "loud"])),
        ("a bad run id", 64, "--run-id", "letter or a digit", |l, _| l.run_id("R1")),
        ("a run id too long", 64, "--run-id", "63", |l, _| l.run_id(&"r".repeat(64))),
        ("a blank account", 64, "--account", "visible ASCII", |l, _| l.account(" ")),
        ("an account with a line", 64, "--account", "visible ASCII", |l, _| l.account("a\nb")),
        ("an account in UTF-8", 64, "--account", "visible ASCII", |l, _| l.account("käse")),
        ("no scheme", 64, "--upstream", "want http", |l, _| l.upstream("127.0.0.1:9")),
        ("another scheme", 64, "--upstream", "want http", |l, _| l.upstream("ftp://x")),
        ("credentials", 64, "--upstream", "credentials", |l, _| l.upstream("http://u:p@x")),
        ("two models in one", 64, "--model", "one model", |l, _| l.args(["--model", "a,b"])),
        ("no route", 64, "--allow", "", |l, _| l.args(["--allow", "whatever"])),
        ("a relay without a token", 64, "--relay", "--relay-token-file", |l, _| {
            l.args(["--relay", "http://127.0.0.1:9"])
        }),
        ("metadata twice", 64, "--metadata", "cannot be used", |l, _| {
            l.args(["--metadata", "{}", "--metadata-file", "x"])
        }),
    ])
    .await;
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named() {
    assert_refused(&[
        ("key", 66, "--key-file", "/nope", |l, _| l.args(["--key-file", "/nope"])),
        ("prices", 66, "--prices", "/nope", |l, _| l.args(["--prices", "/nope"])),
        ("metadata", 66, "--metadata-file", "/nope", |l, _| l.args(["--metadata-file", "/nope"])),
        ("token", 66, "--relay-token-file", "/nope", |l, _| {
            l.args(["--relay", "http://127.0.0.1:9", "--relay-token-file", "/nope"])
        }),
        ("certificates", 66, "--ca", "/nope", |l, _| l.upstream("https://localhost:9").args(["--ca", "/nope"])),
    ])
    .await;
}

#[tokio::test]
async fn an_invalid_key_is_refused_and_not_shown() {
    assert_refused(&[
        ("nothing", 66, "--key-file", "empty", |l, _| l.stdin("")),
        ("a newline", 66, "--key-file", "empty", |l, _| l.stdin("\n")),
        ("short", 66, "--key-file", "5 bytes", |l, _| l.stdin("sk-12")),
        ("two lines", 66, "--key-file", "visible ASCII", |l, _| l.stdin(format!("{CANARY}\n{CANARY}"))),
        ("two final newlines", 66, "--key-file", "visible ASCII", |l, _| l.stdin(format!("{CANARY}\n\n"))),
        ("a space", 66, "--key-file", "visible ASCII", |l, _| l.stdin(format!("{CANARY} {CANARY}"))),
        ("a zero", 66, "--key-file", "visible ASCII", |l, _| l.stdin(format!("{CANARY}\0"))),
        ("UTF-8", 66, "--key-file", "visible ASCII", |l, _| l.stdin(format!("{CANARY}é"))),
        ("long", 66, "--key-file", "8192", |l, _| l.stdin(CANARY.repeat(1000))),
        ("endless", 66, "--key-file", "8192", |l, _| l.stdin(CANARY.repeat(100_000))),
        ("an empty file", 66, "--key-file", "empty", |l, dir| l.args(["--key-file", &file(dir, "e.key", "")])),
        ("a directory", 66, "--key-file", "", |l, dir| l.args(["--key-file", &dir.display().to_string()])),
        ("everybody's", 77, "--key-file", "0644", |l, dir| l.args(["--key-file", &of_mode(dir, 0o644)])),
        ("its group's", 77, "--key-file", "0640", |l, dir| l.args(["--key-file", &of_mode(dir, 0o640)])),
    ])
    .await;
}

#[tokio::test]
async fn an_invalid_audit_key_is_refused() {
    fn with(text: &str) -> impl Fn(Launch, &Path) -> Launch {
        move |launch, dir| launch.args(["--audit-key-file", &file(dir, "a.key", text)])
    }
    assert_refused(&[
        ("nothing", 66, "--audit-key-file", "64 hex digits", |l, dir| with("")(l, dir)),
        ("short", 66, "--audit-key-file", "64 hex digits", |l, dir| with(&"5e".repeat(31))(l, dir)),
        ("long", 66, "--audit-key-file", "64 hex digits", |l, dir| with(&"5e".repeat(33))(l, dir)),
        ("two lines", 66, "--audit-key-file", "64 hex digits", |l, dir| {
            with(&format!("{}\n\n", "5e".repeat(32)))(l, dir)
        }),
        ("everybody's", 77, "--audit-key-file", "chmod 600", |l, dir| {
            l.args(["--audit-key-file", &of_mode(dir, 0o604)])
        }),
        ("no file", 66, "--audit-key-file", "/nope", |l, _| l.args(["--audit-key-file", "/nope"])),
    ])
    .await;
}

#[tokio::test]
async fn a_failed_socket_is_explained() {
    assert_refused(&[
        ("path too long", 73, "--socket", "107", |l, dir| l.socket_path(dir.join("x".repeat(108)))),
        ("no directory", 73, "--socket", "directory", |l, dir| l.socket_path(dir.join("no/llm"))),
        ("a file for a directory", 73, "--socket", "directory", |l, dir| {
            l.socket_path(Path::new(&file(dir, "f", "")).join("llm"))
        }),
        ("a regular file", 73, "--socket", "not a socket", |l, dir| l.socket_path(file(dir, "f", "precious"))),
        ("a directory", 73, "--socket", "not a socket", |l, dir| l.socket_path(dir_of_mode(dir, "d", 0o755))),
        ("the log", 73, "--log", "/nope", |l, _| l.args(["--log", "/nope/log"])),
    ])
    .await;
}

#[tokio::test]
async fn a_failed_audit_log_is_explained() {
    assert_refused(&[
        ("no directory", 74, "--audit", "directory", |l, dir| l.audit_path(dir.join("no/a.jsonl"))),
        ("something else", 74, "--audit", "not an audit file", |l, dir| l.audit_path(file(dir, "f", "precious"))),
        ("damaged", 74, "--audit", "line 1", |l, dir| l.audit_path(file(dir, "f", "{}\n"))),
        ("a device", 74, "--audit", "regular file", |l, _| l.audit_path("/dev/full")),
        ("a directory", 74, "--audit", "regular file", |l, dir| l.audit_path(dir)),
        ("beside the socket", 78, "--audit", "which the sandbox sees", |l, dir| l.audit_path(dir.join("run/a.jsonl"))),
        ("below the socket", 78, "--audit", "which the sandbox sees", |l, dir| {
            l.audit_path(dir_of_mode(dir, "run/log", 0o700).join("a.jsonl"))
        }),
        ("no room", 74, "--audit", "cannot write", |l, _| l.fsize(10)),
    ])
    .await;
}

#[tokio::test]
async fn forbidden_files_are_reported_as_permission_errors() {
    assert_refused(&[
        ("audit", 77, "--audit", "ermission", |l, dir| {
            l.wrapper(UNPRIVILEGED).audit_path(dir_of_mode(dir, "d", 0o500).join("a"))
        }),
        ("socket", 77, "--socket", "ermission", |l, dir| {
            l.wrapper(UNPRIVILEGED).socket_path(dir_of_mode(dir, "d", 0o500).join("llm"))
        }),
        ("key", 77, "--key-file", "ermission", |l, dir| {
            let locked = dir_of_mode(dir, "d", 0);
            l.wrapper(UNPRIVILEGED).args(["--key-file", &locked.join("k").display().to_string()])
        }),
        ("prices", 77, "--prices", "ermission", |l, dir| {
            let locked = dir_of_mode(dir, "d", 0);
            l.wrapper(UNPRIVILEGED).args(["--prices", &locked.join("p").display().to_string()])
        }),
        ("log", 77, "--log", "ermission", |l, dir| {
            let locked = dir_of_mode(dir, "d", 0o500);
            l.wrapper(UNPRIVILEGED).args(["--log", &locked.join("l").display().to_string()])
        }),
    ])
    .await;
}

#[tokio::test]
async fn contradicting_flags_are_a_configuration_error() {
    assert_refused(&[
        ("metadata is a list", 78, "--metadata", "object", |l, _| l.args(["--metadata", "[]"])),
        ("metadata is no JSON", 78, "--metadata", "object", |l, _| l.args(["--metadata", "{"])),
        ("metadata file", 78, "--metadata-file", "object", |l, dir| l.args(["--metadata-file", &file(dir, "m", "1")])),
        ("prices", 78, "--prices", "model/info", |l, dir| l.args(["--prices", &file(dir, "p", "{}")])),
        ("no prices in them", 78, "--prices", "no model", |l, dir| {
            l.args(["--prices", &file(dir, "p", r#"{"data":[]}"#)])
        }),
        ("a param that re-keys", 78, "--allow-param", "api_base", |l, _| l.args(["--allow-param", "api_base"])),
        ("a header that leaks", 78, "--pass-response-header", "set-cookie", |l, _| {
            l.args(["--pass-response-header", "set-cookie"])
        }),
        ("no certificates", 78, "--ca", "certificate", |l, dir| {
            l.upstream("https://localhost:9").args(["--ca", &file(dir, "c", "nothing")])
        }),
    ])
    .await;
}

#[tokio::test]
async fn a_second_sidecar_takes_nothing_from_the_first() {
    let upstream = Upstream::chat("hello").start().await;
    let first = Sidecar::to(&upstream).start().await;
    let body = json!({"model": "m", "messages": []});
    first.post("/v1/chat/completions", &body).await.expect(200);

    let dir = TempDir::new();
    let second = Sidecar::to(&upstream).audit_path(dir.join("a.jsonl"));
    let socket = second.socket_path(first.socket()).fail().await;
    let audit = Sidecar::to(&upstream).audit_path(first.audit_path()).fail().await;

    one_helpful_line(&socket, 73, "--socket", "another process answers").expect("a clear line");
    one_helpful_line(&audit, 74, "--audit", "another").expect("a clear line");
    assert!(!dir.join("a.jsonl").exists(), "no log of a run that never was");
    first.post("/v1/chat/completions", &body).await.expect(200);
    assert_eq!(first.stop().await, 0);
    assert_eq!(first.audit().calls().len(), 2);
}

#[tokio::test]
async fn check_fails_with_78_for_every_fault() {
    assert_refused(&[
        ("run id", 78, "--run-id", "", |l, _| l.subcommand("check").run_id("R1")),
        ("socket", 78, "--socket", "directory", |l, _| l.subcommand("check").socket_path("/nope/s")),
        ("audit", 78, "--audit", "not an audit file", |l, dir| l.subcommand("check").audit_path(file(dir, "f", "x"))),
        ("audit key", 78, "--audit-key-file", "/nope", |l, _| {
            l.subcommand("check").args(["--audit-key-file", "/nope"])
        }),
        ("audit directory", 78, "--audit", "/nope", |l, _| l.subcommand("check").audit_path("/nope/a")),
        ("key file", 78, "--key-file", "/nope", |l, _| l.subcommand("check").args(["--key-file", "/nope"])),
        ("no key in it", 78, "--key-file", "empty", |l, dir| {
            l.subcommand("check").args(["--key-file", &file(dir, "e.key", "")])
        }),
        ("prices", 78, "--prices", "/nope", |l, _| l.subcommand("check").args(["--prices", "/nope"])),
        ("metadata", 78, "--metadata", "object", |l, _| l.subcommand("check").args(["--metadata", "[]"])),
        ("permission", 78, "--audit", "ermission", |l, dir| {
            l.subcommand("check").wrapper(UNPRIVILEGED).audit_path(dir_of_mode(dir, "d", 0o500).join("a"))
        }),
    ])
    .await;
}
