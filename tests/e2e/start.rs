//! The start of a sidecar, and the errors of a failed start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::{Value, json};
use sluice_contract::PrivateKey;
use sluice_testkit::sidecar::CANARY;
use sluice_testkit::upstream::ClosedPort;
use sluice_testkit::{Launch, Sidecar, TempDir, Upstream, write_private};

mod refusals;

fn launch(dir: &TempDir) -> Launch {
    fs::create_dir_all(dir.join("run")).expect("the test's own directory");
    Sidecar::to_url("http://127.0.0.1:9").socket_path(dir.join("run/s")).audit_path(dir.join("a.jsonl"))
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    write_private(&path, text);
    path.display().to_string()
}

#[tokio::test]
async fn the_ready_line_names_run_and_socket() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;

    let ready = sidecar.ready().clone();

    assert_eq!(
        ready.as_object().expect("an object").keys().collect::<Vec<_>>(),
        [
            "audit_public_key", "build", "event", "hardening", "max_memory", "pid", "policy", "run_id", "socket",
            "uid", "version"
        ]
    );
    assert_eq!(ready["audit_public_key"], Value::Null, "it does not sign");
    assert_eq!(ready["pid"], sidecar.pid());
    assert_eq!(ready["run_id"], "r1");
    assert_eq!(ready["uid"], sluice_testkit::sidecar::UNPRIVILEGED);
    assert_eq!(ready["socket"], sidecar.socket().display().to_string());
    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(sidecar.stdout().lines().count(), 1, "{}", sidecar.stdout());
    let audit = sidecar.audit();
    for (member, of_open) in [("policy", "policy"), ("version", "proxy_version"), ("build", "build"), ("pid", "pid")] {
        assert_eq!(ready[member], audit.open()[of_open], "{member}");
    }
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let dir = TempDir::new();
    let launch = launch(&dir);
    drop(UnixListener::bind(dir.join("run/s")).expect("a fresh directory takes a socket"));
    assert!(dir.join("run/s").exists(), "its file outlives a listener");

    let sidecar = launch.start().await;

    assert_eq!(sidecar.get("/health").await.expect(200).json()["runId"], "r1");
}

