//! Ways to the upstream: names, addresses, certificates, prefixes, and upstreams that come and go.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_testkit::tls::TlsTerminator;
use sluice_testkit::upstream::ClosedPort;
use sluice_testkit::{Launch, RecordedCall, Sidecar, TempDir, Upstream};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

const CHAT: &str = "/v1/chat/completions";

pub(crate) fn call() -> Value {
    json!({"model": "m", "messages": []})
}

/// A socket before an upstream; a test can remove it, which also closes its connections.
struct Front {
    path: PathBuf,
    carrying: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Front {
    fn unix(path: PathBuf, upstream: &Upstream) -> Self {
        let listener = UnixListener::bind(&path).expect("a free path");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is ours");
        let target = address(upstream);
        let (stop, mut stopped) = watch::channel(false);
        let carrying = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                // Cancel-safe: accept() loses no connection, and changed() loses no change.
                tokio::select! {
                    accepted = listener.accept() => {
                        let (client, _) = accepted.expect("a bound listener accepts");
                        connections.spawn(carry(client, target.clone(), stopped.clone()));
                    }
                    _ = stopped.changed() => break,
                }
            }
            while connections.join_next().await.is_some() {}
        });
        Self { path, carrying, stop }
    }

    async fn remove(self) {
        fs::remove_file(self.path).expect("it was there");
        self.stop.send_replace(true);
        self.carrying.await.expect("nothing in it panics");
    }
}

/// Carries bytes between both sides until either ends, or on request.
async fn carry(mut client: impl AsyncRead + AsyncWrite + Unpin, target: String, mut stopped: watch::Receiver<bool>) {
    let mut server = TcpStream::connect(target).await.expect("the upstream listens");
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
    // A drop alone is not enough: a child that another test forks just now would hold the socket open until its exec.
    let _ = client.shutdown().await;
}

fn address(upstream: &Upstream) -> String {
    upstream.url().trim_start_matches("http://").to_owned()
}

/// Makes the upstream available on the loopback of IPv6, and returns its URL.
async fn front_v6(upstream: &Upstream) -> String {
    let listener = TcpListener::bind("[::1]:0").await.expect("this host has IPv6 on its loopback");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let target = address(upstream);
    // The task ends with the test's runtime.
    tokio::spawn(async move {
        let (_stop, stopped) = watch::channel(false);
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, target.clone(), stopped.clone()));
        }
    });
    url
}

async fn assert_carries(name: &str, launch: Launch, upstream: &Upstream, host: &str, path: &str) {
    let sidecar = launch.start().await;
    let before = upstream.requests().len();

    sidecar.post(CHAT, call()).await.expect(200);
    let mut streaming = call();
    streaming["stream"] = json!(true);
    let stream = sidecar.post(CHAT, streaming).await.expect(200);

    assert!(stream.text().contains("hello"), "{name}");
    for sent in &upstream.requests()[before..] {
        assert_eq!((sent.headers_named("host"), sent.target.as_str()), (vec![host], path), "{name}");
    }
    assert_eq!(sidecar.stop().await, 0, "{name}");
    let calls = sidecar.audit().calls();
    assert_eq!(calls.iter().map(RecordedCall::result).collect::<Vec<_>>(), ["ok", "ok"], "{name}");
}

#[tokio::test]
async fn an_upstream_may_be_address_name_or_path() {
    let upstream = Upstream::provider("hello").start().await;
    let by_name = upstream.url().replace("127.0.0.1", "localhost");
    let by_v6 = front_v6(&upstream).await;
    let base_urls = [format!("{by_name}/v1"), format!("{by_v6}/v1/")];
    for url in [upstream.url(), &by_name, &by_v6, &format!("{by_name}/"), &base_urls[0], &base_urls[1]] {
        let host = url.trim_start_matches("http://").trim_end_matches('/').trim_end_matches("/v1");
        assert_carries(url, Sidecar::to_url(url), &upstream, host, CHAT).await;
    }
    let unix = Upstream::provider("hello").start_unix().await;
    assert_carries("unix", Sidecar::to(&unix), &unix, "localhost", CHAT).await;
}

