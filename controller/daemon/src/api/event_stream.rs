//! One open stream of events.
//!
//! All events come from the table, and the signal of a commit only means that there may be more: so none is missing, none
//! comes twice, and nothing is queued for a client that does not read. The next part is read when the client has taken
//! the previous one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sluice_contract::RunId;
use sluice_state::events::EventFilter;
use sluice_state::sandboxes::{Sandbox, SandboxVerdict};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::event_view::EventView;
use super::sandboxes::view::exit_code;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::event_frames::{PING, frame};
use crate::principal::Principal;
use crate::stop_signal::StopSignal;
use crate::stream_count::CountedStream;

/// Time in which events are collected.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of events in one read. Each has up to 100 kB.
const EVENTS: u32 = 20;

/// An open stream.
pub(super) struct EventFeed {
    context: Arc<ApiContext>,
    principal: Principal,
    filter: EventFilter,
    /// The run whose end also ends the stream.
    run_id: Option<RunId>,
    /// Position of the last event that was read.
    after: i64,
    frames: VecDeque<Bytes>,
    /// True if the last frame is in `frames`.
    is_last: bool,
    /// True if the log had nothing more.
    is_newest: bool,
    committed: watch::Receiver<u64>,
    stop: StopSignal,
    ping_at: Instant,
    _counted: CountedStream,
}

impl EventFeed {
    /// Returns a stream of the events after a position. It begins with a snapshot.
    pub(super) fn new(
        context: Arc<ApiContext>,
        principal: Principal,
        filter: EventFilter,
        run_id: Option<RunId>,
        (after, snapshot): (i64, Bytes),
        counted: CountedStream,
    ) -> Self {
        Self {
            committed: context.store.events_committed(),
            stop: context.stop.clone(),
            context,
            principal,
            filter,
            run_id,
            after,
            frames: VecDeque::from([snapshot]),
            is_last: false,
            is_newest: false,
            ping_at: Instant::now(),
            _counted: counted,
        }
    }

    /// Returns the next bytes; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                self.ping_at = Instant::now() + self.context.limits.stream_quiet;
                return Some(frame);
            }
            if self.is_last || self.stop.is_stopped() {
                return None;
            }
            if self.is_newest {
                if Instant::now() >= self.ping_at {
                    self.frames.push_back(Bytes::from_static(PING));
                }
                self.wait().await?;
            }
            if let Err(error) = self.read().await {
                // The client has its cursor, and can come back.
                (self.context.log)(&format!("a stream of events ended: {}", error.code()));
                return None;
            }
        }
    }

    /// Waits until there may be more; `None` when the daemon stops.
    async fn wait(&mut self) -> Option<()> {
        if !self.frames.is_empty() {
            return Some(());
        }
        let until = self.ping_at.min(Instant::now() + self.context.limits.stream_check);
        tokio::select! {
            () = self.stop.stopped() => None,
            changed = self.committed.changed() => {
                changed.ok()?;
                sleep(PAUSE).await;
                Some(())
            }
            () = sleep_until(until) => Some(()),
        }
    }

    /// Reads the next part of the log, if the principal may still see it.
    async fn read(&mut self) -> Result<(), ApiError> {
        if !self.context.access.is_current(&self.principal).await? {
            self.is_last = true;
            return Ok(());
        }
        // The run is read before its events, so that the events which ended the run come before its end.
        let sandbox = match &self.run_id {
            Some(run_id) => {
                let found = self.context.store.find_sandbox(self.filter.owner.as_deref(), run_id).await?;
                Some(found.ok_or_else(ApiError::not_found)?)
            }
            None => None,
        };
        let batch = self.context.store.events_after(self.after, self.filter.clone(), EVENTS).await?;
        if let Some(gap) = batch.gap {
            self.push(Some("gap"), None, &json!({ "from": gap.from, "to": gap.to }))?;
        }
        for event in EventView::all(batch.events)? {
            self.push(None, Some(event.seq()), &event)?;
        }
        (self.after, self.is_newest) = (batch.next, batch.is_newest);
        if let Some(sandbox) = sandbox.filter(|sandbox| sandbox.state.is_ended() && self.is_newest) {
            let end = end(&self.context, &sandbox).await?;
            self.push(Some("end"), None, &end)?;
            self.is_last = true;
        }
        Ok(())
    }

    fn push(
        &mut self,
        name: Option<&'static str>,
        id: Option<i64>,
        data: &impl serde::Serialize,
    ) -> Result<(), ApiError> {
        let frame = frame(name, id, data).map_err(|error| ApiError::internal(&error))?;
        self.frames.push_back(frame);
        Ok(())
    }
}

async fn end(context: &ApiContext, sandbox: &Sandbox) -> Result<serde_json::Value, ApiError> {
    let failure_code = sandbox.verdict.as_ref().and_then(|verdict: &SandboxVerdict| verdict.failure().0);
    let exit_code = exit_code(context, sandbox).await?;
    Ok(json!({ "state": sandbox.state.as_str(), "failure_code": failure_code, "exit_code": exit_code }))
}
