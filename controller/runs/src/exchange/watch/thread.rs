//! The thread of one watched workspace: waits for notices, checks, rests.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::dirty::DirtyNames;
use super::notifier::Drained;
use super::scanner::WorkspaceScanner;
use super::sink::WatchNotice;

/// Time between two readings of notices while names wait.
const TICK: Duration = Duration::from_millis(100);
/// Approximate time of work in one turn.
const TURN: Duration = Duration::from_millis(250);
/// Rest after work, as a multiple of its time.
const REST: u32 = 4;
/// Rest after a walk, as a multiple of the time that it took.
const WALK_REST: u32 = 20;
/// Shortest time between two walks after lost notices.
const WALK_AGAIN: Duration = Duration::from_secs(1);
/// Maximum time of the last check.
const LAST_LOOK: Duration = Duration::from_secs(20);
/// Approximate time by which the clock of files may be late.
const CLOCK_MARGIN: Duration = Duration::from_millis(20);

/// Reason why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// Notices, or the end of the time.
    Look,
    /// The run is over.
    Finish,
    /// The reader of the reports is gone.
    Stop,
}

/// The thread of one watched workspace.
#[derive(Debug)]
pub(super) struct WatchThread {
    control: PipeReader,
    scanner: WorkspaceScanner,
    dirty: DirtyNames,
    /// Time before which no name is checked.
    rest_until: Instant,
    /// Time of the next walk.
    walk_at: Option<Instant>,
    last_walk: Duration,
}

impl WatchThread {
    pub(super) fn new(control: PipeReader, scanner: WorkspaceScanner) -> Self {
        let (rest_until, last_walk) = (Instant::now(), Duration::ZERO);
        Self { control, scanner, dirty: DirtyNames::default(), rest_until, walk_at: None, last_walk }
    }

    /// Watches until the run is over, or the reader of the reports is gone.
    pub(super) fn run(mut self, since: Option<SystemTime>) {
        let begun = Instant::now();
        self.scanner.begin(since);
        self.scanner.sink.flush(None);
        self.last_walk = begun.elapsed();
        self.schedule_walk();
        loop {
            match self.wait() {
                Wake::Look => self.turn(),
                Wake::Finish => return self.finish(),
                Wake::Stop => return,
            }
        }
    }

    /// Waits for something to do. Without names that wait and without walks, that can take for ever.
    fn wait(&mut self) -> Wake {
        let now = Instant::now();
        let is_busy = !self.dirty.is_empty();
        let next = match (is_busy.then_some(now + TICK), self.walk_at) {
            (Some(tick), Some(walk)) => Some(tick.min(walk.max(now))),
            (tick, walk) => tick.or(walk),
        };
        let next = next.map(|next| next.max(self.rest_until));
        let control = PollFd::new(self.control.as_fd(), PollFlags::POLLIN);
        // While names wait, or the thread rests, more notices change nothing.
        let listens = !is_busy && self.rest_until <= now;
        let notices = self.scanner.notices().filter(|_| listens).map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let next = if listens { next } else { Some(next.unwrap_or(self.rest_until)) };
        let mut waited: Vec<_> = [Some(control), notices].into_iter().flatten().collect();
        // An error, such as an interruption by a signal, leads to a check, which is harmless.
        let _ = poll(&mut waited, timeout(next, now));
        let is_called = waited.first().and_then(PollFd::any).unwrap_or_default();
        if !is_called {
            return if self.scanner.sink.is_closed() { Wake::Stop } else { Wake::Look };
        }
        let mut word = [0];
        match self.control.read(&mut word) {
            Ok(1) => Wake::Finish,
            _ => Wake::Stop,
        }
    }

    /// Reads notices, and checks the names that have waited long enough.
    fn turn(&mut self) {
        let (begun, now) = (Instant::now(), SystemTime::now());
        if self.drain() == Drained::Overflown {
            self.scanner.sink.notice(WatchNotice::LostNotices);
            self.walk_soon();
        }
        let is_walked = self.walk_at.is_some_and(|at| at <= begun);
        let mut worked = is_walked;
        if is_walked {
            self.dirty.clear();
            self.scanner.walk(None);
            self.last_walk = begun.elapsed();
            self.schedule_walk();
        } else {
            let mut due = self.dirty.take_due(begun).into_iter();
            for (path, _) in due.by_ref() {
                worked = true;
                self.scanner.look_at(&path);
                if begun.elapsed() > TURN {
                    break;
                }
            }
            // The others are due at the next turn.
            for (path, notices) in due {
                self.dirty.put_back(path, notices);
            }
            if self.walk_at.is_none() {
                // A directory without a watch is walked from now on.
                self.schedule_walk();
            }
        }
        if worked {
            self.scanner.sink.flush(self.seen_until(now));
        }
        // The thread also rests after notices that concern no watched name: a sandbox makes them as fast as they are
        // read.
        self.rest_until = Instant::now() + TICK.max(begun.elapsed() * REST);
    }

    fn drain(&mut self) -> Drained {
        let (now, dirty) = (Instant::now(), &mut self.dirty);
        let mut is_full = false;
        let drained = self.scanner.drain(|path| is_full |= !dirty.note(path, now));
        if is_full {
            // A walk checks them all.
            self.walk_soon();
        }
        drained
    }

    /// Returns the time before which all changes have been reported.
    fn seen_until(&self, now: SystemTime) -> Option<SystemTime> {
        if self.walk_at.is_some() {
            return None;
        }
        let late = match self.dirty.oldest() {
            Some(oldest) => oldest.elapsed() + 2 * TICK,
            None => CLOCK_MARGIN,
        };
        now.checked_sub(late)
    }

    fn walk_soon(&mut self) {
        let at = Instant::now() + WALK_AGAIN.max(self.last_walk * WALK_REST);
        self.walk_at = Some(self.walk_at.map_or(at, |before| before.min(at)));
    }

    fn schedule_walk(&mut self) {
        let every = self.scanner.walk_every().max(self.last_walk * WALK_REST);
        self.walk_at = self.scanner.is_partial().then(|| Instant::now() + every);
    }

    /// Checks the whole workspace once more.
    fn finish(mut self) {
        if !self.scanner.walk(Some(Instant::now() + LAST_LOOK)) {
            self.scanner.sink.notice(WatchNotice::LastLookCut);
        }
        self.scanner.sink.flush(None);
    }
}

fn timeout(next: Option<Instant>, now: Instant) -> PollTimeout {
    let Some(next) = next else { return PollTimeout::NONE };
    // Rounded up: a check before the time would need another one.
    let wait = next.saturating_duration_since(now) + Duration::from_millis(1);
    PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
}