#[tokio::test]
async fn a_socket_path_may_have_107_bytes() {
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
async fn the_socket_has_its_mode_under_any_umask() {
    let cases: [(_, &[&str], _); 4] = [
        ("000", &[], 0o600),
        ("077", &["--peer-uid", "0"], 0o666),
        ("077", &["--peer-uid", "0", "--socket-mode", "0600"], 0o600),
        ("777", &["--socket-mode", "660"], 0o660),
    ];
    for (umask, flags, mode) in cases {
        let umasked = format!("umask {umask}; exec \"$@\"");
        let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(["sh", "-c", &umasked, "sh"]);

        let sidecar = launch.args(flags).start().await;

        let meta = fs::metadata(sidecar.socket()).expect("the socket is there");
        assert_eq!(meta.permissions().mode() & 0o777, mode, "umask {umask}");
        let audit = fs::metadata(sidecar.audit_path()).expect("the log is there");
        assert_eq!(audit.permissions().mode() & 0o177, 0, "the log is its owner's alone");
    }
}

#[tokio::test]
async fn a_dead_upstream_does_not_stop_a_start() {
    let nowhere = ClosedPort::new();
    let sidecar = Sidecar::to_url(&nowhere.url()).start().await;

    for _ in 0..2 {
        let answer = sidecar.post("/v1/chat/completions", json!({"model": "m", "messages": []})).await;
        answer.expect_refusal(502, "upstream_unreachable");
    }

    sidecar.get("/health").await.expect(200);
    assert_eq!(sidecar.stop().await, 0);
}

#[tokio::test]
async fn the_key_may_come_by_stdin_or_file() {
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

/// The flags of `--help`, in its order.
async fn flags() -> Vec<String> {
    let help = Sidecar::to_url("http://127.0.0.1:9").arg("--help").finish().await;
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    let lines = help.stdout.lines().map(str::trim);
    let flags = lines.filter_map(|line| line.strip_prefix("--")?.split([' ', '.', '[']).next());
    flags.map(str::to_owned).collect()
}

#[tokio::test]
async fn help_begins_with_examples() {
    let help = Sidecar::to_url("http://127.0.0.1:9").arg("--help").finish().await;

    let examples = help.stdout.find("Examples:").expect("there are examples");
    let usage = help.stdout.find("Usage:").expect("there is a usage line");
    assert!(examples < usage, "{}", help.stdout);
}

#[tokio::test]
async fn each_flag_has_a_variable() {
    // Each flag with an invalid value, which the sidecar must notice.
    let wrong = [
        ("socket", "/nope/s"),
        ("upstream", "nowhere"),
        ("audit", "/nope/a"),
        ("run-id", "R1"),
        ("account", " "),
        ("attempt", "x"),
        ("metadata", "[]"),
        ("metadata-file", "/nope"),
        ("key-file", "/nope"),
        ("model", "a,b"),
        ("allow", "whatever"),
        ("allow-param", "api_base"),
        ("allow-beta", "a,b"),
        ("allow-tool", "a,b"),
        ("allow-remote-media", "maybe"),
        ("dialect", "maybe"),
        ("pass-response-header", "set-cookie"),
        ("max-calls", "x"),
        ("max-tokens", "x"),
        ("max-cost-usd", "x"),
        ("prices", "/nope"),
        ("max-concurrency", "x"),
        ("rate", "x"),
        ("max-body", "x"),
        ("max-memory", "x"),
        ("deadline", "x"),
        ("connect-timeout", "x"),
        ("first-byte-timeout", "x"),
        ("idle-timeout", "x"),
        ("bound-output", "x"),
        ("cap-wait", "x"),
        ("drain", "x"),
        ("abort", "x"),
        ("audit-sync", "x"),
        ("audit-key-file", "/nope"),
        ("socket-mode", "9"),
        ("peer-uid", "x"),
        ("control", "/nope/c"),
        ("ca", "/nope"),
        ("on-cap", "x"),
        ("hold", "x"),
        ("relay", "x"),
        ("relay-token-file", "x"),
        ("log-level", "loud"),
        ("user", "nobody"),
        ("die-with-parent", "maybe"),
    ];
    let free = ["graph-id", "log"];
    let mut named: Vec<_> = wrong.iter().map(|(flag, _)| *flag).chain(free).collect();
    let mut all = flags().await;
    named.sort_unstable();
    all.sort_unstable();
    // The examples show some of them too.
    all.dedup();
    assert_eq!(all, named, "this test has every flag");

    for (flag, value) in wrong {
        let variable = format!("SLUICE_{}", flag.replace('-', "_").to_uppercase());
        let launch = Sidecar::to_url("https://127.0.0.1:9").without(&format!("--{flag}"));
        let checked = launch.subcommand("check").env(&variable, value).finish().await;
        assert_ne!(checked.code, 0, "{variable}={value}: {}", checked.stdout);
        assert!(checked.stderr.contains(&format!("--{flag}")), "{variable}: {}", checked.stderr);
    }
    let launch = Sidecar::to_url("http://127.0.0.1:9").env("SLUICE_GRAPH_ID", "g-env");
    let log = launch.dir().join("log");
    let sidecar = launch.env("SLUICE_LOG", &log.display().to_string()).start().await;
    assert_eq!(sidecar.audit().open()["graph_id"], "g-env");
    assert!(log.exists());
}

#[tokio::test]
async fn the_version_is_that_of_the_ready_line() {
    let version = Sidecar::to_url("http://127.0.0.1:9").arg("--version").finish().await;
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;

    let [number, build] = ["version", "build"].map(|name| sidecar.ready()[name].as_str().expect("a text").to_owned());
    let said = format!("sluice-proxy {number} ({build})\n");
    assert_eq!((version.code, version.stdout, version.stderr), (0, said, String::new()));
}

#[tokio::test]
async fn check_prints_the_plan_and_does_nothing() {
    let (dir, keys) = (TempDir::new(), TempDir::new());
    let key = file(keys.path(), "a.key", &"09".repeat(32));
    let flags = ["--max-calls", "3", "--log", "/nope/log", "--audit-key-file", &key];

    let checked = launch(&dir).subcommand("check").args(flags).finish().await;

    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""));
    let said: Value = serde_json::from_str(&checked.stdout).expect("check prints JSON");
    assert_eq!((&said["run_id"], &said["account"]), (&json!("r1"), &json!("acct-1")));
    assert_eq!((&said["rules"]["limits"]["max_calls"], &said["user"]), (&json!(3), &json!("65521:65521")));
    assert_eq!(said["audit_public_key"], PrivateKey::from_seed(&[9; 32]).public().to_string());
    let made = [dir.path(), &dir.join("run")].map(|dir| fs::read_dir(dir).expect("the directory").flatten());
    let made: Vec<_> = made.into_iter().flatten().filter(|entry| entry.file_name() != "run").collect();
    assert!(made.is_empty(), "{made:?}");
    let sidecar = launch(&dir).args(["--max-calls", "3"]).start().await;
    assert_eq!(sidecar.ready()["policy"], said["policy"], "the policy has one name");
}
