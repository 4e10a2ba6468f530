//! The client's socket, watched only for input.
//!
//! tokio watches a `UnixStream` in both directions, and the kernel reports free buffer space whenever the other end
//! has read: a wake-up and a turn of the event loop for each piece of a stream. Here the output is watched only after
//! a write has found no space.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use nix::sys::uio::writev;
use nix::unistd::write;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

/// A connected unix socket. It uses tokio's pipes, which are watched in one direction only and take any descriptor.
#[derive(Debug)]
pub struct ClientSocket {
    socket: pipe::Receiver,
    /// The same socket, while a write waits for buffer space.
    room: Option<pipe::Sender>,
}

impl ClientSocket {
    /// Registers a non-blocking socket with the event loop.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(Self { socket: pipe::Receiver::from_owned_fd_unchecked(socket.into())?, room: None })
    }

    /// Writes as much as the buffer takes at once.
    ///
    /// # Errors
    /// The error of the system; `WouldBlock` if the buffer is full.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(write(&self.socket, bytes)?)
    }

    /// Returns true if both directions are closed: the kernel reports that without a read or a write.
    #[must_use]
    pub fn has_hung_up(&self) -> bool {
        let mut asked = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        poll(&mut asked, PollTimeout::ZERO).is_ok()
            && asked[0].revents().is_some_and(|told| told.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
    }

    /// Writes as much as the buffer takes at once; if it is full, watches for space.
    fn poll_write_with(
        &mut self,
        at_once: impl Fn(&pipe::Receiver) -> nix::Result<usize>,
        in_time: impl FnOnce(Pin<&mut pipe::Sender>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let room = match &mut self.room {
            Some(room) => room,
            none => match at_once(&self.socket) {
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {
                    let again = self.socket.as_fd().try_clone_to_owned()?;
                    none.insert(pipe::Sender::from_owned_fd_unchecked(again)?)
                }
                done => return Poll::Ready(done.map_err(io::Error::from)),
            },
        };
        in_time(Pin::new(room))
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(|socket| write(socket, buf), |room| room.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(|socket| writev(socket, bufs), |room| room.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The kernel has everything; the output is watched again after the next write that finds no space.
    fn poll_flush(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.room = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(self.socket.as_raw_fd(), Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn pair() -> (UnixStream, ClientSocket) {
        let (client, server) = UnixStream::pair().expect("a pair of sockets");
        server.set_nonblocking(true).expect("an open socket");
        (client, ClientSocket::new(server).expect("a descriptor"))
    }

    /// Returns the events that the kernel reports to the event loop for a descriptor.
    fn watched(fd: &impl AsRawFd) -> u32 {
        let loops = std::fs::read_dir("/proc/self/fdinfo").expect("the kernel tells").flatten();
        // Other tests open and close descriptors at the same time.
        let lines: String = loops.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect();
        let fd = fd.as_raw_fd().to_string();
        let told = lines.lines().filter_map(|line| line.strip_prefix("tfd:")).find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            (words.next() == Some(&fd)).then(|| words.nth(1).map(str::to_owned)).flatten()
        });
        u32::from_str_radix(&told.expect("some event loop watches it"), 16).expect("a mask")
    }

    #[tokio::test]
    async fn only_what_the_client_sends_wakes_us() {
        const IN_AND_OUT: u32 = (nix::libc::EPOLLIN | nix::libc::EPOLLOUT) as u32;
        let (_client, stream) = pair();
        assert_eq!(watched(&stream.socket) & IN_AND_OUT, nix::libc::EPOLLIN as u32);
    }

    #[tokio::test]
    async fn a_blocked_write_continues_when_there_is_space() {
        let (mut client, mut stream) = pair();
        let sent: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let reader = tokio::task::spawn_blocking(move || {
            let mut got = Vec::new();
            client.read_to_end(&mut got).map(|_| got)
        });

        stream.write_all(&sent).await.expect("all of it goes");
        assert!(stream.room.is_some(), "no socket holds four million bytes");
        stream.flush().await.expect("nothing is left");
        assert!(stream.room.is_none());
        stream.shutdown().await.expect("an end");

        assert!(reader.await.expect("it ran").expect("it read") == sent);
    }

    #[tokio::test]
    async fn a_gone_peer_differs_from_a_half_closed_one() {
        let (client, mut stream) = pair();
        client.shutdown(std::net::Shutdown::Write).expect("half of it closes");
        assert_eq!(stream.read(&mut [0; 8]).await.expect("an end of input"), 0);
        assert!(!stream.has_hung_up());

        drop(client);

        assert!(stream.has_hung_up());
        assert!(stream.write(b"x").await.is_err());
    }
}
