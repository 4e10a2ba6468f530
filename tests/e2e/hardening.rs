//! The privileges that the process has dropped, seen from outside.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use serde_json::{Value, json};
use sluice_testkit::sidecar::{CANARY, UNPRIVILEGED};
use sluice_testkit::tls::TlsTerminator;
use sluice_testkit::{Launch, Sidecar, TempDir, Upstream, write_private};

use crate::upstreams::call;

const CHAT: &str = "/v1/chat/completions";

/// A member of `/proc/PID/status`, of every thread.
fn status_of_threads(sidecar: &Sidecar, member: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", sidecar.pid())).expect("the process runs").flatten();
    let statuses = tasks.map(|task| fs::read_to_string(task.path().join("status")).expect("the thread runs"));
    let line = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(member)?.strip_prefix(':'));
        line.expect("the kernel says so").trim().to_owned()
    };
    statuses.map(line).collect()
}

fn streaming() -> Value {
    json!({"model": "m", "messages": [], "stream": true})
}

/// With and without a log file, whose writer is a thread of its own.
async fn each_way(upstream: &Upstream) -> Vec<(&'static str, Sidecar)> {
    let plain = Sidecar::to(upstream);
    let logging = Sidecar::to(upstream);
    let log = logging.dir().join("log").display().to_string();
    let unsynced = Sidecar::to(upstream).args(["--audit-sync", "off"]);
    vec![
        ("plain", plain.start().await),
        ("with a log file", logging.args(["--log", &log]).start().await),
        ("without syncs", unsynced.start().await),
    ]
}

#[tokio::test]
async fn every_thread_has_the_filter_and_no_privileges() {
    let upstream = Upstream::provider("hello").start().await;
    for (way, sidecar) in each_way(&upstream).await {
        sidecar.post(CHAT, call()).await.expect(200);
        let threads = sidecar.threads();
        for (member, value) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
            assert_eq!(status_of_threads(&sidecar, member), vec![value; threads], "{way}: {member}");
        }
    }
}

/// A user and a group that own nothing on any host.
const STRANGER: (u32, u32) = (2_000_000_123, 2_000_000_124);

/// A sidecar of the unmatched_row, who may remove the socket.
fn as_stranger(launch: Launch) -> Launch {
    let (uid, gid) = STRANGER;
    chown(launch.dir().join("run"), Some(uid), Some(gid)).expect("we are root");
    launch.args(["--user", &format!("{uid}:{gid}")])
}

/// The status of every thread of a sidecar without capabilities.
#[track_caller]
fn assert_nothing_to_give(sidecar: &Sidecar, (uid, gid): (u32, u32)) {
    let none = "0000000000000000".to_owned();
    let all_four = |id: u32| [id; 4].map(|id| id.to_string()).join("\t");
    for (member, value) in [
        ("CapInh", none.clone()),
        ("CapPrm", none.clone()),
        ("CapEff", none.clone()),
        ("CapBnd", none.clone()),
        ("CapAmb", none),
        ("NoNewPrivs", "1".to_owned()),
        ("Seccomp", "2".to_owned()),
        ("Uid", all_four(uid)),
        ("Gid", all_four(gid)),
    ] {
        assert_eq!(status_of_threads(sidecar, member), vec![value; sidecar.threads()], "{member}");
    }
}

#[tokio::test]
async fn a_sidecar_becomes_its_user_without_any_capability() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = as_stranger(Sidecar::to(&upstream)).start().await;
    sidecar.post(CHAT, call()).await.expect(200);

    assert_nothing_to_give(&sidecar, STRANGER);
    let groups = status_of_threads(&sidecar, "Groups");
    assert!(groups.iter().all(String::is_empty), "{groups:?}");
    assert_eq!(
        (&sidecar.ready()["uid"], &sidecar.ready()["hardening"]["capabilities"]),
        (&json!(STRANGER.0), &json!("applied"))
    );
    // The file was opened before, and belongs to the user who did that.
    let audit = fs::metadata(sidecar.audit_path()).expect("it was made");
    assert_eq!((audit.uid(), audit.mode() & 0o777), (0, 0o600));
    assert_eq!(sidecar.stop().await, 0);
    assert!(!sidecar.socket().exists(), "it may remove its socket");
    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome", "close"]);
}

