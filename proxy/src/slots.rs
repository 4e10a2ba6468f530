//! Slots for open connections, and the choice of the connection that is closed when another one waits.
//!
//! A client may keep connections open between its requests; SDKs keep up to 100. They cost memory and a slot, so a
//! connection that has carried no request for a minute is closed, and earlier when a new one waits for a slot. The
//! close never loses a request: only the receiving side of the socket is shut. Requests that the client has sent by
//! then are read and answered; a later one fails at once in the client's `write`, so its SDK opens another connection.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use tokio::sync::Notify;

/// Interval at which [`Slots::close_expired`] is to be called.
pub const SWEEP: Duration = Duration::from_secs(5);
/// An idle connection is closed after this many sweeps: 60 to 65 s.
const SWEEPS: usize = 12;
/// A connection that has sent nothing yet keeps its slot for this many sweeps, 5 to 10 s: its first request may be on
/// its way.
const SWEEPS_FOR_FIRST: usize = 2;
/// The value of `idle_since` while a request is open.
const BUSY: u64 = 0;

/// The table of open connections.
#[derive(Debug)]
pub struct Slots {
    max: usize,
    /// Counter of the moments at which connections became idle: their order, without a clock.
    moments: AtomicU64,
    /// True if a connection waits for a slot.
    wanted: AtomicBool,
    became_idle: Notify,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, SlotEntry>,
    /// Moments of the last sweeps.
    sweeps: VecDeque<u64>,
}

#[derive(Debug)]
struct SlotEntry {
    socket: RawFd,
    activity: Arc<Activity>,
    /// True once the connection was told to end.
    closing: bool,
}

/// Slot of one connection, free again when this value is dropped. To be dropped before the socket that it names.
#[derive(Debug)]
pub struct Slot {
    id: u64,
    activity: Arc<Activity>,
}

/// State of a connection: it carries a request, or has been idle since some moment.
#[derive(Debug)]
pub struct Activity {
    slots: Arc<Slots>,
    idle_since: AtomicU64,
    /// True once the connection has carried a request.
    used: AtomicBool,
}

impl Slots {
    /// Creates a table for at most `max` connections.
    #[must_use]
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            moments: AtomicU64::new(BUSY),
            wanted: AtomicBool::new(false),
            became_idle: Notify::new(),
            table: Mutex::default(),
        })
    }

    /// Takes a slot for a new connection, which is idle until its first byte. `None` if all are taken.
    #[must_use]
    pub fn take(self: &Arc<Self>, socket: RawFd) -> Option<Slot> {
        let mut table = self.lock();
        let full = table.open.len() >= self.max;
        self.wanted.store(full, Ordering::Relaxed);
        if full {
            return None;
        }
        let id = table.next;
        table.next += 1;
        let activity = Arc::new(Activity {
            slots: Arc::clone(self),
            idle_since: AtomicU64::new(self.moment()),
            used: AtomicBool::new(false),
        });
        table.open.insert(id, SlotEntry { socket, activity: Arc::clone(&activity), closing: false });
        Some(Slot { id, activity })
    }

    /// Returns true if no connection is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().open.is_empty()
    }

    /// Closes the connection that has been idle for the longest time. Does nothing without an idle one.
    pub fn close_longest_idle(&self) {
        let mut table = self.lock();
        let before = table.sweeps.iter().nth_back(SWEEPS_FOR_FIRST - 1).copied().unwrap_or(BUSY);
        let idle = table.open.values_mut().filter_map(|entry| {
            let since = entry.idle_since()?;
            (entry.activity.used.load(Ordering::Relaxed) || since <= before).then_some((since, entry))
        });
        if let Some((_, entry)) = idle.min_by_key(|(since, _)| *since) {
            entry.close();
        }
    }

    /// Closes the connections that have been idle for twelve sweeps.
    pub fn close_expired(&self) {
        let mut table = self.lock();
        let now = self.moments.load(Ordering::Relaxed);
        table.sweeps.push_back(now);
        if table.sweeps.len() <= SWEEPS {
            return;
        }
        let before = table.sweeps.pop_front().unwrap_or(BUSY);
        let is_expired = |entry: &&mut SlotEntry| entry.idle_since().is_some_and(|since| since <= before);
        table.open.values_mut().filter(is_expired).for_each(SlotEntry::close);
    }

    /// Waits until a connection becomes idle while another one waits for a slot.
    pub async fn one_became_idle(&self) {
        self.became_idle.notified().await;
    }

    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotEntry {
    /// Returns the moment since which the connection is idle; `None` if it carries a request, or is ending.
    fn idle_since(&self) -> Option<u64> {
        let since = self.activity.idle_since.load(Ordering::Relaxed);
        (!self.closing && since != BUSY).then_some(since)
    }

    /// Shuts the client's input. The event loop wakes the connection, which finds the end of its input.
    fn close(&mut self) {
        self.closing = true;
        // A socket that is no longer connected ends by itself.
        let _ = shutdown(self.socket, Shutdown::Read);
    }
}