#[tokio::test]
async fn a_path_in_the_url_precedes_every_route() {
    let upstream = Upstream::provider("hello").start().await;
    for prefix in ["/proxy", "/a/b/", "/proxy/v1"] {
        let url = format!("{}{prefix}", upstream.url());
        let path = format!("{}{CHAT}", prefix.trim_end_matches('/').trim_end_matches("/v1"));
        assert_carries(prefix, Sidecar::to_url(&url), &upstream, &address(&upstream), &path).await;
    }
}

#[tokio::test]
async fn an_https_upstream_may_be_name_or_address() {
    let upstream = Upstream::provider("hello").start().await;
    let tls = TlsTerminator::start(&upstream, "DNS:localhost,IP:127.0.0.1", "2");
    for host in ["localhost", "127.0.0.1"] {
        let url = tls.url(host);
        let launch = Sidecar::to_url(&url).args(["--ca", &tls.ca(), "--connect-timeout", "60s"]);
        assert_carries(host, launch, &upstream, url.trim_start_matches("https://"), CHAT).await;
    }
}

#[tokio::test]
async fn an_upstream_that_cannot_prove_its_name_gets_nothing() {
    let upstream = Upstream::provider("hello").start().await;
    let good = TlsTerminator::start(&upstream, "DNS:localhost,IP:127.0.0.1", "2");
    let other = TlsTerminator::start(&upstream, "DNS:elsewhere.test", "2");
    let expired = TlsTerminator::start(&upstream, "DNS:localhost", "-1");
    for (name, url, ca) in [
        ("another CA", good.url("localhost"), other.ca()),
        ("another name", other.url("localhost"), other.ca()),
        ("another address", other.url("127.0.0.1"), other.ca()),
        ("expired", expired.url("localhost"), expired.ca()),
    ] {
        let sidecar = Sidecar::to_url(&url).args(["--ca", &ca, "--connect-timeout", "60s"]).start().await;

        sidecar.post(CHAT, call()).await.expect_refusal(502, "upstream_unreachable");

        assert_eq!(sidecar.stop().await, 0, "{name}");
        let call = sidecar.audit().only_call();
        assert_eq!((call.result(), &call.outcome["null_reason"]), ("upstream_error", &json!("not_sent")), "{name}");
        assert_eq!(call.outcome["connect_error"], "tls", "{name}: {}", call.outcome);
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn the_systems_roots_do_not_trust_a_private_ca() {
    let upstream = Upstream::provider("hello").start().await;
    let tls = TlsTerminator::start(&upstream, "DNS:localhost", "2");

    let sidecar = Sidecar::to_url(&tls.url("localhost")).start().await;

    sidecar.post(CHAT, call()).await.expect_refusal(502, "upstream_unreachable");
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn an_unresolved_name_fails_only_the_call() {
    for host in ["nobody-here.invalid", "no.such.name.test"] {
        let launch = Sidecar::to_url(&format!("http://{host}:4000")).args(["--connect-timeout", "500ms"]);
        let sidecar = launch.start().await;

        sidecar.post(CHAT, call()).await.expect_refusal(502, "upstream_unreachable");

        sidecar.get("/health").await.expect(200);
        assert_eq!(sidecar.stop().await, 0);
        let outcome = sidecar.audit().only_call().outcome;
        assert_eq!(outcome["null_reason"], "not_sent");
        // A machine without a working name server gives the same reason.
        assert_eq!(outcome["connect_error"], "dns", "{outcome}");
    }
}

#[tokio::test]
async fn an_unreachable_upstream_is_told_with_its_reason() {
    // This server answers a TLS handshake as an HTTP server does.
    let plain = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = &plain.local_addr().expect("bound").port().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = plain.accept().await {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        }
    });
    let nowhere = ClosedPort::new();
    let dir = TempDir::new();
    for (url, word, detail) in [
        (format!("https://127.0.0.1:{port}"), "tls", "received corrupt message of type InvalidContentType"),
        (nowhere.url(), "refused", "Connection refused"),
        (format!("unix:{}", dir.join("gone.sock").display()), "other", "No such file or directory"),
    ] {
        let sidecar = Sidecar::to_url(&url).start().await;
        let answer = sidecar.post(CHAT, call()).await.expect_refusal(502, "upstream_unreachable");
        assert_eq!(sidecar.stop().await, 0);
        let outcome = sidecar.audit().only_call().outcome;
        assert_eq!(outcome["connect_error"], word, "{outcome}");
        assert!(outcome["connect_detail"].as_str().is_some_and(|text| text.contains(detail)), "{outcome}");
        // The agent gets the word, but not the address of the upstream.
        let text = answer.text();
        assert!(text.contains(&format!("({word}")), "{text}");
        assert!(!["127.0.0.1", port.as_str(), "gone.sock"].iter().any(|address| text.contains(address)), "{text}");
    }
}

#[tokio::test]
async fn urls_that_would_lead_astray_are_refused() {
    for (url, cause) in [
        ("http://user:secret-word@127.0.0.1:4000", "credentials"),
        ("http://secret-word@127.0.0.1:4000", "credentials"),
        ("http://127.0.0.1:4000/?key=secret-word", "path"),
        ("http://127.0.0.1:4000/#secret-word", "path"),
        ("unix:relative/secret-word", "absolute"),
        ("http://127.0.0.1:0", "want http"),
        ("http://:4000", "want http"),
        ("", "want http"),
    ] {
        let failed = Sidecar::to_url(url).fail().await;
        assert_eq!(failed.code, 64, "{url}");
        assert!(failed.stderr.contains("--upstream") && failed.stderr.contains(cause), "{url}: {}", failed.stderr);
        assert!(!failed.stderr.contains("secret-word"), "a URL may hold a secret: {}", failed.stderr);
    }
}

#[tokio::test]
async fn calls_one_after_the_other_share_a_connection() {
    let upstream = Upstream::provider("hello").start().await;
    // Each write to the disk would be idle time of the connection, which is limited.
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    let mut streaming = call();
    streaming["stream"] = json!(true);

    for body in [&call(), &streaming, &call(), &streaming, &call()] {
        sidecar.post(CHAT, body).await.expect(200);
    }

    assert_eq!((upstream.requests().len(), upstream.connections()), (5, 1));
    sidecar.stop().await;
    let connects: Vec<_> =
        sidecar.audit().calls().iter().map(|call| call.outcome["timing_us"]["connect"].is_u64()).collect();
    assert_eq!(connects, [true, false, false, false, false]);
}

#[tokio::test]
async fn calls_at_once_each_have_a_connection() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(sidecar.stream(CHAT, call()).await);
    }
    upstream.held(6).await;
    upstream.release();
    for raw in &mut open {
        raw.read_response().await.expect(200);
    }
    assert_eq!(upstream.connections(), 6);

    for _ in 0..3 {
        sidecar.post(CHAT, call()).await.expect(200);
    }

    assert_eq!(upstream.connections(), 6, "they wait for the next calls");
}