#[tokio::test]
async fn root_without_a_user_becomes_an_unprivileged_one() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    assert_nothing_to_give(&sidecar, (UNPRIVILEGED, UNPRIVILEGED));
    assert_eq!(
        (&sidecar.ready()["uid"], &sidecar.ready()["hardening"]["capabilities"]),
        (&json!(UNPRIVILEGED), &json!("applied"))
    );
    // Only the user who started it may connect.
    let socket = fs::metadata(sidecar.socket()).expect("it is there");
    assert_eq!((socket.uid(), socket.mode() & 0o777), (0, 0o600));
    assert_eq!(sidecar.stop().await, 0);
    assert!(!sidecar.stderr().contains("user 65521"), "it has the rights that it needs: {}", sidecar.stderr());
    assert!(!sidecar.socket().exists(), "it may remove its socket");
}

/// A directory of the operator stays as it is, so the sidecar may not remove its socket there.
#[tokio::test]
async fn a_socket_that_stays_is_replaced_by_the_next() {
    let upstream = Upstream::provider("hello").start().await;
    let run = TempDir::new();
    fs::write(run.join("precious"), "x").expect("a fresh directory");
    for _ in 0..2 {
        let sidecar = Sidecar::to(&upstream).socket_path(run.join("llm.sock")).start().await;
        sidecar.post(CHAT, call()).await.expect(200);
        assert_eq!(sidecar.stop().await, 0);
        assert!(sidecar.stderr().contains("user 65521 cannot remove the socket"), "{}", sidecar.stderr());
        assert!(sidecar.socket().exists());
        assert_eq!(fs::metadata(run.path()).expect("it is there").uid(), 0);
    }
    // Others may put files there at any time.
    let open = TempDir::new();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let sidecar = Sidecar::to(&upstream).socket_path(open.join("llm.sock")).start().await;
    assert_eq!(fs::metadata(open.path()).expect("it is there").uid(), 0);
    drop(sidecar);
}

#[tokio::test]
async fn a_killed_sidecar_continues_the_file_of_root() {
    let upstream = Upstream::provider("hello").start().await;
    let (run, log) = (TempDir::new(), TempDir::new());
    let launch = || Sidecar::to(&upstream).socket_path(run.join("llm.sock")).audit_path(log.join("r1.0.jsonl"));
    let killed = launch().start().await;
    killed.post(CHAT, call()).await.expect(200);
    killed.kill().await;

    let sidecar = launch().start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    assert_eq!(sidecar.stop().await, 0);

    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome", "epoch", "intent", "outcome", "close"]);
    assert!(!sidecar.socket().exists(), "the directory was empty, and is its user's now");
}

#[tokio::test]
async fn root_stays_root_only_when_told_to() {
    let upstream = Upstream::provider("hello").start().await;
    for user in ["root", "0"] {
        let sidecar = Sidecar::to(&upstream).args(["--user", user]).start().await;
        sidecar.post(CHAT, call()).await.expect(200);
        assert_nothing_to_give(&sidecar, (0, 0));
        assert_eq!(sidecar.ready()["uid"], 0);
        assert_eq!(sidecar.stop().await, 0);
        assert!(sidecar.stderr().contains("--user root: the sidecar keeps root's user id"), "{}", sidecar.stderr());
    }
}

#[tokio::test]
async fn an_upstream_that_the_user_cannot_reach_is_named() {
    let upstream = Upstream::provider("hello").start_unix().await;
    fs::set_permissions(upstream.socket(), fs::Permissions::from_mode(0o600)).expect("it is ours");
    let sidecar = Sidecar::to(&upstream).start().await;
    sidecar.post(CHAT, call()).await.expect_refusal(502, "upstream_unreachable");
    assert_eq!(sidecar.stop().await, 0);
    let warning = format!("user 65521 may not connect to {}", upstream.socket().display());
    assert!(sidecar.stderr().contains(&warning), "{}", sidecar.stderr());
}