impl Slot {
    /// Returns the activity of the connection.
    #[must_use]
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Activity {
    /// Notes that the connection waits for a request. It is idle since the first of these calls.
    pub fn idle(&self) {
        if self.idle_since.load(Ordering::Relaxed) == BUSY {
            self.idle_since.store(self.slots.moment(), Ordering::Relaxed);
            if self.slots.wanted.load(Ordering::Relaxed) {
                self.slots.became_idle.notify_one();
            }
        }
    }

    /// Notes that a part of a request was read.
    pub fn busy(&self) {
        self.idle_since.store(BUSY, Ordering::Relaxed);
        self.used.store(true, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.activity.slots.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    struct Connection {
        client: UnixStream,
        slot: Slot,
        server: UnixStream,
    }

    fn connect(slots: &Arc<Slots>) -> Connection {
        let (client, server) = UnixStream::pair().expect("a pair of sockets");
        server.set_nonblocking(true).expect("an open socket");
        let slot = slots.take(server.as_raw_fd()).expect("a free slot");
        Connection { client, slot, server }
    }

    impl Connection {
        fn is_closed(&mut self) -> bool {
            self.server.read(&mut [0; 8]).is_ok_and(|read| read == 0)
        }
    }

    #[test]
    fn no_more_slots_are_given_than_there_are() {
        let slots = Slots::new(1);
        let first = connect(&slots);
        assert!(slots.take(first.server.as_raw_fd()).is_none());
        drop(first);
        assert!(slots.is_empty());
        connect(&slots);
    }

    #[test]
    fn the_longest_idle_connection_is_closed_first() {
        let slots = Slots::new(4);
        let mut all = [(); 4].map(|()| connect(&slots));
        // The first one carries a request, the second one was used last.
        for used in [0, 2, 3, 1] {
            all[used].slot.activity.busy();
        }
        for idle in [2, 3, 1] {
            all[idle].slot.activity.idle();
        }

        let mut closed = Vec::new();
        for _ in 0..4 {
            slots.close_longest_idle();
            closed.push(std::array::from_fn(|n| all[n].is_closed()));
        }

        let expected: [[bool; 4]; 4] = [
            [false, false, true, false],
            [false, false, true, true],
            [false, true, true, true],
            [false, true, true, true],
        ];
        assert_eq!(closed, expected);
    }

    #[test]
    fn a_connection_has_two_sweeps_for_its_first_request() {
        let slots = Slots::new(1);
        let mut fresh = connect(&slots);
        let closed = [(); 3].map(|()| {
            slots.close_longest_idle();
            let closed = fresh.is_closed();
            slots.close_expired();
            closed
        });
        assert_eq!(closed, [false, false, true]);
    }

    #[test]
    fn idle_connections_end_after_twelve_sweeps() {
        let slots = Slots::new(3);
        let (mut idle, mut busy, mut used) = (connect(&slots), connect(&slots), connect(&slots));
        busy.slot.activity.busy();
        slots.close_expired();
        used.slot.activity.busy();
        used.slot.activity.idle();
        for _ in 1..SWEEPS {
            slots.close_expired();
            assert!(!idle.is_closed());
        }

        slots.close_expired();

        assert_eq!([idle.is_closed(), busy.is_closed(), used.is_closed()], [true, false, false]);
    }

    #[test]
    fn what_was_sent_before_the_close_is_still_read() {
        let slots = Slots::new(1);
        let mut connection = connect(&slots);
        connection.slot.activity.busy();
        connection.slot.activity.idle();
        connection.client.write_all(b"GET /").expect("there is room");

        slots.close_longest_idle();

        let mut read = [0; 8];
        assert_eq!(connection.server.read(&mut read).expect("it is there"), 5);
        assert!(connection.is_closed());
        let late = connection.client.write_all(b"GET /").map_err(|error| error.kind());
        assert_eq!(late, Err(ErrorKind::BrokenPipe));
        connection.server.write_all(b"200").expect("the answer still goes out");
    }

    #[tokio::test]
    async fn an_idle_connection_wakes_the_waiting_one() {
        let slots = Slots::new(1);
        let connection = connect(&slots);
        connection.slot.activity.busy();
        assert!(slots.take(connection.server.as_raw_fd()).is_none());

        connection.slot.activity.idle();

        slots.one_became_idle().await;
    }
}
