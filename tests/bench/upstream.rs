//! The upstream: one thread, raw bytes, prepared answers.
//!
//! It uses as little CPU as possible, since it shares a core with the load generator. It reads a request of a known
//! length, looks at the model's name, answers, and keeps the connection.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Error, ErrorKind, Result, Write};
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use sluice_testkit::http1::find;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use crate::pacer::Pacer;
use crate::process::Running;
use crate::wire::{self, AnswerKind, Api};
use crate::{Outcome, single_threaded};

/// The upstream as a child of the bench.
#[derive(Debug)]
pub(crate) struct Child {
    running: Running,
    port: u16,
}

impl Child {
    /// Starts the upstream, and returns once it listens.
    pub(crate) fn start() -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("__upstream").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Running::spawn(&mut command)?;
        let mut line = String::new();
        let stdout = running.stdout().ok_or("the upstream has no stdout")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let port = line.trim().parse().map_err(|_| "the upstream did not start")?;
        Ok(Self { running, port })
    }

    /// Port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Process id.
    pub(crate) fn pid(&self) -> i32 {
        self.running.pid()
    }
}

/// The hidden subcommand: prints its port and serves until it or its parent is killed.
pub(crate) fn serve() -> Outcome<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let service = Rc::new(Service::new());
    LocalSet::new().block_on(&single_threaded()?, async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        std::io::stdout().flush()?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let service = Rc::clone(&service);
            tokio::task::spawn_local(async move {
                if let Err(error) = service.connection(stream).await
                    && !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
                {
                    eprintln!("upstream: {error}");
                }
            });
        }
    })
}

/// Prepared answers and other state that all connections share.
struct Service {
    chat: Vec<u8>,
    bursts: [Vec<u8>; Api::ALL.len()],
    pacer: Pacer,
    /// Buffer for bodies that are not needed.
    drain: RefCell<Vec<u8>>,
}

/// The parts of a request that its answer needs.
struct Request {
    answer: Option<AnswerKind>,
    signed: bool,
}

impl Service {
    fn new() -> Self {
        let burst = |api: Api| [wire::stream_head(), wire::chunks(&api.events(wire::BURST_CHUNKS)).concat()].concat();
        let bursts = Api::ALL.map(burst);
        Self { chat: wire::chat_response(), bursts, pacer: Pacer::start(), drain: RefCell::new(vec![0; 256 * 1024]) }
    }

    async fn connection(&self, mut stream: TcpStream) -> Result<()> {
        let mut buffer = Vec::with_capacity(16 * 1024);
        while let Some(request) = self.read(&mut stream, &mut buffer).await? {
            match request.answer {
                Some(AnswerKind::Chat) => stream.write_all(&self.chat).await?,
                Some(AnswerKind::Burst(api)) => stream.write_all(&self.bursts[api as usize]).await?,
                Some(AnswerKind::Paced(pace)) => stream = self.pacer.send(stream, pace).await?,
                Some(AnswerKind::Signed) => {
                    let body = wire::SIGNED[usize::from(!request.signed)];
                    stream.write_all(&wire::unary(body)).await?;
                }
                None => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?,
            }
        }
        Ok(())
    }

    /// Reads one request to its end. Returns `None` if the peer has closed between requests.
    async fn read(&self, stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<Option<Request>> {
        buffer.clear();
        let head = loop {
            if stream.read_buf(buffer).await? == 0 {
                return if buffer.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
            if let Some(at) = find(buffer, b"\r\n\r\n") {
                break at + 4;
            }
        };
        let length = content_length(&buffer[..head])?;
        while buffer.len() < head + length.min(4096) {
            if stream.read_buf(buffer).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let mut left = (head + length)
            .checked_sub(buffer.len())
            .ok_or_else(|| Error::other("more bytes than content-length says"))?;
        while left > 0 {
            stream.readable().await?;
            match stream.try_read(&mut self.drain.borrow_mut()) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    left = left.checked_sub(read).ok_or_else(|| Error::other("body longer than its length"))?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        let body = &buffer[head..];
        let answer = if length == 0 {
            None
        } else {
            let name = model(body).and_then(AnswerKind::to);
            Some(name.ok_or_else(|| Error::other("no known model in the body"))?)
        };
        let signed = matches!(answer, Some(AnswerKind::Signed)) && is_signed(&buffer[..head]);
        Ok(Some(Request { answer, signed }))
    }
}

/// Returns true if the head has exactly one key and exactly one account, both ours.
fn is_signed(head: &[u8]) -> bool {
    let all = |name: &'static str| header_values(head, name.as_bytes()).collect::<Vec<_>>();
    let key = format!("Bearer {}", wire::KEY);
    all("authorization") == [key.as_bytes()] && all("x-litellm-end-user-id") == [wire::ACCOUNT.as_bytes()]
}

/// Returns every value of a header, trimmed.
pub(crate) fn header_values<'a>(head: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    head.split(|byte| *byte == b'\n').filter_map(move |line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

/// Parses a decimal header value.
pub(crate) fn decimal(value: &[u8]) -> Option<usize> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn content_length(head: &[u8]) -> Result<usize> {
    if header_values(head, b"transfer-encoding").next().is_some() {
        return Err(Error::other("the bench's upstream reads no chunked requests"));
    }
    match header_values(head, b"content-length").next() {
        Some(value) => decimal(value).ok_or_else(|| Error::other("bad content-length")),
        None => Ok(0),
    }
}

/// Returns the value of the first `"model"` member, whatever the spacing.
fn model(body: &[u8]) -> Option<&[u8]> {
    const MEMBER: &[u8] = b"\"model\"";
    let value = &body[find(body, MEMBER)? + MEMBER.len()..];
    let value = value.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    value.split(|byte| *byte == b'"').next()
}
