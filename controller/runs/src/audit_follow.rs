//! Follower of a run's audit file while its sidecar writes it.
//!
//! It continues from a position, so a daemon that stores events and position together neither loses nor repeats a call.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use sluice_contract::reader::Cursor;
use sluice_state::audit_tail::{TailError, read_lines};
use sluice_state::ledger::{CostBounds, ImplausibleCost};

use crate::call_event::{CallEvent, HoldChange, RefusedRequest, events_of, hold_change_of, refusal_of, without_cost};

/// Time between two reads of the file.
const EVERY: Duration = Duration::from_millis(50);
/// Maximum number of lines in one read.
const LINES_AT_ONCE: usize = 256;

/// Follows one audit file.
#[derive(Debug)]
pub struct AuditFollower {
    path: PathBuf,
    next: Cursor,
    bounds: CostBounds,
}

/// Events of new lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedEvents {
    /// The events, in the order of the file.
    pub events: Vec<CallEvent>,
    /// Changes of the calls that wait for a person, in the order of the file.
    pub holds: Vec<HoldChange>,
    /// Costs that cannot be true.
    pub implausible: Vec<ImplausibleCost>,
    /// Requests that the sidecar has refused, in the order of the file.
    pub refusals: Vec<RefusedRequest>,
    /// Position after their lines, from which another follower continues.
    pub next: Cursor,
}

impl AuditFollower {
    /// Starts at a position: `Cursor::default()` or the one after the last stored event. For calls that began before
    /// this position, implausible costs are not detected.
    #[must_use]
    pub fn new(path: PathBuf, next: Cursor) -> Self {
        Self { path, next, bounds: CostBounds::default() }
    }

    /// Returns the events of the lines that are complete now, or `None` without a new line. Events may be empty: not
    /// every line is about a call.
    ///
    /// # Errors
    /// [`TailError`]. After a wrong line, a file has no more events; the tally at the end reports it.
    pub fn read_new(&mut self) -> Result<Option<FollowedEvents>, TailError> {
        let (begin, mut events, mut refusals) = (self.next, Vec::new(), Vec::new());
        let (mut holds, mut implausible, mut lines) = (Vec::new(), Vec::new(), 0);
        let bounds = &mut self.bounds;
        let mut next = begin;
        let result = read_lines(&self.path, &mut next, |line| {
            match bounds.take(&line.record) {
                Some(cost) => {
                    events.extend(events_of(line).into_iter().map(without_cost));
                    implausible.push(cost);
                }
                None => events.extend(events_of(line)),
            }
            refusals.extend(refusal_of(line));
            holds.extend(hold_change_of(line));
            lines += 1;
            if lines < LINES_AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.next = next;
        match result {
            // The lines before the wrong one count.
            Err(_) if next != begin => {}
            result => result?,
        }
        Ok((next != begin).then_some(FollowedEvents { events, holds, implausible, refusals, next }))
    }

    /// Waits for new lines. Cancel-safe: lines that were not returned are returned by the next call.
    ///
    /// # Errors
    /// As of [`AuditFollower::read_new`].
    pub async fn next(&mut self) -> Result<FollowedEvents, TailError> {
        loop {
            if let Some(events) = self.read_new()? {
                return Ok(events);
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::path::Path;

    use tokio::time::Instant;

    use super::*;
    use crate::call_event::CallCost;

    fn golden(name: &str) -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proxy/contract/tests/golden").join(name);
        fs::read(path).expect("it is in the repository")
    }

    fn all(follower: &mut AuditFollower) -> Vec<CallEvent> {
        let mut events = Vec::new();
        while let Some(new) = follower.read_new().expect("it is a log") {
            events.extend(new.events);
        }
        events
    }

    #[test]
    fn a_follower_that_is_restarted_at_any_byte_loses_and_repeats_nothing() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        for name in ["recovered.jsonl", "signed.jsonl", "refused.jsonl"] {
            let bytes = golden(name);
            fs::write(&path, &bytes).expect("there is room");
            let expected = all(&mut AuditFollower::new(path.clone(), Cursor::default()));
            for step in [1, 97, 1000] {
                let (mut events, mut at) = (Vec::new(), Cursor::default());
                for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
                    fs::write(&path, &bytes[..end]).expect("there is room");
                    let mut follower = AuditFollower::new(path.clone(), at);
                    if let Some(new) = follower.read_new().expect("it is a log") {
                        (events, at) = ([events, new.events].concat(), new.next);
                    }
                }
                assert_eq!(events, expected, "{name} in steps of {step}");
            }
        }
    }

    #[test]
    fn each_call_has_a_start_and_an_end() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        let mut follower = AuditFollower::new(path.clone(), Cursor::default());
        assert_eq!(follower.read_new().expect("no file is no line"), None);
        fs::write(&path, golden("recovered.jsonl")).expect("there is room");
        let events = all(&mut follower);
        let count = |is: fn(&CallEvent) -> bool| events.iter().filter(|event| is(event)).count();
        let started = count(|event| matches!(event, CallEvent::Started(_)));
        let ended = count(|event| matches!(event, CallEvent::Ended(_)));
        let lost = count(|event| matches!(event, CallEvent::Lost(_)));
        assert!(ended > 0 && lost > 0 && started == ended + lost, "{started} {ended} {lost}");
        for event in &events {
            if let CallEvent::Ended(call) = event {
                assert!(
                    matches!(&call.cost, CallCost::Known { .. } | CallCost::Unknown { reason: Some(_) }),
                    "{call:?}"
                );
                assert!(call.timing_us.total > 0 && call.call_id.len() == 36, "{call:?}");
            }
        }
    }

    #[test]
    fn refused_requests_have_their_reason_and_time() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, golden("refused.jsonl")).expect("there is room");
        let new = AuditFollower::new(path, Cursor::default()).read_new().expect("it is a log").expect("it has lines");
        assert!(!new.refusals.is_empty());
        assert!(new.refusals.iter().all(|it| !it.reason.is_empty() && it.ts.ends_with('Z')), "{:?}", new.refusals);
    }

    #[test]
    fn a_wrong_line_ends_the_events() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, [golden("signed.jsonl"), b"{}\n".to_vec()].concat()).expect("there is room");
        let mut follower = AuditFollower::new(path, Cursor::default());
        assert!(!follower.read_new().expect("its lines before count").expect("there are lines").events.is_empty());
        assert!(matches!(follower.read_new(), Err(TailError::Line(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_comes_within_200_ms() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        let mut follower = AuditFollower::new(path.clone(), Cursor::default());
        let bytes = golden("signed.jsonl");
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut file = OpenOptions::new().create_new(true).append(true).open(&path).expect("there is room");
        file.write_all(&bytes[..end]).expect("there is room");
        follower.next().await.expect("it is a log");
        let written = Instant::now();
        let writing = async { file.write_all(&bytes[end..]).expect("there is room") };
        // The follower reads the file once before the lines are written.
        let (events, ()) = tokio::join!(follower.next(), writing);
        let took = written.elapsed();
        assert!(!events.expect("it is a log").events.is_empty() && took < Duration::from_millis(200), "{took:?}");
    }
}
