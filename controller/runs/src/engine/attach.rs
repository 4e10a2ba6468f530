//! The streams of a container, as they come from the engine.
//!
//! Without a terminal the engine sends frames, which bollard decodes. With one it sends the bytes alone: bollard's
//! decoder would take a chunk that begins with the byte 0, 1 or 2 for a frame, so these bytes are read here.

use std::path::Path;
use std::pin::Pin;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::query_parameters::AttachContainerOptionsBuilder;
use bytes::BytesMut;
use futures_util::{Stream, StreamExt, stream};
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Method, Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::UnixStream;

use crate::forward::Piece;
use crate::input::Stdin;

/// The engine leaves a program at Ctrl-P Ctrl-Q, and holds each Ctrl-P back, unless it is told of other keys. This byte
/// is in no UTF-8, and nobody types it eight times in a row.
const NO_DETACH_KEYS: &str = "%FF,%FF,%FF,%FF,%FF,%FF,%FF,%FF";
/// How much is read at once.
const PIECE: usize = 32 << 10;

/// A container's output, and its input.
pub(super) struct Streams {
    pub(super) output: Pin<Box<dyn Stream<Item = Piece> + Send>>,
    pub(super) input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// Attaches to a container without a terminal.
pub(super) async fn framed(docker: &Docker, name: &str, stdin: Stdin) -> Result<Streams, Error> {
    let has_stdin = stdin == Stdin::Ours;
    let options = AttachContainerOptionsBuilder::new().stream(true).stdin(has_stdin).stdout(true).stderr(true).build();
    let attached = docker.attach_container(name, Some(options)).await?;
    // An error is the end: the connection is gone, and with it what was still to come.
    let output = attached.output.take_while(|piece| std::future::ready(piece.is_ok())).filter_map(async |piece| {
        match piece {
            Ok(LogOutput::StdOut { message }) => Some(Piece::Out(message)),
            Ok(LogOutput::StdErr { message }) => Some(Piece::Err(message)),
            // Without a terminal there is neither.
            Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. }) | Err(_) => None,
        }
    });
    Ok(Streams { output: Box::pin(output), input: attached.input })
}

/// Attaches to a container with a terminal: all that it writes is its stdout.
pub(super) async fn raw(docker: &Docker, socket: &Path, name: &str, stdin: Stdin) -> Result<Streams, Error> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let version = docker.client_version();
    let stdin = if stdin == Stdin::Ours { "1" } else { "0" };
    let path = format!(
        "/v{version}/containers/{name}/attach?stream=1&stdin={stdin}&stdout=1&stderr=1&detachKeys={NO_DETACH_KEYS}"
    );
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "tcp")
        .body(String::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let message = format!("no raw connection to the container's terminal: {}", response.status());
        return Err(Error::DockerResponseServerError { status_code: response.status().as_u16(), message });
    }
    let upgraded = hyper::upgrade::on(response).await?;
    let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
    let output = stream::unfold(reader, async |mut reader| {
        let mut piece = BytesMut::with_capacity(PIECE);
        match reader.read_buf(&mut piece).await {
            Ok(1..) => Some((Piece::Out(piece.freeze()), reader)),
            Ok(0) | Err(_) => None,
        }
    });
    Ok(Streams { output: Box::pin(output), input: Box::pin(writer) })
}
