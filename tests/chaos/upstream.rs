//! The upstream that is killed: it records each call when it has the head, and then answers slowly.
//!
//! A hidden subcommand of this program, so that it is a separate process.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::Value;
use sluice_testkit::http1::{Body, HeadLines, first, take_head};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::LocalSet;

use crate::answers::{self, Route};
use crate::fault::ChaosFault;
use crate::random::{moment, pick};
use crate::record::CallRecord;
use crate::single_threaded;
use fastrand::Rng;

/// The address that it listens on.
#[derive(Debug, Clone)]
pub(crate) enum UpstreamAddress {
    /// Host and port; the port 0 is any.
    Tcp(String),
    Unix(PathBuf),
}

impl UpstreamAddress {
    pub(crate) fn parse(text: &str) -> Self {
        text.strip_prefix("unix:").map_or_else(|| Self::Tcp(text.to_owned()), |path| Self::Unix(path.into()))
    }

    /// Returns the address as an argument of [`serve`].
    pub(crate) fn argument(&self) -> String {
        match self {
            Self::Tcp(address) => address.clone(),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Returns the address as `--upstream` takes it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// Prints its address, and serves until it or its parent is killed.
pub(crate) fn serve(address: &str, record: &str, seed: &str) -> Result<(), ChaosFault> {
    crate::process::die_with_parent()?;
    let record = Rc::new(CallRecord::open(Path::new(record))?);
    let mut seed = Rng::with_seed(seed.parse()?);
    LocalSet::new().block_on(&single_threaded()?, async move {
        match UpstreamAddress::parse(address) {
            UpstreamAddress::Tcp(address) => {
                let listener = TcpListener::bind(&address).await?;
                announce(&listener.local_addr()?.to_string())?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    stream.set_nodelay(true)?;
                    spawn(stream, &record, seed.fork());
                }
            }
            UpstreamAddress::Unix(path) => {
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                    _ => {}
                }
                let listener = UnixListener::bind(&path)?;
                announce(address)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    spawn(stream, &record, seed.fork());
                }
            }
        }
    })
}

fn announce(address: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{address}")?;
    stdout.flush()
}

fn spawn(stream: impl AsyncRead + AsyncWrite + Unpin + 'static, record: &Rc<CallRecord>, random: Rng) {
    let mut connection = Connection { stream, input: BytesMut::new(), record: Rc::clone(record), random };
    tokio::task::spawn_local(async move {
        // A killed sidecar ends a connection; a malformed request is a fault.
        while let Ok(true) = connection.exchange().await {}
    });
}

struct Connection<S> {
    stream: S,
    input: BytesMut,
    record: Rc<CallRecord>,
    random: Rng,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Handles one request; returns false when no other can follow.
    async fn exchange(&mut self) -> io::Result<bool> {
        let head = loop {
            match take_head(&mut self.input) {
                Err(fault) => return self.refuse(&format!("malformed request head: {fault}")),
                Ok(Some(head)) => break head,
                Ok(None) if self.stream.read_buf(&mut self.input).await? == 0 => return Ok(false),
                Ok(None) => {}
            }
        };
        let Some(call) = UpstreamCall::of(&head) else {
            return self.refuse(&format!("a request without its names: {}", String::from_utf8_lossy(&head.raw)));
        };
        // The call is recorded before its body is read: from now on, it has reached the upstream.
        self.record.call(&call.id, &call.run)?;
        let mut body = match Body::of_request(&head.headers) {
            Ok(body) => body,
            Err(fault) => return self.refuse(&fault),
        };
        let mut text = Vec::new();
        loop {
            match body.take(&mut self.input, &mut text) {
                Err(fault) => return self.refuse(&fault),
                Ok(true) => break,
                Ok(false) if self.stream.read_buf(&mut self.input).await? == 0 => return Ok(false),
                Ok(false) => {}
            }
        }
        let Ok(asked) = serde_json::from_slice::<Value>(&text) else {
            return self.refuse("a request's body is not JSON");
        };
        self.pause().await;
        if asked["stream"] == true {
            self.stream.write_all(&answers::stream_head(&call.id)).await?;
            for event in answers::events(call.route, &mut self.random) {
                self.stream.write_all(&event).await?;
                self.pause().await;
            }
        } else {
            let (head, body) = answers::unary(call.route, &call.id, &mut self.random);
            self.stream.write_all(&head).await?;
            let (one, two) = body.split_at(body.len() / 2);
            for part in [one, two] {
                self.pause().await;
                self.stream.write_all(part).await?;
            }
        }
        Ok(true)
    }

    fn refuse(&self, what: &str) -> io::Result<bool> {
        self.record.fault(what);
        Ok(false)
    }

    /// Waits as long as a model thinks about its next word; often not at all.
    async fn pause(&mut self) {
        let longest = pick(&mut self.random, &[0, 0, 0, 500, 2_000, 15_000]);
        if longest > 0 {
            tokio::time::sleep(moment(&mut self.random, Duration::from_micros(longest))).await;
        }
    }
}

/// The head of a call.
struct UpstreamCall {
    id: String,
    run: String,
    route: Route,
}

impl UpstreamCall {
    fn of(head: &HeadLines) -> Option<Self> {
        let id = first(&head.headers, "x-litellm-call-id")?;
        let names: Value = serde_json::from_str(first(&head.headers, "x-litellm-spend-logs-metadata")?).ok()?;
        if names["sluice_call_id"] != id {
            return None;
        }
        let path = head.first.split(' ').nth(1)?;
        Some(Self { id: id.to_owned(), run: names["run_id"].as_str()?.to_owned(), route: Route::of(path)? })
    }
}
