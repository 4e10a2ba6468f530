//! One try of one message.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderValue, Method, Request, header};
use sluice_upstream::Reach;

use super::Webhook;
use super::secret::signatures;
use crate::outbound::{DeliveryFault, Destination, post};

/// Maximum time from the look-up of the name to the head of the answer.
const WITHIN: Duration = Duration::from_secs(10);

/// Sends a message once. It is delivered if the answer has a status from 200 to 299.
///
/// # Errors
/// [`DeliveryFault`]; the receiver may have accepted the message.
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
    let reach = if webhook.allow_private { Reach::Any } else { Reach::Public };
    let to = Destination { address: webhook.target.address(), ca: webhook.ca.as_deref(), reach };
    let status = post(to, request(webhook, id, body), within).await?;
    if status.is_success() { Ok(()) } else { Err(DeliveryFault::Status(status.as_u16())) }
}

fn request(webhook: &Webhook, id: &str, body: &str) -> Request<String> {
    let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let signature = signatures(&webhook.secrets, id, timestamp, body);
    let mut request = Request::new(body.to_owned());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = webhook.target.path();
    let text = |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("webhook-id", text(id));
    headers.insert("webhook-timestamp", HeaderValue::from(timestamp));
    headers.insert("webhook-signature", text(&signature));
    request
}
