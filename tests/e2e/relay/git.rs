//! A push of the own run, with real git: it streams to the controller, and nothing can be fetched.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use sluice_testkit::{PATIENCE, TempDir, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinSet;

use super::*;

const REFS: &str = "/git/r1.git/info/refs?service=git-receive-pack";
const PUSH: &str = "/git/r1.git/git-receive-pack";

/// Runs git without the configuration of this host.
fn git(directory: &Path, args: &[&str], stdin: &[u8]) -> Output {
    use std::io::Write;
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@example.com"])
        .args(args)
        .current_dir(directory)
        .env_clear()
        .envs([("PATH", std::env::var("PATH").unwrap_or_default().as_str()), ("LC_ALL", "C"), ("HOME", "/nonexistent")])
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_TERMINAL_PROMPT", "0")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git is installed");
    let mut pipe = child.stdin.take().expect("it is piped");
    std::thread::scope(|scope| {
        // A program that does not read its input closes it.
        scope.spawn(move || pipe.write_all(stdin));
        child.wait_with_output().expect("git ends")
    })
}

fn expect_git(directory: &Path, args: &[&str]) -> String {
    let done = git(directory, args, b"");
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// A bare repository, and a clone with one commit.
struct Repositories {
    _directory: TempDir,
    bare: PathBuf,
    work: PathBuf,
}

impl Repositories {
    fn new() -> Self {
        let directory = TempDir::new();
        let (bare, work) = (directory.join("bare.git"), directory.join("work"));
        expect_git(directory.path(), &["init", "-q", "--bare", "-b", "main", "bare.git"]);
        expect_git(directory.path(), &["init", "-q", "-b", "main", "work"]);
        expect_git(&work, &["commit", "-q", "--allow-empty", "-m", "first"]);
        Self { _directory: directory, bare, work }
    }

    /// Starts a controller that takes pushes into the bare repository.
    async fn controller(&self) -> Upstream {
        let bare = self.bare.clone();
        Upstream::with(move |request| {
            let program = ["receive-pack", "--stateless-rpc"];
            if request.method == "GET" {
                let refs = git(&bare, &[program[0], program[1], "--http-backend-info-refs", "."], b"").stdout;
                let body = [&b"001f# service=git-receive-pack\n0000"[..], &refs].concat();
                Script::body(200, "application/x-git-receive-pack-advertisement", body)
            } else {
                let report = git(&bare, &[program[0], program[1], "."], &request.body).stdout;
                Script::body(200, "application/x-git-receive-pack-result", report)
            }
        })
        .start()
        .await
    }
}

/// Carries TCP connections to a socket, as the bridge in a sandbox does.
async fn bridge(socket: &Path) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let socket = socket.to_owned();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((mut outer, _)) = listener.accept().await {
            let socket = socket.clone();
            open.spawn(async move {
                let mut inner = UnixStream::connect(socket).await.expect("the sidecar listens");
                // A peer may leave early.
                let _ = copy_bidirectional(&mut outer, &mut inner).await;
            });
        }
    });
    (address, tasks)
}

