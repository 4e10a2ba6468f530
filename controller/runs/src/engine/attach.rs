//! The streams of a container as the engine sends them.
//!
//! Without a terminal the engine sends frames, which bollard decodes. With a terminal it sends raw bytes: bollard's
//! decoder would mistake a chunk that begins with the byte 0, 1 or 2 for a frame, so raw bytes are read here.

use std::path::Path;
use std::pin::Pin;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::exec::StartExecResults;
use bollard::query_parameters::AttachContainerOptionsBuilder;
use bytes::BytesMut;
use futures_util::{Stream, StreamExt, stream};
use http::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use http::{Method, Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::UnixStream;

use crate::forward::OutputChunk;
use crate::input::Stdin;

/// Keys that detach from a program. By default the engine detaches at Ctrl-P Ctrl-Q, and holds each Ctrl-P back. This byte
/// does not occur in UTF-8.
const NO_DETACH_KEYS: &str = "%FF,%FF,%FF,%FF,%FF,%FF,%FF,%FF";
/// The same for an exec. Its keys are in JSON, which cannot hold that byte: Ctrl-^ eight times.
pub(super) const EXEC_DETACH_KEYS: &str = "ctrl-^,ctrl-^,ctrl-^,ctrl-^,ctrl-^,ctrl-^,ctrl-^,ctrl-^";
/// Size of one read.
const CHUNK: usize = 32 << 10;

/// Output and input of a container.
pub(super) struct ContainerStreams {
    pub(super) output: Pin<Box<dyn Stream<Item = OutputChunk> + Send>>,
    pub(super) input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// Attaches to a container without a terminal.
pub(super) async fn framed(docker: &Docker, name: &str, stdin: Stdin) -> Result<ContainerStreams, Error> {
    let has_stdin = stdin == Stdin::Ours;
    let options = AttachContainerOptionsBuilder::new().stream(true).stdin(has_stdin).stdout(true).stderr(true).build();
    let attached = docker.attach_container(name, Some(options)).await?;
    Ok(ContainerStreams { output: frames(attached.output), input: attached.input })
}

fn frames(
    frames: impl Stream<Item = Result<LogOutput, Error>> + Send + 'static,
) -> Pin<Box<dyn Stream<Item = OutputChunk> + Send>> {
    // An error is the end of the stream: the connection is gone.
    Box::pin(frames.take_while(|chunk| std::future::ready(chunk.is_ok())).filter_map(async |chunk| {
        match chunk {
            Ok(LogOutput::StdOut { message }) => Some(OutputChunk::Stdout(message)),
            Ok(LogOutput::StdErr { message }) => Some(OutputChunk::Stderr(message)),
            // A container without a terminal does not send this.
            Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. }) | Err(_) => None,
        }
    }))
}

/// Attaches to a container with a terminal: all of its output is stdout.
pub(super) async fn raw(docker: &Docker, socket: &Path, name: &str, stdin: Stdin) -> Result<ContainerStreams, Error> {
    let version = docker.client_version();
    let stdin = if stdin == Stdin::Ours { "1" } else { "0" };
    let path = format!(
        "/v{version}/containers/{name}/attach?stream=1&stdin={stdin}&stdout=1&stderr=1&detachKeys={NO_DETACH_KEYS}"
    );
    upgrade(socket, path, String::new()).await
}

/// Starts a created exec without a terminal.
pub(super) async fn framed_exec(docker: &Docker, id: &str) -> Result<ContainerStreams, Error> {
    match docker.start_exec(id, None).await? {
        StartExecResults::Attached { output, input } => Ok(ContainerStreams { output: frames(output), input }),
        StartExecResults::Detached => unreachable!("it was not asked to detach"),
    }
}

/// Starts a created exec with a terminal: all of its output is stdout.
pub(super) async fn raw_exec(docker: &Docker, socket: &Path, id: &str) -> Result<ContainerStreams, Error> {
    let path = format!("/v{}/exec/{id}/start", docker.client_version());
    upgrade(socket, path, r#"{"Detach":false,"Tty":true}"#.to_owned()).await
}

/// Sends a request after which the connection carries the bytes of a terminal.
async fn upgrade(socket: &Path, path: String, body: String) -> Result<ContainerStreams, Error> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "tcp")
        .header(CONTENT_TYPE, "application/json")
        .body(body)?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let message = format!("no raw connection to the container's terminal: {}", response.status());
        return Err(Error::DockerResponseServerError { status_code: response.status().as_u16(), message });
    }
    let upgraded = hyper::upgrade::on(response).await?;
    let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
    let output = stream::unfold(reader, async |mut reader| {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        match reader.read_buf(&mut chunk).await {
            Ok(1..) => Some((OutputChunk::Stdout(chunk.freeze()), reader)),
            Ok(0) | Err(_) => None,
        }
    });
    Ok(ContainerStreams { output: Box::pin(output), input: Box::pin(writer) })
}
