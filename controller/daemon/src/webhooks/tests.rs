//! Webhooks against a receiver with TLS.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use sluice_state::webhooks::MessageChoice;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::sender::send_within;
use super::*;
use crate::test_daemon::{TestDaemon, policy};

/// A request that the receiver got.
#[derive(Debug, Clone)]
struct Received {
    path: String,
    head: String,
    body: String,
}

/// A receiver of messages; the first word of the path determines its answer.
struct Receiver {
    port: u16,
    received: mpsc::UnboundedReceiver<Received>,
    scratch: TempDir,
}

impl Receiver {
    async fn start() -> Self {
        let scratch = tempfile::tempdir().expect("there is room");
        let acceptor = acceptor(scratch.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (sender, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream, sender.clone()));
            }
        });
        Self { port, received, scratch }
    }

    fn webhook(&self, path: &str) -> Webhook {
        Webhook {
            name: path.trim_start_matches('/').replace('/', "-"),
            target: WebhookTarget::parse(&format!("https://localhost:{}{path}", self.port)).expect("it is right"),
            secrets: vec![WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("it is right")],
            types: DEFAULT_TYPES.map(str::to_owned).to_vec(),
            owners: Vec::new(),
            ca: Some(self.scratch.path().join("leaf.pem")),
            allow_private: true,
        }
    }

    async fn next(&mut self) -> Received {
        let received = tokio::time::timeout(Duration::from_secs(60), self.received.recv()).await;
        received.expect("a message in time").expect("the receiver works")
    }
}