async fn git_later(directory: &Path, args: &[&str]) -> (bool, String) {
    let (directory, args) = (directory.to_owned(), args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
    let done =
        tokio::task::spawn_blocking(move || git(&directory, &args.iter().map(String::as_str).collect::<Vec<_>>(), b""));
    let done = done.await.expect("no panic");
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[tokio::test]
async fn git_pushes_small_and_large_commits() {
    let repositories = Repositories::new();
    let controller = repositories.controller().await;
    let sidecar = relaying(controller.url()).start().await;
    let (address, _bridge) = bridge(sidecar.socket()).await;
    let url = format!("http://{address}/git/r1.git");
    let work = &repositories.work;

    let (pushed, said) = git_later(work, &["push", &url, "main:agent/x"]).await;
    assert!(pushed, "{said}");
    // The data is over http.postBuffer, so git sends chunks; it is random, so that it stays large.
    let large: Vec<u8> = (0..5 * 1024 * 1024).map(|_| fastrand::u8(..)).collect();
    std::fs::write(work.join("large"), &large).expect("it is ours");
    expect_git(work, &["add", "large"]);
    expect_git(work, &["commit", "-q", "-m", "second"]);
    let (pushed, said) = git_later(work, &["push", &url, "main:agent/x"]).await;
    assert!(pushed, "{said}");

    let head = expect_git(work, &["rev-parse", "HEAD"]);
    assert_eq!(expect_git(&repositories.bare, &["rev-parse", "agent/x"]), head);
    let requests = controller.requests();
    assert!(requests.iter().any(|request| request.body.len() > large.len()), "all of it came");
    let bearer = format!("Bearer {TOKEN}");
    for request in &requests {
        let mut names = request.header_names();
        names.retain(|name| !["content-length", "transfer-encoding"].contains(&name.as_str()));
        names.sort();
        assert_eq!(names, ["authorization", "content-type", "host"]);
        assert_eq!(request.header("authorization"), Some(bearer.as_str()));
        assert_eq!(request.header("content-type"), Some("application/x-git-receive-pack-request"));
        let (method, target) = (request.method.as_str(), request.target.as_str());
        assert!([("GET", REFS), ("POST", PUSH)].contains(&(method, target)), "{method} {target}");
    }
    assert_eq!(sidecar.audit().kinds(), ["open"], "a push is no call");
    silent(sidecar).await;
}

#[tokio::test]
async fn git_shows_why_a_fetch_is_refused() {
    let repositories = Repositories::new();
    let controller = repositories.controller().await;
    let sidecar = relaying(controller.url()).start().await;
    let (address, _bridge) = bridge(sidecar.socket()).await;
    for (run, command, message) in [
        ("r1", "fetch", "remote: this repository takes a push only"),
        ("r2", "fetch", "remote: a sandbox reaches only its own run"),
        ("r2", "push", "remote: a sandbox reaches only its own run"),
    ] {
        let url = format!("http://{address}/git/{run}.git");
        let (done, said) = git_later(&repositories.work, &[command, &url, "main"]).await;
        assert!(!done && said.contains(message), "{command} {run}: {said}");
    }
    assert_eq!(controller.requests().len(), 0);
    for (method, path, status, reason) in [
        ("POST", "/git/r1.git/git-upload-pack", 403, "push_only"),
        ("GET", "/git/r1.git/HEAD", 404, "route_not_allowed"),
        ("DELETE", PUSH, 405, "method_not_allowed"),
    ] {
        let answer = sidecar.request(method, path, &[], "").await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{method} {path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{method} {path}");
    }
    silent(sidecar).await;
}

#[tokio::test]
async fn a_push_needs_a_controller_and_plain_bytes() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:1").start().await;
    let answer = sidecar.get(REFS).await;
    assert_eq!((answer.status, answer.reason()), (404, "route_not_allowed"));
    assert_eq!(sidecar.stop().await, 0);

    let controller = Upstream::never().start().await;
    let sidecar = relaying(controller.url()).start().await;
    let answer = sidecar.request("POST", PUSH, &[("content-encoding", "gzip")], "x").await;
    assert_eq!((answer.status, answer.reason()), (415, "content_encoding_not_allowed"));
    let mut raw = sidecar.connect().await;
    raw.send(format!("POST {PUSH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1073741825\r\n\r\n")).await;
    let answer = raw.read_response().await;
    assert_eq!((answer.status, answer.reason()), (413, "body_too_large"));
    assert_eq!(controller.requests().len(), 0);
    silent(sidecar).await;
}

#[tokio::test]
async fn one_push_is_carried_at_a_time() {
    let controller = Upstream::answering(Script::body(200, "text/plain", "ok")).hold_head().start().await;
    let sidecar = relaying(controller.url()).start().await;
    let mut first = sidecar.connect().await;
    first.send_request("POST", PUSH, &[("expect", "100-continue")], "0000").await;
    controller.held(1).await;
    let second = sidecar.request("POST", PUSH, &[], "0000").await;
    assert_eq!((second.status, second.reason(), second.header("retry-after")), (429, "relay_busy", Some("1")));
    drop(first);
    let mut again = sidecar.connect().await;
    let reached = poll(PATIENCE, async || {
        again.send_request("POST", PUSH, &[], "0000").await;
        tokio::select! {
            () = controller.held(2) => true,
            _ = again.read_response() => false,
        }
    });
    assert!(reached.await, "the first push has left");
    controller.release();
    again.read_response().await.expect(200);
    silent(sidecar).await;
}

#[tokio::test]
async fn a_push_is_never_held_as_a_whole() {
    // A controller that reads nothing for now.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let sidecar = relaying(&url).start().await;
    let before = sidecar.rss_kib();
    let mut client = UnixStream::connect(sidecar.socket()).await.expect("it listens");
    let head = format!("POST {PUSH} HTTP/1.1\r\nhost: x\r\ncontent-length: 536870912\r\n\r\n");
    client.write_all(head.as_bytes()).await.expect("sent");
    let (mut controller, _) = listener.accept().await.expect("the sidecar connects");
    let piece = vec![7; 1024 * 1024];
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(500), client.write_all(&piece)).await.is_ok() {
        sent += 1;
        assert!(sent < 256, "nobody reads, and still it is taken");
    }
    let grown = sidecar.rss_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB for {sent} MiB");

    // The controller answers before the end of the push, and the client gets the answer.
    controller
        .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nno\n")
        .await
        .expect("sent");
    let mut answer = vec![0; 12];
    let read = tokio::time::timeout(PATIENCE, client.read_exact(&mut answer)).await;
    read.expect("an answer").expect("the connection is whole");
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 403");
}

/// Bug: after the controller had been slower than the sandbox once, nothing more of the push was carried.
#[tokio::test]
async fn a_push_goes_on_when_its_reader_does() {
    const LENGTH: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let sidecar = relaying(&url).start().await;
    let mut client = UnixStream::connect(sidecar.socket()).await.expect("it listens");
    let head = format!("POST {PUSH} HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n");
    client.write_all(head.as_bytes()).await.expect("sent");
    let (mut controller, _) = listener.accept().await.expect("the sidecar connects");
    let piece = vec![7; 64 << 10];
    let mut left = LENGTH;
    while let Ok(sent) = tokio::time::timeout(Duration::from_millis(500), client.write(&piece)).await {
        left -= sent.expect("the connection is whole");
        assert!(left > LENGTH / 2, "nobody reads, and still it is taken");
    }

    let send = async {
        client.write_all(&vec![7; left]).await.expect("the sidecar reads on");
    };
    let receive = async {
        let (mut received, mut part) = (0, vec![0; 64 << 10]);
        // The count includes the head and the lengths of the chunks.
        while received <= LENGTH {
            received += controller.read(&mut part).await.expect("the connection is whole");
        }
        controller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("sent");
    };
    let carried = tokio::time::timeout(PATIENCE, async { tokio::join!(send, receive) }).await;

    assert!(carried.is_ok(), "the rest of the push is not carried");
    let mut answer = vec![0; 12];
    client.read_exact(&mut answer).await.expect("the connection is whole");
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200");
}
