//! Requests to the daemon over its sockets: one connection each, read to its end.

use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::Outcome;

/// Sends a request, and returns the connection.
pub(crate) async fn send(
    socket: &Path,
    (method, path): (&str, &str),
    token: Option<&str>,
    body: Option<&Value>,
) -> Outcome<UnixStream> {
    let mut stream = UnixStream::connect(socket).await?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    if let Some(token) = token {
        text += &format!("Authorization: Bearer {token}\r\n");
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    if !body.is_empty() {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    text += &format!("\r\n{body}");
    stream.write_all(text.as_bytes()).await?;
    Ok(stream)
}

/// Sends a request, and returns the body of a good answer.
pub(crate) async fn ask(
    socket: &Path,
    request: (&str, &str),
    token: Option<&str>,
    body: Option<&Value>,
) -> Outcome<String> {
    let mut bytes = Vec::new();
    send(socket, request, token, body).await?.read_to_end(&mut bytes).await?;
    let text = String::from_utf8(bytes)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("the daemon has cut its answer")?;
    if !head.starts_with("HTTP/1.1 2") {
        return Err(format!("{} {}: {text}", request.0, request.1).into());
    }
    Ok(body.to_owned())
}