#[tokio::test]
async fn a_user_that_cannot_be_become_stops_the_start() {
    // Root without any capability.
    let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    let ended = launch.args(["--user", "1234"]).finish().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (77, ""), "{}", ended.stderr);
    assert!(
        ended.stderr.starts_with("sluice-proxy: --user: cannot become user 1234 with group 1234"),
        "{}",
        ended.stderr
    );
    let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    let ended = launch.finish().await;
    assert_eq!(ended.code, 77, "{}", ended.stderr);
    assert!(ended.stderr.contains("stay root with --user root"), "{}", ended.stderr);
    for text in ["0:0", "nobody", "1:2:3"] {
        let ended = Sidecar::to_url("http://127.0.0.1:9").args(["--user", text]).finish().await;
        assert_eq!(ended.code, 64, "{text}: {}", ended.stderr);
        assert!(ended.stderr.contains("want UID or UID:GID"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_sidecar_with_a_user_ends_with_its_parent() {
    let upstream = Upstream::provider("hello").start().await;
    let launch = as_stranger(Sidecar::to(&upstream)).wrapper(["sh", "-c", "\"$@\"; exit $?", "sh"]);
    let sidecar = launch.args(["--die-with-parent"]).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let parent: i32 = status_of_threads(&sidecar, "PPid")[0].parse().expect("a number");

    nix::sys::signal::kill(nix::unistd::Pid::from_raw(parent), nix::sys::signal::Signal::SIGKILL).expect("it runs");

    assert_eq!(sidecar.wait().await.signal, Some(9));
    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome", "close"]);
}

#[tokio::test]
async fn the_user_cannot_reach_a_socket_of_root() {
    // As the Docker Engine makes its own.
    for (mode, status, calls) in [(0o660, 502, 0), (0o666, 200, 1)] {
        let upstream = Upstream::provider("hello").start_unix().await;
        fs::set_permissions(upstream.socket(), fs::Permissions::from_mode(mode)).expect("it is ours");
        let sidecar = as_stranger(Sidecar::to(&upstream)).start().await;

        sidecar.post(CHAT, call()).await.expect(status);

        assert_eq!(upstream.requests().len(), calls, "mode {mode:o}");
    }
}

#[tokio::test]
async fn over_tcp_no_unix_socket_is_ever_made() {
    let upstream = Upstream::provider("hello").start().await;
    let dir = TempDir::new();
    let sidecar = traced(Sidecar::to(&upstream), &dir, &["-e", "trace=socket,seccomp"]).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    assert_eq!(sidecar.stop().await, 0);
    let trace = trace(&dir);
    let filtered = position(&trace, "seccomp(SECCOMP_SET_MODE_FILTER").expect("there is a filter");
    let late: Vec<_> = trace[filtered..].iter().filter(|line| line.contains("socket(")).collect();
    assert!(!late.is_empty() && late.iter().all(|line| line.contains("AF_INET")), "{late:?}");
}

#[tokio::test]
async fn each_thread_has_a_task() {
    let upstream = Upstream::provider("hello").start().await;
    // The event loop, the log's writer, and the audit log's writer if it syncs.
    for ((way, sidecar), threads) in each_way(&upstream).await.into_iter().zip([3, 3, 2]) {
        let before = sidecar.threads();
        for _ in 0..3 {
            sidecar.post(CHAT, streaming()).await.expect(200);
        }
        assert_eq!((before, sidecar.threads()), (threads, threads), "{way}");
    }
}

#[tokio::test]
async fn core_dumps_are_disabled() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;
    let limits = fs::read_to_string(format!("/proc/{}/limits", sidecar.pid())).expect("the process runs");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    let words: Vec<_> = core.split_whitespace().skip(4).take(2).collect();
    assert_eq!(words, ["0", "0"], "soft and hard");
}

#[tokio::test]
async fn the_same_user_cannot_read_the_process() {
    // Root without capabilities on both sides, like any user with its own processes.
    let user = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let look = |what: &str| {
        let output =
            Command::new(user[0]).args(&user[1..]).args(["sh", "-c", what]).output().expect("setpriv is there");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let launch = Sidecar::to_url("http://127.0.0.1:9").args(["--user", "root"]);
    let sidecar = launch.wrapper(user).start().await;
    assert!(look("cat /proc/$$/environ; ls /proc/$$/fd; true").1.contains("PATH="), "others of their own they may");

    let pid = sidecar.pid();
    for file in ["environ", "maps", "mem", "fd/0", "auxv"] {
        let (allowed, seen) = look(&format!("head -c 1 /proc/{pid}/{file}"));
        assert!(!allowed && seen.is_empty(), "/proc/PID/{file} can be read");
    }
    assert!(!look(&format!("timeout 5 strace -o /dev/null -p {pid}")).0, "it can be traced");
}

#[tokio::test]
async fn the_same_user_cannot_trace_the_process() {
    let sidecar = as_stranger(Sidecar::to_url("http://127.0.0.1:9")).start().await;
    let (uid, gid) = STRANGER;
    let ids = [format!("--reuid={uid}"), format!("--regid={gid}")];
    let look = |pid: &str| {
        let look = format!("head -c 1 /proc/{pid}/maps && timeout 5 strace -o /dev/null -p {pid}");
        let user = Command::new("setpriv").args(&ids).args(["--clear-groups", "sh", "-c", &look]).output();
        user.expect("setpriv is there")
    };
    assert!(!look("$$").stdout.is_empty(), "others of their own they may");
    let seen = look(&sidecar.pid().to_string());
    assert!(!seen.status.success() && seen.stdout.is_empty(), "{seen:?}");
}

#[tokio::test]
async fn the_ready_line_states_every_measure() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;

    let stated = &sidecar.ready()["hardening"];

    let measures: Vec<_> = stated.as_object().expect("an object").keys().collect();
    assert_eq!(measures, ["capabilities", "landlock", "no_core", "no_new_privileges", "non_dumpable", "seccomp"]);
    for measure in ["capabilities", "no_core", "no_new_privileges", "non_dumpable", "seccomp"] {
        assert_eq!(stated[measure], "applied", "{measure}");
    }
    let words = ["applied", "partial", "not_supported"];
    assert!(words.iter().any(|word| stated["landlock"] == *word), "{stated}");
}

/// strace in front: these system calls of all threads, in one file.
fn traced(launch: Launch, dir: &TempDir, options: &[&str]) -> Launch {
    let trace = dir.join("trace").display().to_string();
    let strace = ["strace", "-f", "-e", "signal=none", "-o", &trace];
    launch.wrapper(strace.iter().chain(options).copied())
}

fn trace(dir: &TempDir) -> Vec<String> {
    let text = fs::read_to_string(dir.join("trace")).expect("strace wrote its trace");
    text.lines().map(str::to_owned).collect()
}

fn position(trace: &[String], what: &str) -> Option<usize> {
    trace.iter().position(|line| line.contains(what))
}

#[tokio::test]
async fn files_are_closed_before_the_second_thread() {
    let upstream = Upstream::provider("hello").start().await;
    let dir = TempDir::new();
    let launch = Sidecar::to(&upstream);
    let log = launch.dir().join("log").display().to_string();
    let launch =
        traced(launch.args(["--log", &log]), &dir, &["-e", "trace=clone,clone3,landlock_restrict_self,seccomp"]);
    let sidecar = launch.start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let stated = sidecar.ready()["hardening"]["landlock"].clone();
    assert_eq!(sidecar.stop().await, 0);

    let trace = trace(&dir);
    let restricted = position(&trace, "landlock_restrict_self(");
    assert_eq!(restricted.is_some(), stated != "not_supported", "{trace:#?}");
    // Landlock holds for the thread that calls it and for those that come after.
    let thread = position(&trace, "clone");
    assert!(restricted.is_none() || thread > restricted, "{trace:#?}");
    assert!(position(&trace, "seccomp(SECCOMP_SET_MODE_FILTER") > thread, "{trace:#?}");
}

#[tokio::test]
async fn a_whole_session_needs_nothing_that_is_denied() {
    let upstream = Upstream::provider("hello").start().await;
    let unix = Upstream::provider("hello").start_unix().await;
    let tls = TlsTerminator::start(&upstream, "DNS:localhost,IP:127.0.0.1", "2");
    let by_name = upstream.url().replace("127.0.0.1", "localhost");
    let ca = tls.ca();
    for (name, url, flags) in [
        ("by name", by_name.as_str(), vec![]),
        ("https", &tls.url("localhost"), vec!["--ca", &ca]),
        ("unix", unix.url(), vec!["--audit-sync", "off"]),
        ("nobody there", "http://nobody-here.invalid:4000", vec!["--connect-timeout", "500ms"]),
    ] {
        let dir = TempDir::new();
        let launch = Sidecar::to_url(url).args(flags);
        let log = launch.dir().join("log").display().to_string();
        let launch = launch.args(["--log", &log, "--log-level", "trace"]);
        let sidecar = traced(launch, &dir, &["-Z"]).start().await;

        for body in [call(), streaming(), json!({"api_base": "x"})] {
            sidecar.post(CHAT, body).await;
        }
        sidecar.get("/health").await.expect(200);
        sidecar.get("/nope").await.expect(404);
        let mut leaver = sidecar.stream(CHAT, streaming()).await;
        leaver.send("garbage").await;
        drop(leaver);
        assert_eq!(sidecar.stop().await, 0, "{name}");

        let trace = trace(&dir);
        let denied: Vec<_> = trace.iter().filter(|line| line.contains("EPERM") || line.contains("EACCES")).collect();
        assert!(denied.is_empty(), "{name}: {denied:#?}");
        assert!(!trace.is_empty(), "{name}: strace saw nothing fail at all, so it saw nothing");
    }
}

/// The targets of a process's descriptors.
fn descriptors(sidecar: &Sidecar) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{}/fd", sidecar.pid())).expect("the process runs").flatten();
    links.filter_map(|link| fs::read_link(link.path()).ok()).map(|to| to.display().to_string()).collect()
}

#[tokio::test]
async fn only_what_is_needed_stays_open() {
    let launch = Sidecar::to_url("http://127.0.0.1:9");
    let (key, prices) = (launch.dir().join("up.key"), launch.dir().join("prices.json"));
    write_private(&key, CANARY);
    let model = json!({"model_name": "m", "model_info": {"input_cost_per_token": 1, "output_cost_per_token": 1}});
    fs::write(&prices, json!({"data": [model]}).to_string()).expect("the directory takes files");
    let flags = ["--key-file", &key.display().to_string(), "--prices", &prices.display().to_string()];
    let sidecar = launch.args(flags).start().await;

    let open = descriptors(&sidecar);

    let audit = sidecar.audit_path().display().to_string();
    let directories = [sidecar.socket().parent(), sidecar.audit_path().parent()];
    let [socket, log] = directories.map(|path| path.expect("a directory").display().to_string());
    let of_ours = [audit.as_str(), &socket, &log, "/dev/null"];
    let odd: Vec<_> = open
        .iter()
        .filter(|to| !["pipe:", "socket:", "anon_inode:"].iter().any(|kind| to.starts_with(kind)))
        .filter(|to| !of_ours.contains(&to.as_str()))
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
    let sockets: BTreeSet<_> = open.iter().filter_map(|to| to.strip_prefix("socket:[")?.strip_suffix(']')).collect();
    let table = fs::read_to_string(format!("/proc/{}/net/unix", sidecar.pid())).expect("the process runs");
    let ours: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|row| row.get(6).is_some_and(|inode| sockets.contains(inode)))
        .collect();
    // __SO_ACCEPTCON
    assert_eq!(ours.iter().filter(|row| row[3] == "00010000").count(), 1, "one listener: {ours:?}");
}

