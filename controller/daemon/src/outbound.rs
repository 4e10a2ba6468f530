//! Requests of the daemon to addresses that an admin has set.
//!
//! The address is checked after its name was looked up, and the checked address is used. No redirect is followed, and only
//! the head of the answer is read.

use std::path::Path;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sluice_upstream::{Address, ConnectError, Connector, Reach};
use tokio::time::timeout;

/// Maximum time of a connection attempt.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of an answer's head.
const HEAD_MAX: usize = 16 << 10;

/// Address of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) address: &'a Address,
    /// File with the certificates to trust, in place of the system's.
    pub(crate) ca: Option<&'a Path>,
    /// Addresses to which a connection is allowed.
    pub(crate) reach: Reach,
}

/// Reason why a request was not accepted. It contains only the status of the answer.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryFault {
    /// The settings allow no connection.
    #[error("the address cannot be used")]
    Settings(#[source] sluice_upstream::SetupError),
    /// There is no connection.
    #[error("cannot connect")]
    Connect(#[source] ConnectError),
    /// The connection broke, or its answer is not HTTP.
    #[error("the answer is not complete, or not HTTP")]
    Broken(#[source] hyper::Error),
    /// No answer came in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The receiver refused the request, or answered with a redirect.
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
            Self::Timeout(_) => "timeout".to_owned(),
            Self::Status(status @ 300..=399) => format!("redirect_{status}"),
            Self::Status(status) => format!("status_{status}"),
        }
    }
}

/// Sends a request on a connection of its own, and returns the status of the answer. The caller has set the target of
/// the request and all headers except `Host`, `User-Agent` and `Connection`.
///
/// # Errors
/// [`DeliveryFault`]; the receiver may have accepted the request.
pub(crate) async fn post(
    to: Destination<'_>,
    request: Request<String>,
    within: Duration,
) -> Result<StatusCode, DeliveryFault> {
    timeout(within, exchange(to, request)).await.unwrap_or(Err(DeliveryFault::Timeout(within)))
}

async fn exchange(to: Destination<'_>, mut request: Request<String>) -> Result<StatusCode, DeliveryFault> {
    let connector = Connector::new(to.address.clone(), to.ca).map_err(DeliveryFault::Settings)?;
    let stream = connector.within(to.reach).connect(CONNECT_WITHIN).await.map_err(DeliveryFault::Connect)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(DeliveryFault::Broken)?;
    let host = HeaderValue::from_str(&to.address.authority).unwrap_or_else(|_| HeaderValue::from_static(""));
    let headers = request.headers_mut();
    headers.insert(header::HOST, host);
    headers.insert(header::USER_AGENT, HeaderValue::from_static("sluice"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let response = sender.send_request(request);
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
