//! Requests to the HTTP API of a forge: one connection each, JSON, with limits on the time and the size of answers.
//!
//! No redirect is followed, since it would carry the credential to another server. Texts of the forge are hostile: they are
//! cut, the token is replaced in them, and control characters and characters that hide others are made visible.

use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, header};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_upstream::{Address, Connector, Upstream};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::credential::ForgeToken;
use super::error::ForgeError;
use crate::pull_request_text::visible;

/// Maximum time of an answer, from connecting to its last byte.
const WITHIN: Duration = Duration::from_secs(30);
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes.
pub(super) const ANSWER_MAX: usize = 1 << 20;
/// Maximum size of the head of an answer in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Maximum number of characters of a text of the forge.
const TEXT_MAX: usize = 300;

/// A client of one forge. It has no credential of its own.
#[derive(Debug, Clone)]
pub(super) struct ForgeClient {
    address: Address,
    ca: Option<PathBuf>,
    headers: HeaderMap,
}

/// A token, and the word before it in the `authorization` header.
#[derive(Debug, Clone)]
pub(super) struct Authorization {
    pub(super) scheme: &'static str,
    pub(super) token: ForgeToken,
}

/// An answer with any status. It has no `Debug`: the body can be a token.
pub(super) struct ApiAnswer {
    /// Method and path of the request, for errors.
    pub(super) what: String,
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    body: Zeroizing<Vec<u8>>,
    /// Message of the forge, for errors.
    pub(super) text: String,
}

impl ForgeClient {
    /// Makes a client that sends these headers with each request. Nothing is sent yet.
    pub(super) fn new(upstream: &Upstream, headers: &[(&'static str, &'static str)]) -> Result<Self, ForgeError> {
        let invalid = || ForgeError::Address(sluice_upstream::redact(&upstream.url));
        let address: Address = upstream.url.parse().map_err(|_| invalid())?;
        let own = [("user-agent", "sluice"), ("connection", "close"), ("accept-encoding", "identity")];
        let headers = own.iter().chain(headers);
        let headers =
            headers.map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        Ok(Self { address, ca: upstream.ca.clone(), headers: headers.collect() })
    }

