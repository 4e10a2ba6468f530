//! The least that a proxy costs: passes bytes from a unix socket to a TCP connection and back, and does nothing else.
//!
//! One upstream connection per client connection, one task for both directions, one buffer for
//! the whole process. It adds no header, keeps no log, and reads no HTTP.

use std::cell::RefCell;
use std::io::{ErrorKind, Result};
use std::process::ExitCode;
use std::rc::Rc;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::LocalSet;

use crate::{Outcome, single_threaded};

/// The hidden subcommand: relays until it or its parent is killed.
pub(crate) fn serve(socket: &str, port: &str) -> Outcome<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let port: u16 = port.parse()?;
    let scratch = Rc::new(RefCell::new(vec![0; 64 * 1024]));
    LocalSet::new().block_on(&single_threaded()?, async move {
        let listener = UnixListener::bind(socket)?;
        loop {
            let (client, _) = listener.accept().await?;
            let scratch = Rc::clone(&scratch);
            tokio::task::spawn_local(async move {
                // A peer that leaves ends its own connection only.
                let _gone: Result<()> = relay(client, port, &scratch).await;
            });
        }
    })
}

async fn relay(client: UnixStream, port: u16, scratch: &RefCell<Vec<u8>>) -> Result<()> {
    let upstream = TcpStream::connect(("127.0.0.1", port)).await?;
    upstream.set_nodelay(true)?;
    // Whichever side ends first ends both: no half-closed peer takes part in the bench.
    tokio::select! {
        done = pump(&client, &upstream, scratch) => done,
        done = pump(&upstream, &client, scratch) => done,
    }
}

/// The few calls of a socket that a relay needs.
trait Socket {
    async fn readable(&self) -> Result<()>;
    async fn writable(&self) -> Result<()>;
    fn try_read(&self, buffer: &mut [u8]) -> Result<usize>;
    fn try_write(&self, bytes: &[u8]) -> Result<usize>;
}

macro_rules! socket {
    ($stream:ty) => {
        impl Socket for $stream {
            async fn readable(&self) -> Result<()> {
                <$stream>::readable(self).await
            }
            async fn writable(&self) -> Result<()> {
                <$stream>::writable(self).await
            }
            fn try_read(&self, buffer: &mut [u8]) -> Result<usize> {
                <$stream>::try_read(self, buffer)
            }
            fn try_write(&self, bytes: &[u8]) -> Result<usize> {
                <$stream>::try_write(self, bytes)
            }
        }
    };
}
socket!(UnixStream);
socket!(TcpStream);

async fn pump(from: &impl Socket, to: &impl Socket, scratch: &RefCell<Vec<u8>>) -> Result<()> {
    loop {
        from.readable().await?;
        let Some(rest) = pass(from, to, &mut scratch.borrow_mut())? else {
            return Ok(());
        };
        let mut rest = rest.as_slice();
        while !rest.is_empty() {
            to.writable().await?;
            rest = &rest[ready(to.try_write(rest))?..];
        }
    }
}

/// Reads once and writes once. Returns the bytes that could not be written yet; `None` at the end.
fn pass(from: &impl Socket, to: &impl Socket, scratch: &mut [u8]) -> Result<Option<Vec<u8>>> {
    let read = match from.try_read(scratch) {
        Ok(0) => return Ok(None),
        read => ready(read)?,
    };
    if read == 0 {
        return Ok(Some(Vec::new()));
    }
    let written = ready(to.try_write(&scratch[..read]))?;
    Ok(Some(scratch[written..read].to_vec()))
}

/// Returns 0 if the socket is not ready.
fn ready(moved: Result<usize>) -> Result<usize> {
    match moved {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
