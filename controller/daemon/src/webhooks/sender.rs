//! One try of one message.
//!
//! The address is checked after its name was looked up, and connected as it was checked. No redirect is followed, and no
//! more than the head of the answer is read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sluice_upstream::{ConnectError, Connector, Reach};
use tokio::time::timeout;

use super::Webhook;
use super::secret::signatures;

/// Longest time from the look-up of the name to the head of the answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Largest head of an answer.
const HEAD_MAX: usize = 16 << 10;

/// Reason why a message was not delivered. It has nothing of the answer but its status.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryFault {
    /// No connection can be tried.
    #[error("the webhook cannot be used")]
    Settings(#[source] sluice_upstream::SetupError),
    /// There is no connection.
    #[error("cannot connect")]
    Connect(#[source] ConnectError),
    /// The connection broke, or its answer is not HTTP.
    #[error("the answer is not complete, or not HTTP")]
    Broken(#[source] hyper::Error),
    /// No answer came in time.
    #[error("no answer within {} s", WITHIN.as_secs())]
    Timeout,
    /// The receiver refused the message, or answered with a redirect.
    #[error("the answer has status {0}; 200 to 299 is expected, and no redirect is followed")]
    Status(u16),
}

impl DeliveryFault {
    /// Returns one word for the fault.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Settings(_) => "settings".to_owned(),
            Self::Connect(ConnectError::NotPublic(_)) => "not_public".to_owned(),
            Self::Connect(error) => error.failure().as_str().to_owned(),
            Self::Broken(_) => "broken_answer".to_owned(),
            Self::Timeout => "timeout".to_owned(),
            Self::Status(status @ 300..=399) => format!("redirect_{status}"),
            Self::Status(status) => format!("status_{status}"),
        }
    }
}

/// Sends a message once. It is delivered if the answer has a status from 200 to 299.
///
/// # Errors
/// [`DeliveryFault`]; the receiver may have taken the message.
pub async fn send(webhook: &Webhook, id: &str, body: &str) -> Result<(), DeliveryFault> {
    send_within(webhook, id, body, WITHIN).await
}

/// Sends a message once, with another limit of time.
pub(super) async fn send_within(
    webhook: &Webhook,
    id: &str,
    body: &str,
    within: Duration,
) -> Result<(), DeliveryFault> {
    let status = timeout(within, exchange(webhook, id, body)).await.unwrap_or(Err(DeliveryFault::Timeout))?;
    if status.is_success() { Ok(()) } else { Err(DeliveryFault::Status(status.as_u16())) }
}

async fn exchange(webhook: &Webhook, id: &str, body: &str) -> Result<StatusCode, DeliveryFault> {
    let address = webhook.target.address();
    let connector = Connector::new(address.clone(), webhook.ca.as_deref()).map_err(DeliveryFault::Settings)?;
    let reach = if webhook.allow_private { Reach::Any } else { Reach::Public };
    let stream = connector.within(reach).connect(WITHIN).await.map_err(DeliveryFault::Connect)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(DeliveryFault::Broken)?;
    let response = sender.send_request(request(webhook, id, body));
    tokio::pin!(response, connection);
    let answer = tokio::select! {
        biased;
        answer = &mut response => answer,
        // The connection may end when the answer is complete.
        _ = &mut connection => response.await,
    };
    // The body of the answer is dropped unread, and the connection with it.
    answer.map(|answer| Response::status(&answer)).map_err(DeliveryFault::Broken)
}

fn request(webhook: &Webhook, id: &str, body: &str) -> Request<String> {
    let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let signature = signatures(&webhook.secrets, id, timestamp, body);
    let mut request = Request::new(body.to_owned());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = webhook.target.path();
    let text = |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    let headers = request.headers_mut();
    headers.insert(header::HOST, text(&webhook.target.address().authority));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("sluice"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert("webhook-id", text(id));
    headers.insert("webhook-timestamp", HeaderValue::from(timestamp));
    headers.insert("webhook-signature", text(&signature));
    request
}
