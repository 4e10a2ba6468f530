//! The user that a sidecar becomes, and what that user cannot do.

use super::*;

/// A user and a group that own nothing on any host.
pub(super) const STRANGER: (u32, u32) = (2_000_000_123, 2_000_000_124);

/// Lets a sidecar become that user, and gives the user the directory of its socket.
pub(super) fn as_stranger(launch: Launch) -> Launch {
    let (uid, gid) = STRANGER;
    chown(launch.dir().join("run"), Some(uid), Some(gid)).expect("we are root");
    launch.args(["--user", &format!("{uid}:{gid}")])
}

/// Checks that every thread has these ids, no capabilities, no new privileges and the filter.
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
    // Root opened the audit file before, so it belongs to root.
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
    // A directory that other users can write to stays as it is, too.
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
    // The Docker Engine gives its own socket the first mode.
    for (mode, status, calls) in [(0o660, 502, 0), (0o666, 200, 1)] {
        let upstream = Upstream::provider("hello").start_unix().await;
        fs::set_permissions(upstream.socket(), fs::Permissions::from_mode(mode)).expect("it is ours");
        let sidecar = as_stranger(Sidecar::to(&upstream)).start().await;

        sidecar.post(CHAT, call()).await.expect(status);

        assert_eq!(upstream.requests().len(), calls, "mode {mode:o}");
    }
}

#[tokio::test]
async fn root_bound_by_modes_keeps_the_directory_and_restarts() {
    let upstream = Upstream::provider("hello").start().await;
    let (run, log) = (TempDir::new(), TempDir::new());
    for attempt in ["0", "1"] {
        let launch = Sidecar::to(&upstream)
            .socket_path(run.join("llm.sock"))
            .audit_path(log.join(&format!("r1.{attempt}.jsonl")))
            .wrapper(["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]);
        let sidecar = launch.args(["--attempt", attempt]).start().await;
        sidecar.post(CHAT, call()).await.expect(200);
        assert_eq!(sidecar.stop().await, 0);
        assert_eq!(fs::metadata(run.path()).expect("it is there").uid(), 0);
        assert!(sidecar.stderr().contains("user 65521 cannot remove the socket"), "{}", sidecar.stderr());
    }
}

#[tokio::test]
async fn check_tells_that_the_user_cannot_be_changed() {
    let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(["setpriv", "--bounding-set=-setuid"]);
    let ended = launch.subcommand("check").finish().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (78, ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot become user 65521"), "{}", ended.stderr);
}
