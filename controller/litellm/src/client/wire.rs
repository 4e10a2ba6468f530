//! One HTTP question over a connection of its own.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sluice_upstream::{Address, Connector};
use zeroize::Zeroizing;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Why there was no answer.
#[derive(Debug)]
pub(super) enum Lost {
    /// Nothing of the question went out.
    Before(io::Error),
    /// Some of it may have.
    Underway(io::Error),
    /// There is more of the answer than was wanted.
    TooLong,
}

/// Asks over a connection of its own, and reads the whole answer if it is not longer than `most` bytes.
pub(super) async fn ask(address: &Address, question: Request<String>, most: usize) -> Result<Answer, Lost> {
    // The roots are read once, the resolver's configuration each time: a long life may outlast it.
    let connector = Connector::new(address.clone(), None).map_err(|error| Lost::Before(io::Error::other(error)))?;
    let stream = connector.connect(CONNECT_WITHIN).await.map_err(Lost::Before)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| Lost::Before(io::Error::other(error)))?;
    let exchange = async {
        let response = sender.send_request(question).await.map_err(broken)?;
        let (head, body) = Response::into_parts(response);
        Ok((head.status.as_u16(), read(body, most).await?))
    };
    tokio::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection may end with the answer in hand.
        ended = connection => match (exchange.await, ended) {
            (Err(Lost::Underway(_)), Err(error)) => Err(broken(error)),
            (answer, _) => answer,
        },
    }
}

/// A status and a body.
pub(super) type Answer = (u16, Zeroizing<Vec<u8>>);

async fn read(body: Incoming, most: usize) -> Result<Zeroizing<Vec<u8>>, Lost> {
    let mut body = body;
    let mut bytes = Zeroizing::new(Vec::new());
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            if bytes.len() + data.len() > most {
                return Err(Lost::TooLong);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

fn broken(error: hyper::Error) -> Lost {
    Lost::Underway(io::Error::other(error))
}
