//! Requests to the TCP address of a daemon, with tokens, also to answers that do not end.

use std::time::Duration;

use serde_json::Value;
use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, Sluice};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time in which an answer that does not end sends nothing more.
const QUIET: Duration = Duration::from_millis(700);

/// An answer of the daemon.
#[derive(Debug)]
pub(super) struct DaemonAnswer {
    pub(super) status: u16,
    /// Head and body.
    pub(super) text: String,
}

/// Returns the address of the API.
pub(super) fn address(daemon: &Daemon<'_>) -> String {
    let said = daemon.process().stderr();
    let (_, rest) = said.split_once("listening on http://").expect("it says so");
    rest.split([',', '\n', ' ']).next().expect("an address").to_owned()
}

/// Makes a token, and returns its value.
pub(super) async fn token(sluice: &Sluice, owner: &str, role: &str, account: &str) -> String {
    let words = ["token", "create", "--owner", owner, "--role", role, "--account", account, "--json"];
    let made = sluice.command(words).finish().await.expect(0).value();
    made["value"].as_str().expect("it is shown once").to_owned()
}

/// Sends a request, and reads its answer to the end of it, or until nothing more comes.
pub(super) async fn send(address: &str, token: &str, method: &str, path: &str, body: &Value) -> DaemonAnswer {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let content = match body.len() {
        0 => String::new(),
        length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n{content}\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("it reads");
    let (mut bytes, mut part) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(Ok(count @ 1..)) =
        timeout(if bytes.is_empty() { PATIENCE } else { QUIET }, stream.read(&mut part)).await
    {
        bytes.extend_from_slice(&part[..count]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    DaemonAnswer { status, text }
}

/// Sends a GET request.
pub(super) async fn get(address: &str, token: &str, path: &str) -> DaemonAnswer {
    send(address, token, "GET", path, &Value::Null).await
}