/// Returns an acceptor with a self-signed certificate for localhost.
fn acceptor(directory: &Path) -> TlsAcceptor {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=receiver", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-out", "leaf.pem", "-keyout", "leaf.key"])
        .current_dir(directory)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    let certificate = CertificateDer::from_pem_file(directory.join("leaf.pem")).expect("it was made");
    let key = PrivateKeyDer::from_pem_file(directory.join("leaf.key")).expect("it was made");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("they are known")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, sender: mpsc::UnboundedSender<Received>) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let Some(received) = read(&mut stream).await else { return };
    let answer = received.path.clone();
    let _ = sender.send(received);
    let write = async |stream: &mut TlsStream<TcpStream>, text: &str| stream.write_all(text.as_bytes()).await.is_ok();
    match answer.split('/').nth(1) {
        Some("refuses") => drop(write(&mut stream, "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n").await),
        Some("redirects") => {
            let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
            write(&mut stream, elsewhere).await;
        }
        Some("silent") => std::future::pending().await,
        Some("huge") => {
            write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n").await;
            while write(&mut stream, &"x".repeat(65536)).await {}
        }
        Some("headers") => {
            write(&mut stream, "HTTP/1.1 200 OK\r\n").await;
            while write(&mut stream, "x-more: x\r\n").await {}
        }
        Some("breaks") => {}
        _ => drop(write(&mut stream, "HTTP/1.1 204 OK\r\n\r\n").await),
    }
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TlsStream<TcpStream>) -> Option<Received> {
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
        text += &String::from_utf8_lossy(&bytes[..count]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            let path = text.split(' ').nth(1)?.to_owned();
            return Some(Received { path, body: body.to_owned(), head });
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn a_message_is_signed_by_both_secrets() {
    let mut receiver = Receiver::start().await;
    let mut webhook = receiver.webhook("/takes/it?x=1");
    webhook.secrets.push(webhook.secrets[0].clone());

    send(&webhook, "msg_1", r#"{"a":1}"#).await.expect("it is taken");

    let Received { path, head, body } = receiver.next().await;
    assert_eq!((path.as_str(), body.as_str()), ("/takes/it?x=1", r#"{"a":1}"#));
    let value = |name| header(&head, name).unwrap_or_default();
    assert_eq!((value("webhook-id"), value("content-type")), ("msg_1", "application/json"));
    assert_eq!(value("host"), format!("localhost:{}", receiver.port));
    assert!(value("webhook-timestamp").parse::<u64>().is_ok_and(|time| time > 1_700_000_000), "{head}");
    assert_eq!(value("webhook-signature").matches("v1,").count(), 2, "{head}");
}

#[tokio::test]
async fn each_bad_answer_has_its_word() {
    let receiver = Receiver::start().await;
    let within = |path| Duration::from_secs(if path == "/silent" { 2 } else { 60 });
    for (path, expected) in [
        ("/refuses", "status_500"),
        ("/redirects", "redirect_302"),
        ("/silent", "timeout"),
        ("/headers", "broken_answer"),
        ("/breaks", "broken_answer"),
    ] {
        let fault = send_within(&receiver.webhook(path), "msg_1", "{}", within(path)).await.expect_err(path);
        assert_eq!(fault.word(), expected, "{path}: {fault:?}");
    }
    send_within(&receiver.webhook("/huge"), "msg_1", "{}", within("/huge")).await.expect("the body is not waited for");
}

#[tokio::test]
async fn private_addresses_and_other_certificates_are_refused() {
    let mut receiver = Receiver::start().await;
    let word = async |webhook: Webhook| send(&webhook, "msg_1", "{}").await.expect_err("it is refused").word();
    for host in ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
        let target = WebhookTarget::parse(&format!("https://{host}:{}/", receiver.port)).expect("it is right");
        let public = Webhook { allow_private: false, target, ..receiver.webhook("/takes") };
        assert_eq!(word(public).await, "not_public", "{host}");
    }
    let by_ip = WebhookTarget::parse(&format!("https://127.0.0.1:{}/", receiver.port)).expect("it is right");
    assert_eq!(word(Webhook { target: by_ip, ..receiver.webhook("/takes") }).await, "tls", "it has another name");
    assert_eq!(word(Webhook { ca: None, ..receiver.webhook("/takes") }).await, "tls", "nobody certifies it");
    let nobody = WebhookTarget::parse("https://localhost:1/").expect("it is right");
    assert_eq!(word(Webhook { target: nobody, ..receiver.webhook("/takes") }).await, "refused");
    assert!(receiver.received.try_recv().is_err(), "nothing was sent");
}

#[tokio::test]
async fn a_failing_webhook_delays_no_other() {
    let mut receiver = Receiver::start().await;
    let webhooks = ["/silent", "/refuses", "/takes"].map(|path| receiver.webhook(path)).to_vec();
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.upkeep.webhooks = webhooks).await;
    while daemon.store().webhook_rows().await.expect("it is readable").len() < 3 {
        tokio::task::yield_now().await;
    }

    let id = daemon.create("slu_alice", json!({ "task": "canary-text" })).await;

    let mut seen = Vec::new();
    while !seen.iter().any(|(path, event_type)| path == "/takes" && event_type == "sandbox.created") {
        let Received { path, body, .. } = receiver.next().await;
        let body: Value = serde_json::from_str(&body).expect("it is JSON");
        assert_eq!(body["data"]["sandbox_id"], id, "{body}");
        assert!(!body.to_string().contains("canary"), "{body}");
        seen.push((path, body["type"].as_str().unwrap_or_default().to_owned()));
    }
    let row = async |name: &str| {
        let rows = daemon.store().webhook_rows().await.expect("it is readable");
        rows.into_iter().find(|row| row.name == name).expect("it has begun")
    };
    while row("refuses").await.fault.as_deref() != Some("status_500") || row("takes").await.waiting > 0 {
        tokio::task::yield_now().await;
    }
    assert!(row("silent").await.waiting > 0 && row("refuses").await.waiting > 0);
    assert_eq!(row("takes").await.fault, None);
    let status = |name: &str| {
        let statuses = daemon.running.context.loops.statuses();
        statuses.into_iter().find(|status| status.name == name).expect("it is known")
    };
    assert!(!status("webhook takes").is_failing);
}

#[tokio::test]
async fn a_killed_daemon_sends_again_under_the_same_id() {
    let mut receiver = Receiver::start().await;
    let silent = receiver.webhook("/silent");
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.upkeep.webhooks = vec![silent]).await;
    while daemon.store().webhook_rows().await.expect("it is readable").is_empty() {
        tokio::task::yield_now().await;
    }
    daemon.create("slu_alice", json!({ "task": "x" })).await;
    let first = receiver.next().await;

    // The try in progress is cut.
    let mut settings = daemon.settings.clone();
    daemon.running.stop().await;
    settings.upkeep.webhooks[0].target = receiver.webhook("/takes").target;
    let next = crate::Daemon::start(&settings).await.expect("the directory is free");

    let again = receiver.next().await;
    assert_eq!(again.path, "/takes");
    assert_eq!(header(&again.head, "webhook-id"), header(&first.head, "webhook-id"));
    assert_eq!(again.body, first.body, "each try has the same body");
    next.stop().await;
}

#[tokio::test]
async fn owners_and_types_select_events() {
    let mut receiver = Receiver::start().await;
    let only_bob = Webhook {
        owners: vec!["bob".to_owned()],
        types: vec!["sandbox.created".to_owned()],
        ..receiver.webhook("/takes")
    };
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.upkeep.webhooks = vec![only_bob]).await;
    while daemon.store().webhook_rows().await.expect("it is readable").is_empty() {
        tokio::task::yield_now().await;
    }
    daemon.create("slu_alice", json!({ "task": "x" })).await;
    let of_bob = daemon.create("slu_bob", json!({ "task": "x" })).await;
    let received: Value = serde_json::from_str(&receiver.next().await.body).expect("it is JSON");
    assert_eq!((&received["data"]["sandbox_id"], &received["data"]["owner_id"]), (&json!(of_bob), &json!("bob")));
    assert!(receiver.received.try_recv().is_err());
    let dead = daemon.store().dead_webhook_messages(MessageChoice::default()).await.expect("it is readable");
    assert_eq!(dead, []);
}