#[tokio::test]
async fn a_late_upstream_is_found() {
    let nowhere = ClosedPort::new();
    let sidecar = Sidecar::to_url(&nowhere.url()).start().await;
    let refused = sidecar.post(CHAT, call()).await.expect_refusal(502, "upstream_unreachable");
    assert_eq!(refused.header("retry-after"), Some("1"));

    let upstream = Upstream::chat("hello").start_at(nowhere).await;

    sidecar.post(CHAT, call()).await.expect(200);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn an_upstream_restart_between_calls_is_not_noticed() {
    let dir = TempDir::new();
    let upstream = Upstream::provider("hello").start().await;
    let url = format!("unix:{}", dir.join("up").display());
    let sidecar = Sidecar::to_url(&url).start().await;
    let mut front = Front::unix(dir.join("up"), &upstream);
    for round in 0..5 {
        let answer = sidecar.post(CHAT, call()).await;
        assert_eq!(answer.status, 200, "{:?}", sidecar.audit().outcomes().last());
        assert_eq!(upstream.requests().len(), round + 1, "no call is sent twice");
        // remove() returns when all connections are closed, also the pooled one.
        front.remove().await;
        front = Front::unix(dir.join("up"), &upstream);
    }
    front.remove().await;

    sidecar.post(CHAT, call()).await.expect_refusal(502, "upstream_unreachable");

    let _back = Front::unix(dir.join("up"), &upstream);
    sidecar.post(CHAT, call()).await.expect(200);
}
