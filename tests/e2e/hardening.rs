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

mod user;

use user::{STRANGER, as_stranger};

const CHAT: &str = "/v1/chat/completions";

/// Returns a member of `/proc/PID/status` for every thread.
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

/// Starts a sidecar without a log file, one with a log file, and one without audit syncs.
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
    // Both sides are root without capabilities, like any user with its own processes.
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

/// Runs the sidecar under strace with these options; the calls of all threads go to one file.
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
        let launch = launch.args(["--log", &log, "--log-level", "trace", "--drain", "300s"]);
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
    // The flag `__SO_ACCEPTCON` marks a listening socket.
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
    // A connection of ours that has just been dropped may still be open in the sidecar.
    sidecar.fds_below(before + 3).await;
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
