//! Decisions of an operator: grants, users of runs, and checks before the start.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use sluice_testkit::controller::Daemon;
use sluice_testkit::engine;

use super::*;

/// A directory that other users can read, as a grant has to be.
fn directory(sluice: &Sluice, name: &str) -> String {
    let path = sluice.dir().join(name);
    fs::create_dir_all(&path).expect("a test's directory takes others");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
    fs::canonicalize(path).expect("it is there").display().to_string()
}

async fn register(daemon: &Daemon<'_>, id: &str, grants: &[&str]) {
    let body = json!({ "agent_id": id, "grants": grants });
    daemon.request("POST", "/api/v1/agents", &body).await.expect(201);
}

async fn agent_state(daemon: &Daemon<'_>, id: &str) -> Value {
    daemon.get(&format!("/api/v1/agents/{id}")).await.expect(200).json()["state"].clone()
}

#[tokio::test]
async fn a_run_reads_what_its_agent_was_granted() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (data, other) = (directory(&sluice, "granted/data"), directory(&sluice, "granted/other"));
    fs::write(Path::new(&data).join("word"), "seen").expect("it is ours");
    fs::write(Path::new(&other).join("word"), "not granted").expect("it is ours");
    let private = Path::new(&data).join("private");
    fs::write(&private, "root's").expect("it is ours");
    fs::set_permissions(&private, Permissions::from_mode(0o640)).expect("it is ours");
    sluice.file("sluice.toml", &format!("grant_roots = ['{}']\n", directory(&sluice, "granted")));
    let daemon = sluice.serve().await;
    register(&daemon, "bot", &[&data]).await;

    let script = format!(
        "cat /mnt/grants{data}/word; touch /mnt/grants{data}/x || echo ' read-only'; ls /mnt/grants{other} || echo nothing
         while [ ! -e go ]; do sleep 0.05; done"
    );
    let request = json!({"argv": ["sh", "-c", script], "model": "m", "agent_id": "bot"});
    let created = daemon.request("POST", "/api/v1/sandboxes", &request).await.expect(201).json();
    let id = created["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(agent_state(&daemon, "bot").await, "CONNECTED");
    daemon.reaches(&id, "RUNNING").await;
    let files = format!("/api/v1/sandboxes/{id}/files");
    assert_eq!(daemon.get(&format!("{files}/mnt/grants{data}/word")).await.expect(200).text(), "seen");
    daemon.get(&format!("{files}/mnt/grants{data}/private")).await.expect(404);
    daemon.get(&format!("{files}/mnt/grants{other}/word")).await.expect(404);
    let listed = daemon.get(&format!("{files}?path=/mnt/grants{data}")).await.expect(200).json();
    assert_eq!(listed["files"].as_array().map(Vec::len), Some(2), "{listed}");
    daemon.request("PUT", &format!("{files}/mnt/grants{data}/word"), &json!({})).await.expect(403);
    daemon.request("PUT", &format!("{files}/workspace/go"), &json!({})).await.expect(200);
    let run = daemon.reaches(&id, "COMPLETED").await;

    assert_eq!(created["mount_table"], json!([format!("/mnt/grants{data}")]));
    assert_eq!(run["mount_table"], created["mount_table"]);
    assert_eq!(stdout(&daemon, &id).await, "seen read-only\nnothing\n");
    assert!(!Path::new(&data).join("x").exists());
    assert_eq!(agent_state(&daemon, "bot").await, "IDLE");
}

#[tokio::test]
async fn a_grant_that_was_replaced_is_not_mounted() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (data, secret) = (directory(&sluice, "granted/data"), directory(&sluice, "secret"));
    sluice.file("sluice.toml", &format!("grant_roots = ['{}']\n", directory(&sluice, "granted")));
    let daemon = sluice.serve().await;
    register(&daemon, "bot", &[&data]).await;
    let first = daemon.create(shell("while [ ! -e go ]; do sleep 0.05; done")).await;
    daemon.reaches(&first, "RUNNING").await;
    let request = json!({"argv": ["ls", format!("/mnt/grants{data}")], "model": "m", "agent_id": "bot",
                         "depends_on": [first]});
    let id = daemon.create(request).await;

    fs::remove_dir(&data).expect("it is ours");
    symlink(&secret, &data).expect("it is ours");
    go(&sluice, &first);

    daemon.process().says(&format!("creation_failed: {data}: it is a link")).await;
    let run = daemon.reaches(&id, "PENDING").await;
    assert_eq!((&run["waiting_for"], &run["attempt"]), (&json!("retry"), &json!(1)), "{run}");
    assert!(!daemon.get(&format!("/api/v1/sandboxes/{id}/events")).await.expect(200).text().contains(&secret));
    assert_eq!(sluice.containers().await, [""; 0]);
}

