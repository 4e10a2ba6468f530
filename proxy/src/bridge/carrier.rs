//! Connections from `localhost` to the sidecar's socket: one thread, which waits for all of them at once.
//!
//! It uses no runtime, since every run starts this program: tasks of tokio would add 100 KB to it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{read, write};

use super::{BridgeError, SIDECAR_WITHIN};

/// Maximum number of connections at once; later ones wait in the kernel's queue. Each needs two descriptors.
const CONNECTIONS: usize = 512;
/// Size of the buffer of one direction of a connection.
const BUFFER: usize = 16 << 10;
/// Number of buffers that a direction carries before other connections are served.
const ROUNDS: usize = 16;
/// Milliseconds between two looks for the sidecar's socket.
const LOOK_AGAIN: u8 = 2;
/// Milliseconds until the next try to accept a connection when there is no descriptor for it.
const ACCEPT_AGAIN: u8 = 50;

/// Listeners on `localhost`, and the socket that they lead to.
#[derive(Debug)]
pub(super) struct Carrier {
    listeners: Vec<TcpListener>,
    socket: PathBuf,
    connections: Vec<BridgedConnection>,
}

/// A client and the sidecar.
#[derive(Debug)]
struct BridgedConnection {
    client: OwnedFd,
    sidecar: OwnedFd,
    request: Direction,
    answer: Direction,
}

/// Bytes on their way in one direction.
#[derive(Debug)]
struct Direction {
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    state: DirectionState,
}

/// State of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectionState {
    /// More can come.
    Open,
    /// The source has ended; the buffer may hold its last bytes.
    Ended,
    /// The sink has seen the end.
    Closed,
}

impl Carrier {
    /// Listens on a port, and waits for the sidecar.
    pub(super) fn open(port: u16, socket: &Path) -> Result<Self, BridgeError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut listeners = vec![listen(address).map_err(|error| BridgeError::Listen(address, error))?];
        // A sandbox may have no IPv6.
        listeners.extend(listen(SocketAddr::from((Ipv6Addr::LOCALHOST, port))));
        wait_for(socket).map_err(|error| BridgeError::NoSidecar(socket.to_owned(), error))?;
        Ok(Self { listeners, socket: socket.to_owned(), connections: Vec::new() })
    }

    /// Carries connections; never returns.
    pub(super) fn carry(mut self) {
        loop {
            let (is_ready, accepts) = self.wait();
            let mut index = 0;
            self.connections.retain_mut(|connection| {
                let ready = is_ready.get(index).copied().unwrap_or(false);
                index += 1;
                !ready || connection.carry().is_ok_and(|()| !connection.is_over())
            });
            if accepts && !self.accept() {
                pause(ACCEPT_AGAIN);
            }
        }
    }

    /// Waits until something can be done. Returns the connections that are ready, and whether a listener may be.
    fn wait(&self) -> (Vec<bool>, bool) {
        let mut polled = Vec::new();
        let mut owners = Vec::new();
        for (index, connection) in self.connections.iter().enumerate() {
            for (end, events) in connection.interests() {
                polled.push(PollFd::new(end, events));
                owners.push(index);
            }
        }
        if self.connections.len() < CONNECTIONS {
            polled.extend(self.listeners.iter().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)));
        }
        // An error is an interruption, or a lack of memory: the next round looks again.
        if poll(&mut polled, PollTimeout::NONE).is_err() {
            return (Vec::new(), false);
        }
        let has_events = |polled: &PollFd<'_>| polled.revents().is_some_and(|events| !events.is_empty());
        let mut is_ready = vec![false; self.connections.len()];
        for (owner, _) in owners.iter().zip(&polled).filter(|pair| has_events(pair.1)) {
            is_ready[*owner] = true;
        }
        (is_ready, polled.iter().skip(owners.len()).any(has_events))
    }

    /// Accepts all clients that wait. Returns false if one waits and cannot be accepted now.
    fn accept(&mut self) -> bool {
        for listener in &self.listeners {
            while self.connections.len() < CONNECTIONS {
                let client = match listener.accept() {
                    Ok((client, _)) => client,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                };
                // A connection that fails is closed: its client notices.
                let ready = client.set_nonblocking(true).and_then(|()| client.set_nodelay(true));
                let connected = ready.and_then(|()| connect(&self.socket));
                self.connections.extend(connected.map(|sidecar| BridgedConnection::new(client.into(), sidecar.into())));
            }
        }
        true
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let sidecar = UnixStream::connect(socket)?;
    sidecar.set_nonblocking(true)?;
    Ok(sidecar)
}