#[tokio::test]
async fn connections_are_closed_when_their_calls_are_over() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let before = sidecar.fds();
    for _ in 0..20 {
        sidecar.post(CHAT, streaming()).await.expect(200);
        sidecar.get("/nope").await.expect(404);
    }
    // A connection of ours that has just been dropped may still be in the sidecar's hands.
    assert!(sidecar.fds() <= before + 2, "{} after {before}", sidecar.fds());
}

#[tokio::test]
async fn the_key_is_in_nothing_that_others_can_read() {
    let upstream = Upstream::provider(CANARY).start().await;
    let launch = Sidecar::to(&upstream);
    let log = launch.dir().join("log").display().to_string();
    let sidecar = launch.args(["--log", &log, "--log-level", "trace"]).start().await;
    for body in [call(), streaming(), json!({"model": "m", "messages": [CANARY]}), json!({"model": "m", "x": CANARY})] {
        let answer = sidecar.post(CHAT, body).await;
        assert!(!answer.text().contains(CANARY), "{}", answer.text());
    }
    for file in ["cmdline", "environ", "comm", "status"] {
        let text = fs::read(format!("/proc/{}/{file}", sidecar.pid())).expect("the process runs, and we are root");
        assert!(!String::from_utf8_lossy(&text).contains(CANARY), "/proc/PID/{file}");
    }
    assert_eq!(sidecar.stop().await, 0);
    let text = fs::read_to_string(&log).expect("there is a log");
    assert!(text.contains("ready") && !text.contains(CANARY), "{text}");
    // Stdout, stderr and every file of its directory are searched when the sidecar is dropped.
}