#[tokio::test]
async fn a_run_has_a_user_of_its_own() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let mut users = Vec::new();
    for _ in 0..2 {
        let id = daemon.create(shell("echo secret > own; echo written; sleep 600")).await;
        daemon.reaches(&id, "RUNNING").await;
        daemon.logged(&id, 1).await;
        let root = sluice.state().join("runs").join(format!("{id}.0"));
        let user = fs::metadata(root.join("work")).expect("it is there").uid();
        let container = engine::inspect(&format!("sluice-{id}.0")).await;
        assert_eq!(container["Config"]["User"], format!("{user}:{user}"));
        let init = container["State"]["Pid"].as_i64().expect("it runs");
        let shown = |path: &Path| path.display().to_string();
        let socket = shown(&root.join("sock/llm.sock"));
        for command in [
            vec!["cat".to_owned(), shown(&root.join("work/own"))],
            vec!["ls".to_owned(), shown(&root.join("work"))],
            vec!["ls".to_owned(), shown(&Path::new("/proc").join(init.to_string()).join("root").join("workspace"))],
            vec![
                "curl".to_owned(),
                "-s".to_owned(),
                "--unix-socket".to_owned(),
                socket,
                "http://localhost/health".to_owned(),
            ],
        ] {
            assert!(succeeds(&command, 0), "root can: {command:?}");
            assert!(!succeeds(&command, 1001), "user 1001 of the host cannot: {command:?}");
        }
        users.push(user);
    }
    assert!(users[0] != users[1] && users.iter().all(|user| (2_000_000..2_010_000).contains(user)), "{users:?}");
}

fn succeeds(command: &[String], user: u32) -> bool {
    let ran = Command::new(&command[0]).args(&command[1..]).uid(user).gid(user).output();
    ran.expect("the program is there").status.success()
}

#[tokio::test]
async fn a_run_that_cannot_be_created_leaves_nothing() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", "image = 'no/such:image'\n");
    let daemon = sluice.serve().await;
    daemon.process().says("warning: image: ").await;
    register(&daemon, "bot", &[]).await;
    let budget = json!({"kind": "set", "usd": "1"});
    daemon.request("PUT", "/api/v1/budgets/default", &budget).await.expect(200);
    let held = async || daemon.get("/api/v1/budgets").await.expect(200).json()["budgets"][0]["held_usd"].clone();

    let request = json!({"argv": ["true"], "model": "m", "agent_id": "bot", "max_cost_usd": "0.25"});
    let id = daemon.create(request).await;
    daemon.process().says("creation_failed: ").await;
    let run = daemon.reaches(&id, "PENDING").await;

    assert_eq!((&run["waiting_for"], &run["attempt"]), (&json!("retry"), &json!(1)), "{run}");
    assert_eq!((agent_state(&daemon, "bot").await, held().await), (json!("CONNECTED"), json!("0.25")));
    assert_eq!(sluice.containers().await, [""; 0]);
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    daemon.reaches(&id, "COMPLETED").await;
    assert_eq!((agent_state(&daemon, "bot").await, held().await), (json!("IDLE"), json!("0")));
    assert!(sluice.runs().is_empty(), "{:?}", sluice.runs());
}

#[tokio::test]
async fn serve_is_refused_where_each_run_would_fail() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let sockets = sluice.dir().join("sockets").display().to_string();
    let serve = || {
        let words = ["serve", "--listen", "127.0.0.1:0", "--run-dir", &sockets];
        sluice.command(words).env("SLUICE_SANDBOX_ENABLED", "true")
    };
    for (invocation, words) in [
        (serve().env("SLUICE_UID_RANGE", "1-9"), "run users: user"),
        (
            serve().env("SLUICE_UID_RANGE", "2000000000-2000000009"),
            "may be sidecars; name an unused range with uid_range",
        ),
        (serve().args(["--docker-host", "unix:///nope.sock"]), "engine: "),
        (serve().args(["--proxy", "/nope"]), "sidecar program: "),
        (serve().args(["--upstream", "ftp://somewhere"]), "upstream: "),
    ] {
        let ended = invocation.finish().await.expect(1);
        let refused = "each run would fail, so the daemon does not start";
        assert!(ended.stderr.contains(refused) && ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert!(!Path::new(&sockets).exists());
    let preflight = sluice.command(["preflight"]).env("SLUICE_SANDBOX_ENABLED", "true").env("SLUICE_UID_RANGE", "1-9");
    let ended = preflight.finish().await.expect(1);
    assert!(ended.stdout.contains("FAIL  run users"), "{}", ended.stdout);
}

#[tokio::test]
async fn the_daemon_lives_without_its_upstream() {
    let nowhere = ClosedPort::new();
    let sluice = Sluice::with(&nowhere.url(), "sk-some-key");
    let daemon = sluice.serve().await;
    daemon.process().says("upstream: runs fail until their upstream answers").await;
    daemon.get("/alive").await.expect(200);
    daemon.stop().await;
}

#[tokio::test]
async fn runs_of_an_account_have_its_profile() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", "[[profiles]]\naccount = 'small'\nmemory = '96m'\nmax_calls = 1\n");
    let daemon = sluice.serve().await;
    let script = format!("{CALL}; {CALL} || echo refused");
    let create = async |account: &str| {
        let agent = json!({ "agent_id": account, "billing_account_id": account });
        daemon.request("POST", "/api/v1/agents", &agent).await.expect(201);
        let mut run = shell(&script);
        run["agent_id"] = json!(account);
        daemon.create(run).await
    };
    let (small, other) = (create("small").await, create("other").await);
    let (small, other) = (daemon.reaches(&small, "COMPLETED").await, daemon.reaches(&other, "COMPLETED").await);

    assert_eq!(
        (&small["limits"]["memory"], &small["limits"]["max_calls"]),
        (&json!((96 << 20).to_string()), &json!(1)),
        "{small}"
    );
    assert_eq!(other["limits"]["max_calls"], Value::Null, "{other}");
    let id = |run: &Value| run["sandbox_id"].as_str().expect("an id").to_owned();
    assert_eq!(
        (stdout(&daemon, &id(&small)).await, stdout(&daemon, &id(&other)).await),
        ("refused\n".to_owned(), String::new())
    );
}