    /// Sends a request and returns the answer, whatever its status is.
    pub(super) async fn send(
        &self,
        authorization: &Authorization,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<ApiAnswer, ForgeError> {
        let what = format!("{method} {}", path.split('?').next().unwrap_or_default());
        let request = self.request(authorization, method, path, body)?;
        match timeout(WITHIN, exchange(&self.address, self.ca.as_deref(), request)).await {
            Ok(Ok((status, headers, body))) => {
                let text = authorization.token.redact(&message(&body));
                Ok(ApiAnswer { what, status, headers, body, text: shorten(&text) })
            }
            Ok(Err(SendFault::BeforeSending(error))) => Err(ForgeError::Unreachable(what, error)),
            Ok(Err(SendFault::Interrupted(error))) => Err(ForgeError::Interrupted(what, error)),
            Ok(Err(SendFault::TooLong)) => Err(ForgeError::TooLong(what, ANSWER_MAX)),
            Err(_) => Err(ForgeError::Late(what, WITHIN)),
        }
    }

    fn request(
        &self,
        authorization: &Authorization,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<String>, ForgeError> {
        let invalid = || ForgeError::Address(path.split('?').next().unwrap_or_default().to_owned());
        let mut request = Request::builder()
            .method(method)
            .uri(self.address.try_target(path).map_err(|_| invalid())?)
            .header(header::HOST, &self.address.authority)
            .header(header::AUTHORIZATION, authorization.token.authorization(authorization.scheme)?);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let mut request = request.body(body.map(Value::to_string).unwrap_or_default()).map_err(|_| invalid())?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }
}

impl ApiAnswer {
    /// Returns the answer if its status is a success.
    pub(super) fn success(self) -> Result<Self, ForgeError> {
        if (200..=299).contains(&self.status) { Ok(self) } else { Err(self.error()) }
    }

    /// Returns the data of a success.
    pub(super) fn data<T: DeserializeOwned>(self) -> Result<T, ForgeError> {
        let answer = self.success()?;
        serde_json::from_slice(&answer.body)
            .map_err(|_| ForgeError::Unexpected(answer.what, "is not the JSON that its API describes"))
    }

    /// Returns a member of the answer, whatever its status is.
    pub(super) fn member(&self, name: &str) -> Option<Value> {
        serde_json::from_slice::<Value>(&self.body).ok()?.get_mut(name).map(Value::take)
    }

    /// Returns the error for a status that is not a success.
    pub(super) fn error(self) -> ForgeError {
        let Self { what, status, headers, text, .. } = self;
        let seconds = |name: &str| headers.get(name)?.to_str().ok()?.parse().ok().map(Duration::from_secs);
        let is_limited = headers.get("x-ratelimit-remaining").is_some_and(|left| left == "0")
            || headers.contains_key(header::RETRY_AFTER);
        match status {
            429 => ForgeError::RateLimited(what, seconds("retry-after")),
            403 if is_limited => ForgeError::RateLimited(what, seconds("retry-after")),
            300..=399 => ForgeError::Redirected(what, status),
            401 | 403 => ForgeError::Denied(what, status, text),
            404 | 410 => ForgeError::NotFound(what),
            500..=599 => ForgeError::Failed(what, status, text),
            _ => ForgeError::Refused(what, status, text),
        }
    }
}

/// Returns the message of an answer, which is JSON in most cases.
fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct ForgeMessage {
        message: String,
        #[serde(default)]
        errors: Vec<Value>,
    }
    match serde_json::from_slice::<ForgeMessage>(body) {
        Ok(ForgeMessage { message, errors }) => {
            let details = errors.iter().filter_map(|error| error.get("message").unwrap_or(error).as_str());
            details.fold(message, |text, detail| format!("{text}: {detail}"))
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

/// Returns a text of the forge for messages: one line, cut, with control characters made visible.
pub(super) fn shorten(text: &str) -> String {
    let line = visible(text).replace(['\n', '\t'], " ");
    let mut short: String = line.trim().chars().take(TEXT_MAX).collect();
    if line.trim().chars().count() > TEXT_MAX {
        short.push_str(" [...]");
    }
    if short.is_empty() { "(no text)".to_owned() } else { short }
}

/// Characters of a part of a path or of a query's value that are percent-encoded: all but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for a path of several parts.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// Returns a part of a path, or the value of a query, percent-encoded.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Returns a path of several parts, percent-encoded.
pub(super) fn encoded_path(text: &str) -> String {
    utf8_percent_encode(text, RESERVED_IN_PATH).to_string()
}

/// Reason why a request has no complete answer.
enum SendFault {
    BeforeSending(io::Error),
    Interrupted(io::Error),
    TooLong,
}

type RawAnswer = (u16, HeaderMap, Zeroizing<Vec<u8>>);

/// Sends a request over a connection of its own.
async fn exchange(address: &Address, ca: Option<&Path>, request: Request<String>) -> Result<RawAnswer, SendFault> {
    let connector =
        Connector::new(address.clone(), ca).map_err(|error| SendFault::BeforeSending(io::Error::other(error)))?;
    let stream = connector.connect(CONNECT_WITHIN).await.map_err(|error| SendFault::BeforeSending(error.into()))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| SendFault::BeforeSending(io::Error::other(error)))?;
    let answer = async {
        let (head, body) = sender.send_request(request).await.map_err(interrupted)?.into_parts();
        Ok((head.status.as_u16(), head.headers, read(body).await?))
    };
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // The connection may end before this future has read the complete answer.
        _ = connection => answer.await,
    }
}

async fn read(mut body: Incoming) -> Result<Zeroizing<Vec<u8>>, SendFault> {
    let mut bytes = Zeroizing::new(Vec::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(data) = frame.map_err(interrupted)?.into_data() {
            if bytes.len() + data.len() > ANSWER_MAX {
                return Err(SendFault::TooLong);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

fn interrupted(error: hyper::Error) -> SendFault {
    SendFault::Interrupted(io::Error::other(error))
}