/// Waits until a socket accepts connections. Returns the last error when the time is up.
fn wait_for(socket: &Path) -> io::Result<()> {
    let deadline = Instant::now() + SIDECAR_WITHIN;
    loop {
        match UnixStream::connect(socket) {
            Err(_) if Instant::now() < deadline => pause(LOOK_AGAIN),
            connected => return connected.map(drop),
        }
    }
}

fn pause(milliseconds: u8) {
    let _ = poll(&mut [], milliseconds);
}

impl BridgedConnection {
    fn new(client: OwnedFd, sidecar: OwnedFd) -> Self {
        Self { client, sidecar, request: Direction::new(), answer: Direction::new() }
    }

    /// Returns the events that each end is polled for. An end without interest is left out: its hang-up would end each
    /// poll at once.
    fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let interest = |from: &Direction, to: &Direction| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::POLLIN, from.wants_input());
            events.set(PollFlags::POLLOUT, to.has_bytes());
            events
        };
        let ends = [
            (self.client.as_fd(), interest(&self.request, &self.answer)),
            (self.sidecar.as_fd(), interest(&self.answer, &self.request)),
        ];
        ends.into_iter().filter(|(_, events)| !events.is_empty())
    }

    /// Carries what can be carried now.
    fn carry(&mut self) -> Result<(), Errno> {
        match self.request.carry(self.client.as_fd(), self.sidecar.as_fd()) {
            // The sidecar reads no more of the request. Its answer may still be on the way.
            Err(Errno::EPIPE) => self.request.close(),
            carried => carried?,
        }
        self.answer.carry(self.sidecar.as_fd(), self.client.as_fd())
    }

    fn is_over(&self) -> bool {
        [&self.request, &self.answer].iter().all(|direction| direction.state == DirectionState::Closed)
    }
}

impl Direction {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER].into(), begin: 0, end: 0, state: DirectionState::Open }
    }

    /// Drops what is left.
    fn close(&mut self) {
        (self.begin, self.end, self.state) = (0, 0, DirectionState::Closed);
    }

    fn has_bytes(&self) -> bool {
        self.begin < self.end
    }

    fn wants_input(&self) -> bool {
        self.state == DirectionState::Open && !self.has_bytes()
    }

    /// Moves bytes until the source has no more, the sink takes no more, or other connections are due. The end of the
    /// source closes the sink's side.
    fn carry(&mut self, source: BorrowedFd<'_>, sink: BorrowedFd<'_>) -> Result<(), Errno> {
        for _ in 0..ROUNDS {
            if self.wants_input() {
                match read(source, &mut self.buffer) {
                    Ok(0) => self.state = DirectionState::Ended,
                    Ok(length) => (self.begin, self.end) = (0, length),
                    Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if self.has_bytes() {
                match write(sink, &self.buffer[self.begin..self.end]) {
                    Ok(length) => self.begin += length,
                    Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                    Err(error) => return Err(error),
                }
            } else if self.state == DirectionState::Ended {
                self.state = DirectionState::Closed;
                return shutdown(sink.as_raw_fd(), Shutdown::Write);
            } else if self.state == DirectionState::Closed {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Answers each request, once it has ended, with as many bytes.
    fn answer(sidecar: &UnixListener, connections: usize) {
        thread::scope(|scope| {
            for _ in 0..connections {
                let (mut call, _) = sidecar.accept().expect("it is connected");
                scope.spawn(move || {
                    let mut request = Vec::new();
                    call.read_to_end(&mut request).expect("it is read to its end");
                    call.write_all(&vec![b'y'; request.len()]).expect("it is carried");
                });
            }
        });
    }

    #[test]
    fn half_closed_clients_get_their_answers() {
        let dir = std::env::temp_dir().join(format!("sluice-carrier-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("it is not there yet");
        let socket = dir.join("s");
        let sidecar = UnixListener::bind(&socket).expect("it is free");
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let carrier = Carrier { listeners: vec![listener], socket, connections: Vec::new() };
        // It ends with this process.
        thread::spawn(|| carrier.carry());
        let lengths = [0, 1, BUFFER, BUFFER + 1, 3 << 20, 5 << 20];
        let answering = thread::spawn(move || answer(&sidecar, lengths.len()));

        thread::scope(|scope| {
            for length in lengths {
                scope.spawn(move || {
                    let mut client = TcpStream::connect(address).expect("it listens");
                    client.write_all(&vec![b'x'; length]).expect("it is carried");
                    client.shutdown(std::net::Shutdown::Write).expect("it is open");
                    let mut got = Vec::new();
                    client.read_to_end(&mut got).expect("it is read to its end");
                    assert_eq!(got, vec![b'y'; length]);
                });
            }
        });

        answering.join().expect("all were answered");
        std::fs::remove_dir_all(dir).expect("it is ours");
    }
}