/// Takes all inotify instances that the kernel gives to one user, and prints their number.
const TAKE_ALL: &str = "import ctypes, itertools
libc = ctypes.CDLL(None)
print('took', next(n for n in itertools.count() if libc.inotify_init() < 0), flush=True)
__import__('signal').pause()";
/// Waits for the inotify event of a file that it makes.
const WATCH: &str = "import ctypes, os
libc = ctypes.CDLL(None)
watch = libc.inotify_init()
assert watch >= 0 and libc.inotify_add_watch(watch, b'.', 0x100) >= 0
open('made', 'w').close()
print('saw', os.read(watch, 4096)[16:20].decode(), flush=True)";

#[tokio::test]
async fn one_sandbox_takes_no_notices_from_another() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let python = |script: &str| json!({"argv": ["python3", "-c", script], "model": "m"});
    let greedy = daemon.create(python(TAKE_ALL)).await;
    let took = daemon.logged(&greedy, 1).await[0]["text"].clone();
    assert!(took.as_str().is_some_and(|text| text.starts_with("took 1")), "the limit of a user: {took}");

    let other = daemon.create(python(WATCH)).await;

    let ended = daemon.reaches(&other, "COMPLETED").await;
    assert_eq!(daemon.logged(&other, 1).await[0]["text"], "saw made\n", "{ended}");
    let seen = daemon.events(&other).await;
    assert!(seen.iter().any(|event| event["event_data"]["file_path"] == "/workspace/made"), "{seen:?}");
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{greedy}"), &Value::Null).await.expect(202);
    daemon.reaches(&greedy, "COMPLETED").await;
}

#[tokio::test]
async fn a_workspace_over_its_limit_ends_the_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", "workspace_max = '1g'\nlimits_max = { workspace = '2g' }\n");
    let daemon = sluice.serve().await;
    // The program writes where no change is reported, and makes a sparse file that takes no space.
    let script =
        "truncate -s 1T holes; mkdir -p repo/.git; head -c 33554432 /dev/urandom > repo/.git/hidden; sleep 600";
    let filling = |limit: &str| {
        let mut request = shell(script);
        request["limits"] = json!({"workspace": limit});
        request
    };

    let (over, within) = (daemon.create(filling("16m")).await, daemon.create(filling("64m")).await);
    let run = daemon.reaches(&over, "FAILED").await;

    assert_eq!(run["failure_code"], "disk_exceeded", "{run}");
    assert!(run["error_message"].as_str().is_some_and(|text| text.contains("limits.workspace")), "{run}");
    let waited = daemon.command(["wait", &over]).finish().await;
    assert_eq!(waited.code, 125, "{}", waited.stderr);
    let run = daemon.reaches(&within, "RUNNING").await;
    assert_eq!((&run["state"], &run["limits"]["workspace"]), (&json!("RUNNING"), &json!("67108864")), "{run}");
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{within}"), &Value::Null).await.expect(202);
    daemon.reaches(&within, "COMPLETED").await;
    let refused = daemon.request("POST", "/api/v1/sandboxes", &filling("3g")).await.expect(422).json();
    assert_eq!(refused["error"]["details"], json!({"field": "limits.workspace", "min": 1 << 20, "max": 2_u64 << 30}));
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_request_names_its_own_idle_time() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let mut request = shell("sleep 600");
    request["limits"] = json!({"idle": "2s"});

    let run = daemon.ended(&daemon.create(request.clone()).await).await;

    assert_eq!((&run["failure_code"], &run["limits"]["idle"]), (&json!("idle_timeout"), &json!("2s")), "{run}");
    request["ttl_minutes"] = json!(5);
    let both = daemon.request("POST", "/api/v1/sandboxes", &request).await.expect(422).json();
    assert!(both["error"]["message"].as_str().is_some_and(|text| text.contains("leave one of them out")), "{both}");
}
