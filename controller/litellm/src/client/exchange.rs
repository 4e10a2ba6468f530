//! One HTTP request over a connection of its own.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sluice_upstream::{Address, Connector};
use zeroize::Zeroizing;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A request without a complete answer.
#[derive(Debug)]
pub(super) enum SendError {
    /// The failure happened before any byte of the request was sent.
    BeforeSending(io::Error),
    /// The request may have been sent in part, or the answer broke off.
    Interrupted(io::Error),
    /// The answer is longer than the limit.
    TooLong,
}

/// Sends a request over a connection of its own, and reads an answer of at most `most` bytes.
pub(super) async fn send(
    address: &Address,
    ca: Option<&Path>,
    request: Request<String>,
    most: usize,
) -> Result<HttpAnswer, SendError> {
    // The system's roots are read once. The resolver's configuration is read each time, since it can change while the
    // process lives.
    let connector =
        Connector::new(address.clone(), ca).map_err(|error| SendError::BeforeSending(io::Error::other(error)))?;
    let stream = connector.connect(CONNECT_WITHIN).await.map_err(|error| SendError::BeforeSending(error.into()))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| SendError::BeforeSending(io::Error::other(error)))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = Response::into_parts(response);
        Ok((head.status.as_u16(), read(body, most).await?))
    };
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection may end when the answer is complete.
        ended = connection => match (exchange.await, ended) {
            (Err(SendError::Interrupted(_)), Err(error)) => Err(broken(error)),
            (answer, _) => answer,
        },
    }
}

/// Status and body of an answer.
pub(super) type HttpAnswer = (u16, Zeroizing<Vec<u8>>);

async fn read(body: Incoming, most: usize) -> Result<Zeroizing<Vec<u8>>, SendError> {
    let mut body = body;
    let mut bytes = Zeroizing::new(Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            if bytes.len() + data.len() > most {
                return Err(SendError::TooLong);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

fn broken(error: hyper::Error) -> SendError {
    SendError::Interrupted(io::Error::other(error))
}
