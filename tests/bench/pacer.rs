//! Sends paced streams: one chunk in each interval, with the streams spread evenly over it.
//!
//! A separate thread does it, because the runtime's timer has a step of 1 ms, which would send 64 streams in two
//! batches and let every proxy handle 32 chunks per wake-up. Tokens do not arrive like that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Error, Result, Write};
use std::net::TcpStream as Blocking;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::prctl;
use sluice_testkit::http1::find;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::streams::{Api, Pace};
use crate::wire;

/// The handle to the pacing thread.
pub(crate) struct Pacer {
    streams: Sender<Paced>,
}

/// A stream that is being sent.
struct Paced {
    stream: Blocking,
    pace: Pace,
    next: usize,
    done: oneshot::Sender<Result<Blocking>>,
}

impl Pacer {
    /// Starts the thread, which lives as long as the process.
    pub(crate) fn start() -> Self {
        let (streams, arrivals) = channel();
        std::thread::spawn(move || pace(&arrivals));
        Self { streams }
    }

    /// Sends a whole paced answer and gives the connection back.
    pub(crate) async fn send(&self, stream: TcpStream, pace: Pace) -> Result<TcpStream> {
        let (done, sent) = oneshot::channel();
        let stream = stream.into_std()?;
        self.streams
            .send(Paced { stream, pace, next: 0, done })
            .map_err(|_| Error::other("the pacing thread has ended"))?;
        TcpStream::from_std(sent.await.map_err(|_| Error::other("the pacing thread has ended"))??)
    }
}

fn pace(arrivals: &Receiver<Paced>) {
    // The default slack of 50 µs is more than the distance between two chunks.
    if let Err(error) = prctl::set_timerslack(1) {
        eprintln!("upstream: cannot set the timer slack: {error}");
    }
    let [mut fast, mut slow] = Pace::ALL.map(|pace| wire::chunks(&Api::Chat.events(pace.chunks())));
    let mut live: Vec<Option<Paced>> = Vec::new();
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let epoch = Instant::now();
    loop {
        let wait = match due.peek() {
            Some(Reverse((at, _))) => at.saturating_duration_since(Instant::now()),
            None => Duration::from_secs(3600),
        };
        match arrivals.recv_timeout(wait) {
            Ok(paced) => {
                let slot = live.iter().position(Option::is_none).unwrap_or_else(|| {
                    live.push(None);
                    live.len() - 1
                });
                due.push(Reverse((first(epoch, slot, paced.pace), slot)));
                live[slot] = Some(paced);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        while let Some(Reverse((at, slot))) = due.peek().copied() {
            if at > now {
                break;
            }
            due.pop();
            let Some(mut paced) = live[slot].take() else {
                continue;
            };
            let chunks = match paced.pace {
                Pace::Fast => &mut fast,
                Pace::Slow => &mut slow,
            };
            match paced.step(chunks) {
                Ok(()) if paced.next < chunks.len() => {
                    due.push(Reverse((at + paced.pace.interval(), slot)));
                    live[slot] = Some(paced);
                }
                // A receiver that is gone means that the connection is not wanted any more.
                Ok(()) => drop(paced.done.send(Ok(paced.stream))),
                Err(error) => drop(paced.done.send(Err(error))),
            }
        }
    }
}

/// Returns the next moment of a slot's phase.
fn first(epoch: Instant, slot: usize, pace: Pace) -> Instant {
    let (interval, phases) = (pace.interval(), pace.phases());
    let phase = interval / phases * (u32::try_from(slot).unwrap_or(0) % phases);
    let periods = epoch.elapsed().as_micros() / interval.as_micros() + 1;
    epoch + interval * u32::try_from(periods).unwrap_or(u32::MAX) + phase
}

impl Paced {
    /// Sends the next chunk, stamped; the first together with the head.
    fn step(&mut self, chunks: &mut [Vec<u8>]) -> Result<()> {
        let chunk = &mut chunks[self.next];
        if let Some(at) = find(chunk, wire::STAMP) {
            let at = at + wire::STAMP.len();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(Error::other)?;
            let stamp = format!("{:0width$}", now.as_micros(), width = wire::STAMP_DIGITS);
            chunk[at..at + wire::STAMP_DIGITS].copy_from_slice(stamp.as_bytes());
        }
        // The socket does not block, and a chunk is far smaller than its buffer: a client that does not read is an
        // error here.
        if self.next == 0 {
            let mut head = wire::stream_head();
            head.extend_from_slice(chunk);
            self.stream.write_all(&head)?;
        } else {
            self.stream.write_all(chunk)?;
        }
        self.next += 1;
        Ok(())
    }
}
