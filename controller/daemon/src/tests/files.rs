//! Files of sandboxes over HTTP.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::test_daemon::{TestAnswer, TestDaemon, policy, read_answer};

struct Files {
    daemon: TestDaemon,
    id: String,
    work: PathBuf,
}

impl Files {
    async fn new() -> Self {
        let daemon = TestDaemon::with_runs().await;
        let (id, paths) = daemon.working_run().await;
        Self { daemon, id, work: paths.work }
    }

    fn path(&self, path: &str) -> String {
        format!("/api/v1/sandboxes/{}/files{path}", self.id)
    }

    async fn get(&self, path: &str) -> TestAnswer {
        self.daemon.get("slu_alice", &self.path(path)).await
    }

    /// Reads a file with one more request header.
    async fn with(&self, path: &str, header: &str) -> TestAnswer {
        let headers = [format!("Host: {}", self.daemon.address()), self.daemon.bearer("slu_alice"), header.to_owned()];
        self.daemon.bare("GET", &self.path(path), &headers.each_ref().map(String::as_str)).await
    }

    async fn put(&self, token: &str, path: &str, content: &Value) -> TestAnswer {
        self.daemon.request(token, "PUT", &self.path(path), Some(content)).await
    }

    /// Sends a body under these headers, and nothing after it.
    async fn put_raw(&self, path: &str, header: &str, body: &[u8]) -> TestAnswer {
        let mut stream = TcpStream::connect(self.daemon.address()).await.expect("it listens");
        let (host, token) = (self.daemon.address(), self.daemon.bearer("slu_alice"));
        let path = self.path(path);
        let head = format!("PUT {path} HTTP/1.1\r\nConnection: close\r\nHost: {host}\r\n{token}\r\n{header}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body).await;
        read_answer(stream).await
    }
}

fn names(page: &Value) -> Vec<&str> {
    page["files"].as_array().expect("a list").iter().filter_map(|file| file["name"].as_str()).collect()
}

#[tokio::test]
async fn directories_are_listed_in_pages() {
    let files = Files::new().await;
    fs::create_dir(files.work.join("d")).expect("there is room");
    fs::write(files.work.join("a"), "four").expect("there is room");
    symlink("/etc", files.work.join("link")).expect("there is room");
    mkfifo(&files.work.join("p"), Mode::S_IRWXU).expect("there is room");
    let odd = files.work.join(std::ffi::OsStr::from_bytes(b"z\xff"));
    fs::create_dir(&odd).and_then(|()| fs::write(odd.join("inner"), "")).expect("there is room");

    let first = files.get("?limit=2").await.json();
    let cursor = first["next_cursor"].as_str().expect("more follow").to_owned();
    let rest = files.get(&format!("?path=/workspace/&cursor={cursor}")).await.json();

    assert_eq!((names(&first), &first["has_more"]), (vec!["a", "d"], &json!(true)));
    assert_eq!((names(&rest), &rest["next_cursor"]), (vec!["link", "p"], &Value::Null));
    assert_eq!((&first["files"][0]["size"], &first["files"][0]["kind"]), (&json!(4), &json!("file")));
    let kinds: Vec<_> = rest["files"].as_array().expect("a list").iter().map(|file| &file["kind"]).collect();
    assert_eq!(kinds, ["link", "other", "directory"]);
    assert_eq!(rest["files"][2]["name_base64"], "ev8=");
    let inner = files.get("?path_base64=L3dvcmtzcGFjZS96_w").await.json();
    assert_eq!(names(&inner), ["inner"]);
    for (query, field) in [
        ("?limit=0", "limit"),
        ("?limit=1001", "limit"),
        ("?cursor=%21", "cursor"),
        ("?path_base64=%21", "path_base64"),
        ("?path=/workspace&path_base64=YQ", "path_base64"),
        ("?recursive=true", "recursive"),
    ] {
        let answer = files.get(query).await;
        assert_eq!((answer.status, &answer.json()["error"]["details"]["field"]), (422, &json!(field)), "{query}");
    }
    assert_eq!(files.get("?path=/workspace/a").await.error(), (409, "not_a_directory".to_owned()));
}

#[tokio::test]
async fn a_file_comes_as_an_attachment_and_in_parts() {
    let files = Files::new().await;
    fs::write(files.work.join("a\"b.html"), "<script>0123456789").expect("there is room");

    let whole = files.get("/workspace/a%22b.html").await;
    assert_eq!((whole.status, whole.body.as_str()), (200, "<script>0123456789"));
    for header in [
        "content-type: application/octet-stream",
        "content-disposition: attachment; filename=\"a_b.html\"; filename*=utf-8''a%22b.html",
        "x-content-type-options: nosniff",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-store",
        "content-security-policy: default-src 'none'; frame-ancestors 'none'; sandbox",
        "content-length: 18",
        "accept-ranges: bytes",
    ] {
        assert!(whole.head.contains(header), "{header} in {}", whole.head);
    }
    let part = files.with("/%2Fworkspace%2Fa%22b.html", "Range: bytes=-4").await;
    assert_eq!((part.status, part.body.as_str()), (206, "6789"));
    assert!(part.head.contains("content-range: bytes 14-17/18"), "{}", part.head);
    let beyond = files.with("/workspace/a%22b.html", "Range: bytes=18-").await;
    assert_eq!(beyond.error(), (416, "no_such_range".to_owned()));
    assert!(beyond.head.contains("content-range: bytes */18"), "{}", beyond.head);

    let sparse = fs::File::create(files.work.join("huge")).expect("there is room");
    sparse.set_len(65 << 20).expect("it has no blocks");
    assert_eq!(files.get("/workspace/huge").await.error(), (422, "range_needed".to_owned()));
    let most = files.with("/workspace/huge", "Range: bytes=1-").await;
    assert_eq!((most.status, most.body.len()), (206, 64 << 20));
    assert!(most.head.contains(&format!("content-range: bytes 1-{}/{}", 64 << 20, 65 << 20)), "{}", most.head);
}

#[tokio::test]
async fn what_is_outside_or_a_link_does_not_exist() {
    let files = Files::new().await;
    fs::write(files.work.join("../secret"), "secret").expect("there is room");
    fs::write(files.work.join("a"), "mine").expect("there is room");
    symlink("../secret", files.work.join("link")).expect("there is room");
    symlink("..", files.work.join("up")).expect("there is room");
    mkfifo(&files.work.join("p"), Mode::S_IRWXU).expect("there is room");
    for path in [
        "etc/passwd",
        "/etc/passwd",
        "workspace/../secret",
        "workspace/%2e%2e/secret",
        "workspace/%2e%2e%2fsecret",
        "workspace/..%2fsecret",
        "workspace%2f..%2fsecret",
        "workspaces/a",
        "workspace/link",
        "workspace/up/secret",
        "workspace/a%00",
        "%00",
        "..",
        "workspace/%c0%ae%c0%ae/secret",
        "workspace/none",
        "llm-sock/llm.sock",
        "mnt/grants/x",
        &format!("workspace/{}", "a".repeat(5000)),
    ] {
        let read = files.get(&format!("/{path}")).await;
        assert_eq!(read.error(), (404, "no_file".to_owned()), "{path}");
        assert!(!read.body.contains("secret\"") && !read.body.contains("/runs/"), "{}", read.body);
        let listed = files.get(&format!("?path=/{path}")).await;
        assert!([404, 409].contains(&listed.status) && !listed.body.contains("files"), "{path}: {listed:?}");
    }
    for path in ["workspace/p", "workspace", "workspace/."] {
        assert_eq!(files.get(&format!("/{path}")).await.error(), (409, "not_a_file".to_owned()), "{path}");
    }
    for path in
        ["etc/x", "workspace/../x", "workspace/up/x", "workspace/%2e%2e%2fx", "workspace/none/x", "workspace/a%00"]
    {
        let written = files.put("slu_alice", &format!("/{path}"), &json!(1)).await;
        assert_eq!(written.error(), (404, "no_file".to_owned()), "{path}");
    }
    assert!(!files.work.join("../x").exists());
    assert_eq!(files.get("/workspace/a").await.body, "mine");
}

#[tokio::test]
async fn a_file_is_written_as_a_whole_and_recorded() {
    let files = Files::new().await;
    chown(&files.work, Some(2_000_001), Some(2_000_001)).expect("we are root");
    symlink("/etc/passwd", files.work.join("link")).expect("there is room");
    let content = json!("0123456789");

    let written = files.put("slu_alice", "/workspace/link", &content).await;

    let sha256 = "a2f4d3a5921c1b6313825739dcdc6a21afcfab55e4062419181df9a8e011a34b";
    assert_eq!((written.status, &written.json()["size"]), (200, &json!(12)), "{written:?}");
    assert_eq!(written.json()["sha256"], sha256);
    let meta = fs::symlink_metadata(files.work.join("link")).expect("it is there");
    assert!(meta.is_file() && (meta.uid(), meta.mode() & 0o7777) == (2_000_001, 0o644));
    assert_eq!(files.get("/workspace/link").await.body, "\"0123456789\"");
    let log = files.daemon.control_log();
    let line = log.iter().find(|line| line.operation == "sandbox.file_put").expect("it is recorded");
    assert_eq!(line.object.as_ref(), Some(&files.id));
    assert_eq!(line.after, Some(json!({ "path": { "name": "/workspace/link" }, "sha256": sha256, "size": 12 })));

    // A file whose upload cannot be recorded does not get its name.
    fs::write(files.daemon.running.context.layout.control_log(), "").expect("it is ours");
    let refused = files.put("slu_alice", "/workspace/link", &json!("other")).await;
    assert_eq!(refused.error(), (503, "audit_unavailable".to_owned()));
    assert_eq!(files.get("/workspace/link").await.body, "\"0123456789\"");
    assert_eq!(fs::read_dir(&files.work).expect("it is ours").count(), 1, "nothing is left of it");
}

#[tokio::test]
async fn a_body_of_a_wrong_length_leaves_nothing() {
    let files = Files::new().await;
    let long = format!("Content-Length: {}", (64 << 20) + 1);
    let refused = files.put_raw("/workspace/a", &long, b"").await;
    assert_eq!(refused.error(), (413, "body_too_large".to_owned()));
    let chunk = vec![b'x'; 1 << 20];
    let mut chunked = Vec::new();
    for _ in 0..65 {
        chunked.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        chunked.extend_from_slice(&chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    let refused = files.put_raw("/workspace/a", "Transfer-Encoding: chunked", &chunked).await;
    assert!(refused.status == 413 || refused.status == 0, "{refused:?}");
    let mut stream = TcpStream::connect(files.daemon.address()).await.expect("it listens");
    let (host, token, path) = (files.daemon.address(), files.daemon.bearer("slu_alice"), files.path("/workspace/a"));
    let head = format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\nContent-Length: 100\r\n\r\nshort");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    drop(stream);
    let is_empty = || fs::read_dir(&files.work).expect("it is ours").next().is_none();
    // The daemon sees the end of the connection a moment later.
    while !is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(files.daemon.control_log().iter().all(|line| line.operation != "sandbox.file_put"));
}

#[tokio::test]
async fn files_follow_the_role_and_the_state() {
    let files = Files::new().await;
    fs::write(files.work.join("a"), "mine").expect("there is room");
    let path = files.path("/workspace/a");
    assert_eq!(files.daemon.get("slu_bob", &path).await.error(), (404, "not_found".to_owned()));
    assert_eq!(files.put("slu_bob", "/workspace/a", &json!(1)).await.error(), (404, "not_found".to_owned()));
    assert_eq!(files.put("slu_viewer", "/workspace/a", &json!(1)).await.error(), (403, "forbidden".to_owned()));
    let waiting = files.daemon.create("slu_alice", json!({ "task": "x" })).await;
    let early = files.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{waiting}/files")).await;
    assert_eq!(early.error(), (409, "invalid_state".to_owned()));

    files.daemon.end(&files.id).await;
    assert_eq!(files.get("/workspace/a").await.body, "mine", "the workspace is still there");
    assert_eq!(files.put("slu_alice", "/workspace/a", &json!(1)).await.error(), (409, "invalid_state".to_owned()));
    let kept = files.daemon.settings.state.join("kept");
    fs::create_dir_all(&kept).expect("there is room");
    fs::rename(&files.work, kept.join(format!("{}.0", files.id))).expect("it is ours");
    assert_eq!(files.get("/workspace/a").await.body, "mine", "a kept workspace is readable");
    fs::remove_dir_all(&kept).expect("it is ours");
    assert_eq!(files.get("/workspace/a").await.error(), (410, "workspace_removed".to_owned()));
    assert_eq!(files.get("").await.error(), (410, "workspace_removed".to_owned()));
}

#[tokio::test]
async fn viewers_read_files_if_the_operator_lets_them() {
    for (viewer_files, status) in [(true, 200), (false, 403)] {
        let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.viewer_files = viewer_files).await;
        let (id, paths) = daemon.working_run().await;
        fs::write(paths.work.join("a"), "a").expect("it is ours");
        let viewer = daemon.viewer_of("alice").await;
        for path in ["files", "files/workspace/a"] {
            let path = format!("/api/v1/sandboxes/{id}/{path}");
            assert_eq!(daemon.get(&viewer, &path).await.status, status, "{path}");
            assert_eq!(daemon.get("slu_alice", &path).await.status, 200);
        }
    }
}
