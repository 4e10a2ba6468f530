//! Interruptions: the operator ends the calls under way, and clients that repeat one get the same answer.
//!
//! A call was interrupted if it began before the last interruption. So a call keeps nothing for it, and looks at one
//! number whenever it is polled. An interruption wakes all connections.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::body::ParsedBody;
use crate::call::Clock;
use crate::intake::BufferedBody;
use crate::refusal::Refusal;
use crate::upstream::UpstreamError;

/// Time for which repeats of an interrupted request are answered from memory.
const REPEATS: Duration = Duration::from_secs(60);
/// Maximum number of requests that are remembered.
const REMEMBERED_MAX: usize = 256;
/// Bytes at the end of a conversation that tell one request from another: its newest items. A hash of all of it would
/// cost a large call a tenth of its time.
const TAIL: usize = 2048;

/// Interruptions of the calls of a run.
pub struct Interrupts {
    has_control: bool,
    begun: Instant,
    /// Microseconds from the begin to the last interruption; 0 before the first.
    last: AtomicU64,
    /// True while there are requests to remember.
    remembers: AtomicBool,
    repeats: Mutex<Vec<(u64, Instant)>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupts").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Interrupts {
    /// Creates the state of a run. Without a control socket no interruption comes.
    #[must_use]
    pub fn new(has_control: bool) -> Self {
        Self {
            has_control,
            begun: Instant::now(),
            last: AtomicU64::new(0),
            remembers: AtomicBool::new(false),
            repeats: Mutex::default(),
            wake: OnceLock::new(),
        }
    }

    /// Sets the function that wakes all connections.
    pub fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        // There is one server, which sets it once.
        let _ = self.wake.set(wake);
    }

    /// Ends all calls that have begun.
    pub fn interrupt(&self) {
        self.last.store(self.micros(Instant::now()) + 1, Ordering::Release);
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Checks whether a call may continue.
    ///
    /// # Errors
    /// [`UpstreamError::Interrupted`]
    pub fn check(&self, clock: &Clock) -> Result<(), UpstreamError> {
        let last = self.last.load(Ordering::Acquire);
        if last > 0 && self.micros(clock.began()) < last { Err(UpstreamError::Interrupted) } else { Ok(()) }
    }

    fn micros(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.begun).as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the fingerprint of a request as it came; 0 in a run that no one can interrupt.
    #[must_use]
    pub fn fingerprint(&self, parsed: &ParsedBody, body: &BufferedBody) -> u64 {
        match parsed.injection() {
            _ if !self.has_control => 0,
            Some(injection) => injection.fingerprint,
            None => fingerprint(body, parsed.content_end),
        }
    }

    /// Remembers a request that was interrupted before it was sent, and returns its refusal.
    #[must_use]
    pub fn refuse(&self, parsed: &ParsedBody, body: &BufferedBody) -> Refusal {
        self.remember(self.fingerprint(parsed, body));
        Refusal::interrupted()
    }

    /// Remembers an interrupted request.
    pub fn remember(&self, fingerprint: u64) {
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        if fingerprint != 0 && repeats.len() < REMEMBERED_MAX {
            repeats.push((fingerprint, Instant::now()));
            self.remembers.store(true, Ordering::Release);
        }
    }

    /// Returns true if there are requests to remember.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.remembers.load(Ordering::Acquire)
    }

    /// Returns true for a request that was interrupted within the last minute.
    #[must_use]
    pub fn knows(&self, fingerprint: u64) -> bool {
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        repeats.retain(|(_, since)| since.elapsed() < REPEATS);
        self.remembers.store(!repeats.is_empty(), Ordering::Release);
        repeats.iter().any(|(known, _)| *known == fingerprint)
    }
}

/// Returns the fingerprint of a request: its length, and the end of its conversation. It is never 0.
#[must_use]
pub fn fingerprint(body: &BufferedBody, conversation_end: u64) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let end = if conversation_end == 0 { body.len() } else { conversation_end };
    let from = end.saturating_sub(TAIL as u64);
    // A repeat comes in other pieces.
    let (mut tail, mut len, mut start) = ([0; TAIL], 0, 0_u64);
    for piece in body.pieces() {
        let within = |offset: u64| usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX).min(piece.len());
        let part = &piece[within(from)..within(end)];
        tail[len..len + part.len()].copy_from_slice(part);
        len += part.len();
        start += piece.len() as u64;
    }
    let words = tail[..len.next_multiple_of(8)].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(PRIME);
    words.fold(body.len() ^ 0xcbf2_9ce4_8422_2325, mix).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: &[&'static str]) -> BufferedBody {
        BufferedBody::of(pieces)
    }

    #[test]
    fn a_fingerprint_is_the_same_in_any_pieces() {
        let whole = fingerprint(&body(&["{\"messages\":[1,2,3],\"x\":1}"]), 18);
        assert_eq!(fingerprint(&body(&["{\"mess", "ages\":[1,2", ",3],", "\"x\":1}"]), 18), whole);
        assert_ne!(fingerprint(&body(&["{\"messages\":[1,2,4],\"x\":1}"]), 18), whole);
        assert_ne!(fingerprint(&body(&["{\"messages\":[1,2,3],\"x\":11}"]), 18), whole);
    }

    #[test]
    fn a_repeat_is_known_for_a_minute_at_most() {
        let interrupts = Interrupts::new(true);
        assert!(!interrupts.remembers());
        interrupts.remember(7);
        assert!(interrupts.remembers() && interrupts.knows(7) && !interrupts.knows(8));
        let since = Instant::now().checked_sub(REPEATS).expect("the host runs for longer");
        interrupts.repeats.lock().expect("no test panicked")[0].1 = since;
        assert!(!interrupts.knows(7) && !interrupts.remembers());
    }

    #[test]
    fn only_calls_that_had_begun_are_interrupted() {
        let interrupts = Interrupts::new(true);
        let before = Clock::start();
        assert!(interrupts.check(&before).is_ok());
        interrupts.interrupt();
        assert_eq!(interrupts.check(&before), Err(UpstreamError::Interrupted));
        let began = Instant::now().checked_sub(Duration::from_secs(10)).expect("the host runs for longer");
        let interrupts = Interrupts { begun: began, last: AtomicU64::new(9_000_000), ..Interrupts::new(true) };
        assert!(interrupts.check(&Clock::start()).is_ok(), "it began a second later");
    }
}
