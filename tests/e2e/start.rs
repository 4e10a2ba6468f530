//! How a sidecar starts, and how it says why it does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::{Value, json};
use sluice_testkit::sidecar::CANARY;
use sluice_testkit::upstream::Nowhere;
use sluice_testkit::{Finished, Launch, Sidecar, TempDir, Upstream};

/// Root without its power to read and write what its mode forbids: permissions count, and the binary can
/// still be reached wherever it was built.
const UNPRIVILEGED: [&str; 3] = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-all",
];

/// Name, exit code, the flag at fault, a word of the cause, and how it comes about.
type Case = (
    &'static str,
    i32,
    &'static str,
    &'static str,
    fn(Launch, &Path) -> Launch,
);

fn launch(dir: &TempDir) -> Launch {
    Sidecar::to_url("http://127.0.0.1:9")
        .socket_path(dir.join("s"))
        .audit_path(dir.join("a.jsonl"))
}

/// `https` needs a CA; any upstream needs to be given once only.
fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).expect("a test's directory takes files");
    path.display().to_string()
}

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
        let failed = change(launch(&dir), dir.path()).fail().await;
        if let Err(fault) = one_helpful_line(&failed, *code, flag, cause) {
            faults.push(format!("{name}: {fault}"));
        }
        if let Some(left) = left_behind(dir.path()) {
            faults.push(format!("{name}: left {left} behind"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// One line that names the flag, the cause and a fix.
fn one_helpful_line(failed: &Finished, code: i32, flag: &str, cause: &str) -> Result<(), String> {
    let line = &failed.stderr;
    let fixes = [
        "want ", "wants ", "needs ", "; ", "create it", "choose", "give ", "write ", "leave ", "such as", "has ",
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

/// A socket, under its own or its temporary name.
fn left_behind(dir: &Path) -> Option<String> {
    let names = fs::read_dir(dir).expect("the test's directory").flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name == "s" || name.starts_with(".s"))
}

#[tokio::test]
async fn the_ready_line_says_what_is_ready() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;

    let ready = sidecar.ready().clone();

    assert_eq!(
        ready.as_object().expect("an object").keys().collect::<Vec<_>>(),
        ["build", "event", "hardening", "pid", "policy", "run_id", "socket", "version"]
    );
    assert_eq!(ready["pid"], sidecar.pid());
    assert_eq!(ready["run_id"], "r1");
    assert_eq!(ready["socket"], sidecar.socket().display().to_string());
    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(sidecar.stdout().lines().count(), 1, "{}", sidecar.stdout());
    let audit = sidecar.audit();
    for (member, of_open) in [("policy", "policy"), ("version", "proxy_version"), ("build", "build"), ("pid", "pid")] {
        assert_eq!(ready[member], audit.open()[of_open], "{member}");
    }
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
        ("a time beyond reason", 64, "--drain", "year", |l, _| l.args(["--drain", "90y"])),
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
async fn what_is_no_key_is_refused_and_never_shown() {
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
    ])
    .await;
}

#[tokio::test]
async fn a_socket_that_cannot_be_made_is_said_why() {
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
async fn an_audit_log_that_cannot_be_begun_is_said_why() {
    assert_refused(&[
        ("no directory", 74, "--audit", "directory", |l, dir| l.audit_path(dir.join("no/a.jsonl"))),
        ("not empty", 74, "--audit", "not empty", |l, dir| l.audit_path(file(dir, "f", "{}\n"))),
        ("a device", 74, "--audit", "regular file", |l, _| l.audit_path("/dev/full")),
        ("a directory", 74, "--audit", "regular file", |l, dir| l.audit_path(dir)),
        ("no room", 74, "--audit", "large", |l, _| l.fsize(10)),
    ])
    .await;
}

#[tokio::test]
async fn what_permissions_forbid_is_a_question_of_permission() {
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
async fn what_contradicts_itself_is_a_configuration_error() {
    assert_refused(&[
        ("metadata is a list", 78, "--metadata", "object", |l, _| l.args(["--metadata", "[]"])),
        ("metadata is no JSON", 78, "--metadata", "object", |l, _| l.args(["--metadata", "{"])),
        ("metadata file", 78, "--metadata-file", "object", |l, dir| {
            l.args(["--metadata-file", &file(dir, "m", "1")])
        }),
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

    let socket = Sidecar::to(&upstream).socket_path(first.socket()).fail().await;
    let audit = Sidecar::to(&upstream).audit_path(first.audit_path()).fail().await;

    one_helpful_line(&socket, 73, "--socket", "another process answers").expect("a clear line");
    one_helpful_line(&audit, 74, "--audit", "another").expect("a clear line");
    first.post("/v1/chat/completions", &body).await.expect(200);
    assert_eq!(first.stop().await, 0);
    assert_eq!(first.audit().calls().len(), 2);
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let dir = TempDir::new();
    drop(UnixListener::bind(dir.join("s")).expect("a fresh directory takes a socket"));
    assert!(dir.join("s").exists(), "its file outlives a listener");

    let sidecar = launch(&dir).start().await;

    assert_eq!(sidecar.get("/health").await.expect(200).json()["runId"], "r1");
}

#[tokio::test]
async fn a_socket_path_may_have_107_bytes_whatever_its_last_part() {
    for name in ["s", "a-socket-with-quite-a-long-name"] {
        let dir = TempDir::new();
        let padding = 107 - dir.path().as_os_str().len() - name.len() - 2;
        let inner = dir.join(&"d".repeat(padding));
        fs::create_dir(&inner).expect("a fresh directory");
        let socket = inner.join(name);
        assert_eq!(socket.as_os_str().len(), 107);

        let sidecar = Sidecar::to_url("http://127.0.0.1:9").socket_path(&socket).start().await;

        sidecar.get("/health").await.expect(200);
    }
}

#[tokio::test]
async fn the_socket_has_its_mode_whatever_the_umask() {
    for (umask, flag, mode) in [("077", None, 0o666), ("000", Some("0600"), 0o600), ("777", Some("660"), 0o660)] {
        let umasked = format!("umask {umask}; exec \"$@\"");
        let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(["sh", "-c", &umasked, "sh"]);
        let flags = flag.map(|mode| ["--socket-mode", mode]);

        let sidecar = launch.args(flags.into_iter().flatten()).start().await;

        let meta = fs::metadata(sidecar.socket()).expect("the socket is there");
        assert_eq!(meta.permissions().mode() & 0o777, mode, "umask {umask}");
        let audit = fs::metadata(sidecar.audit_path()).expect("the log is there");
        assert_eq!(audit.permissions().mode() & 0o177, 0, "the log is its owner's alone");
    }
}

#[tokio::test]
async fn a_dead_upstream_does_not_stop_a_start() {
    let nowhere = Nowhere::new();
    let sidecar = Sidecar::to_url(&nowhere.url()).start().await;

    for _ in 0..2 {
        let answer = sidecar.post("/v1/chat/completions", json!({"model": "m", "messages": []})).await;
        answer.expect_refusal(502, "upstream_unreachable");
    }

    sidecar.get("/health").await.expect(200);
    assert_eq!(sidecar.stop().await, 0);
}

#[tokio::test]
async fn the_key_comes_by_stdin_or_file_with_or_without_a_newline() {
    let key_file = |launch: Launch, text: &str| {
        let path = file(launch.dir(), "up.key", text);
        launch.stdin("").args(["--key-file", &path])
    };
    let line = format!("{CANARY}\n");
    let windows = format!("{CANARY}\r\n");
    let ways: [(&str, &dyn Fn(Launch) -> Launch); 5] = [
        ("stdin", &|launch| launch),
        ("stdin with a newline", &|launch| launch.stdin(line.clone())),
        ("stdin named", &|launch| launch.stdin(windows.clone()).args(["--key-file", "-"])),
        ("a file", &|launch| key_file(launch, CANARY)),
        ("a file with a newline", &|launch| key_file(launch, &line)),
    ];
    for (name, way) in ways {
        let upstream = Upstream::chat("hello").start().await;
        let sidecar = way(Sidecar::to(&upstream)).start().await;

        sidecar.post("/v1/chat/completions", json!({"model": "m", "messages": []})).await.expect(200);

        let sent = upstream.only_request();
        assert_eq!(sent.headers_named("authorization"), [format!("Bearer {CANARY}")], "{name}");
    }
}

#[tokio::test]
async fn variables_stand_in_for_flags_and_flags_win() {
    let upstream = Upstream::chat("hello").start().await;
    let launch = Sidecar::to_url("unused").without("--upstream").without("--account");
    let launch = launch.env("SLUICE_UPSTREAM", upstream.url()).env("SLUICE_ACCOUNT", "acct-env");
    let launch = launch.env("SLUICE_RUN_ID", "r-env").env("SLUICE_ATTEMPT", "7").env("SLUICE_MODEL", "m n");
    let launch = launch.env("SLUICE_MAX_CALLS", "9").args(["--max-calls", "2"]);

    let sidecar = launch.start().await;

    for (model, status) in [("m", 200), ("n", 200), ("o", 400)] {
        let answer = sidecar.post("/v1/chat/completions", json!({"model": model, "messages": []})).await;
        assert_eq!(answer.status, status, "{model}");
    }
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    let open = audit.open();
    assert_eq!(
        (&open["billing_account_id"], &open["run_id"], &open["attempt"], &open["limits"]["max_calls"]),
        (&json!("acct-env"), &json!("r1"), &json!(7), &json!(2))
    );
}

#[tokio::test]
async fn help_begins_with_examples_and_names_a_variable_for_each_flag() {
    let help = Sidecar::to_url("http://127.0.0.1:9").arg("--help").finish().await;

    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    let examples = help.stdout.find("Examples:").expect("there are examples");
    let usage = help.stdout.find("Usage:").expect("there is a usage line");
    assert!(examples < usage, "{}", help.stdout);
    let flags: Vec<_> = help.stdout.lines().filter_map(|line| line.trim().strip_prefix("--")).collect();
    let names = flags.iter().filter_map(|line| line.split([' ', '.', '[']).next());
    let names: Vec<_> = names.filter(|name| !["help", "version"].contains(name)).collect();
    assert!(names.len() >= 34, "{names:?}");
    for name in names {
        let variable = format!("[env: SLUICE_{}=", name.replace('-', "_").to_uppercase());
        assert!(help.stdout.contains(&variable), "{variable} in {}", help.stdout);
    }
}

#[tokio::test]
async fn the_version_is_that_of_the_ready_line() {
    let version = Sidecar::to_url("http://127.0.0.1:9").arg("--version").finish().await;
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;

    let said = format!("sluice-proxy {}\n", sidecar.ready()["version"].as_str().expect("a version"));
    assert_eq!((version.code, version.stdout, version.stderr), (0, said, String::new()));
}

#[tokio::test]
async fn check_says_what_would_be_done_and_does_nothing() {
    let dir = TempDir::new();

    let checked = launch(&dir).subcommand("check").args(["--max-calls", "3", "--log", "/nope/log"]).finish().await;

    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""));
    let said: Value = serde_json::from_str(&checked.stdout).expect("check prints JSON");
    assert_eq!((&said["run_id"], &said["account"]), (&json!("r1"), &json!("acct-1")));
    assert_eq!(said["rules"]["limits"]["max_calls"], 3);
    let made: Vec<_> = fs::read_dir(dir.path()).expect("the directory").flatten().collect();
    assert!(made.is_empty(), "{made:?}");
    let sidecar = launch(&dir).args(["--max-calls", "3"]).start().await;
    assert_eq!(sidecar.ready()["policy"], said["policy"], "the policy has one name");
}

#[tokio::test]
async fn check_fails_with_78_whatever_is_wrong() {
    assert_refused(&[
        ("run id", 78, "--run-id", "", |l, _| l.subcommand("check").run_id("R1")),
        ("socket", 78, "--socket", "directory", |l, _| l.subcommand("check").socket_path("/nope/s")),
        ("audit", 78, "--audit", "not empty", |l, dir| l.subcommand("check").audit_path(file(dir, "f", "x"))),
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
