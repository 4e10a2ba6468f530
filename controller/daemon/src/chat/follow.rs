//! One client that follows a chat.
//!
//! Everything is read from the event log and from the stored output, from the beginning. Items up to the client's cursor
//! only update the state, and later items are sent. So a client that comes back loses nothing and gets nothing twice, after
//! a restart of the daemon too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_contract::RunKey;
use sluice_runs::verdict::Contract;
use sluice_state::chats::ChatTurn;
use sluice_state::events::{EventFilter, LoggedEvent};
use sluice_state::ledger::TokenSums;
use sluice_state::records::{OutputContent, OutputReader, RecordedStream};
use sluice_state::sandboxes::{Sandbox, SandboxVerdict};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::cursor::ChatCursor;
use super::translation::{ChatEnd, ChatEvent, Translation, TurnEvent};
use super::turn_watch::{EventPlace, TurnWatch};
use crate::api_error::ApiError;
use crate::chat_followers::ChatPresence;
use crate::context::ApiContext;
use crate::principal::Principal;
use crate::stop_signal::StopSignal;
use crate::stream_count::CountedStream;

/// Time between two checks for more output.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time between two reads of the event log, while the log changes or after a turn has ended; and at all other times.
const EVENTS_EVERY: Duration = Duration::from_millis(100);
const EVENTS_AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of events in one read.
const EVENTS: u32 = 50;
/// Time after the end of a worker's turn in which its calls become known, and the maximum time for calls in progress.
const CALLS_WITHIN: Duration = Duration::from_millis(300);
const CALLS_AT_MOST: Duration = Duration::from_secs(3);
/// Maximum number of pieces of output in one read, and of reads without text before the follower checks its times
/// again.
const PIECES: usize = 64;
const BATCHES: usize = 16;

/// Item for the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Followed {
    /// An event, and the position after it; the last events have no position.
    Event(ChatEvent, Option<ChatCursor>),
    /// Nothing has happened for a while.
    Quiet,
}

/// A client that follows a chat.
#[derive(Debug)]
pub(crate) struct ChatFollower {
    context: Arc<ApiContext>,
    principal: Principal,
    key: RunKey,
    translation: Translation,
    /// The turn, if the run has a worker that gets several.
    turn: Option<WatchedTurn>,
    cursor: ChatCursor,
    reader: Option<OutputReader>,
    waiting: VecDeque<Followed>,
    is_over: bool,
    /// The run, if it was over when it was last read, which is before the last read of events.
    ended: Option<Sandbox>,
    has_read_all_events: bool,
    committed: watch::Receiver<u64>,
    events_read: Option<Instant>,
    principal_checked: Instant,
    quiet_at: Instant,
    stop: StopSignal,
    _counted: CountedStream,
    _presence: ChatPresence,
}

/// A turn of a worker.
#[derive(Debug)]
struct WatchedTurn {
    begin_seq: i64,
    number: u32,
    watch: TurnWatch,
    /// End of the turn, and the time at which that was seen.
    end: Option<(EventPlace, Instant)>,
}

impl ChatFollower {
    /// Follows a chat, or one turn of a worker, from a position on.
    ///
    /// # Errors
    /// The events before the position cannot be read.
    pub(crate) async fn new(
        context: Arc<ApiContext>,
        principal: Principal,
        run: &Sandbox,
        (contract, turn): (Contract, Option<ChatTurn>),
        from: ChatCursor,
        (counted, presence): (CountedStream, ChatPresence),
    ) -> Result<Self, ApiError> {
        let now = Instant::now();
        let begin_seq = turn.as_ref().map_or(0, |turn| turn.begin_seq);
        let is_later = turn.as_ref().is_some_and(|turn| turn.number > 1);
        let watched = |turn: ChatTurn| WatchedTurn {
            begin_seq: turn.begin_seq,
            number: turn.number,
            watch: TurnWatch::new(&turn),
            end: None,
        };
        let mut follower = Self {
            reader: Some(context.layout.records().of(&run.key).output(0)),
            translation: Translation::new(contract, context.chat.remote, !is_later),
            committed: context.store.events_committed(),
            stop: context.stop.clone(),
            quiet_at: now + context.limits.stream_quiet,
            context,
            principal,
            key: run.key.clone(),
            turn: turn.map(watched),
            cursor: ChatCursor { event: begin_seq, ..ChatCursor::default() },
            waiting: VecDeque::new(),
            is_over: false,
            ended: None,
            has_read_all_events: false,
            events_read: None,
            principal_checked: now,
            _counted: counted,
            _presence: presence,
        };
        // The log may be older than the cursor, after it was restored from a copy. New events would be hidden until
        // the log passes the cursor.
        let event = from.event.min(follower.context.store.newest_event().await?);
        if event > begin_seq || !is_later {
            follower.replay(ChatCursor { event, ..from }).await?;
        }
        Ok(follower)
    }

    /// Returns the next item; `None` at the end, and when the daemon stops.
    ///
    /// # Errors
    /// The state cannot be read; the client may reconnect.
    pub(crate) async fn next(&mut self) -> Result<Option<Followed>, ApiError> {
        loop {
            if let Some(next) = self.waiting.pop_front() {
                self.quiet_at = Instant::now() + self.context.limits.stream_quiet;
                return Ok(Some(next));
            }
            if self.is_over || self.stop.is_stopped() || !self.is_admitted().await? {
                return Ok(None);
            }
            self.read().await?;
            if self.waiting.is_empty() && !self.is_over {
                if Instant::now() >= self.quiet_at {
                    self.quiet_at = Instant::now() + self.context.limits.stream_quiet;
                    return Ok(Some(Followed::Quiet));
                }
                self.wait().await;
            }
        }
    }

    /// Returns the tokens of the calls of a worker's turn; `None` where the whole run is the answer.
    pub(crate) fn tokens(&self) -> Option<&TokenSums> {
        let turn = self.turn.as_ref().filter(|turn| turn.number > 1 || turn.end.is_some());
        turn.map(|turn| turn.watch.tokens())
    }

    /// Logs why a stream ends early. The client has its cursor, and can come back.
    pub(crate) fn report(&self, error: &ApiError) {
        (self.context.log)(&format!("the stream of chat {} ended: {}", self.key, error.code()));
    }

    async fn is_admitted(&mut self) -> Result<bool, ApiError> {
        if self.principal_checked.elapsed() < self.context.limits.stream_check {
            return Ok(true);
        }
        self.principal_checked = Instant::now();
        Ok(self.context.access.is_current(&self.principal).await?)
    }

    async fn wait(&mut self) {
        let next_look = Instant::now() + LOOK_EVERY;
        tokio::select! {
            () = self.stop.stopped() => {}
            // Output has no signal. The event log is read at its own interval.
            () = sleep_until(next_look) => {}
        }
    }

    /// Replays the part that the client has already seen.
    async fn replay(&mut self, to: ChatCursor) -> Result<(), ApiError> {
        while self.cursor.output < to.output && self.read_output(to.output).await? {
            self.waiting.clear();
        }
        while self.cursor.event < to.event && !self.has_read_all_events {
            self.read_events(to.event).await?;
            self.waiting.clear();
        }
        // The output may have been restored too, and then ends before the cursor.
        self.cursor = ChatCursor { output: to.output.min(self.cursor.output), ..to };
        if to.is_text_complete {
            self.translation.last_text();
        }
        self.waiting.clear();
        (self.ended, self.has_read_all_events, self.events_read) = (None, false, None);
        Ok(())
    }

    /// Reads until there is an item for the client, or nothing more to read. The end is reported after everything was
    /// read.
    async fn read(&mut self) -> Result<(), ApiError> {
        self.look().await?;
        while !self.has_read_all_events {
            self.read_events(i64::MAX).await?;
            if !self.waiting.is_empty() {
                return Ok(());
            }
        }
        let mut has_read_output = !self.translation.reads_stdout();
        for _ in 0..BATCHES {
            if has_read_output {
                break;
            }
            has_read_output = !self.read_output(u64::MAX).await?;
            if !self.waiting.is_empty() {
                return Ok(());
            }
        }
        if has_read_output { self.look_at_end().await } else { Ok(()) }
    }

    /// Begins a read of the event log, if the last one is complete and the next one is due.
    async fn look(&mut self) -> Result<(), ApiError> {
        let is_complete = self.events_read.is_none() || self.has_read_all_events;
        if is_complete && self.is_look_at_events_due() {
            self.events_read = Some(Instant::now());
            self.committed.borrow_and_update();
            // The run is read before events and output, so that everything a finished run did is included.
            let run = self.context.store.find_sandbox(None, &self.key.run_id).await?;
            let run = run.ok_or_else(ApiError::not_found)?;
            self.ended = (run.state.is_ended() || run.key != self.key).then_some(run);
            self.has_read_all_events = false;
        }
        Ok(())
    }

    /// Ends the stream if the turn or the run is over and everything was read.
    async fn look_at_end(&mut self) -> Result<(), ApiError> {
        match self.turn.as_ref().and_then(|turn| turn.end.map(|(place, seen)| (turn, place, seen))) {
            Some((turn, place, seen)) => {
                // The wait counts up to the last read of events, because events that are not read yet may have calls of
                // the turn.
                let waited = self.events_read.map_or(Duration::ZERO, |read| read.saturating_duration_since(seen));
                let is_known = self.ended.is_some() || waited >= CALLS_WITHIN && turn.watch.is_settled();
                if is_known || waited >= CALLS_AT_MOST {
                    let end = self.end_of_turn(place).await?;
                    self.finish(&end);
                }
            }
            None => {
                if let Some(run) = self.ended.take() {
                    self.finish(&self.end_of_run(&run));
                }
            }
        }
        Ok(())
    }

    /// Returns the end of a worker's turn: it was interrupted, or it has an answer.
    async fn end_of_turn(&self, place: EventPlace) -> Result<ChatEnd, ApiError> {
        let Some(turn) = &self.turn else { return Ok(ChatEnd::Success) };
        let row = self.context.store.chat_turn(&self.key.run_id, turn.begin_seq.saturating_add(1)).await?;
        let was_interrupted = row.is_some_and(|row| row.number == turn.number && row.interrupts > 0);
        let is_cancelled = was_interrupted || place == EventPlace::Withdrawn;
        Ok(if is_cancelled { ChatEnd::Cancelled } else { ChatEnd::Success })
    }

    fn end_of_run(&self, run: &Sandbox) -> ChatEnd {
        match &run.verdict {
            // The worker has ended before it got the message.
            Some(SandboxVerdict::Success) if self.turn.as_ref().is_some_and(|turn| !turn.watch.has_begun()) => {
                ChatEnd::Failed("worker_ended".to_owned())
            }
            Some(SandboxVerdict::Success) => ChatEnd::Success,
            Some(SandboxVerdict::Failed { code, .. }) => ChatEnd::Failed(code.clone()),
            Some(SandboxVerdict::Cancelled) | None => ChatEnd::Cancelled,
        }
    }

    fn is_look_at_events_due(&self) -> bool {
        let Some(last) = self.events_read else { return true };
        let has_turn_ended = self.turn.as_ref().is_some_and(|turn| turn.end.is_some());
        let is_soon = has_turn_ended || self.committed.has_changed().unwrap_or(false);
        last.elapsed() >= if is_soon { EVENTS_EVERY } else { EVENTS_AT_LEAST_EVERY }
    }

    fn finish(&mut self, end: &ChatEnd) {
        if let Some(text) = self.translation.last_text() {
            let cursor = ChatCursor { is_text_complete: true, ..self.cursor };
            self.waiting.push_back(Followed::Event(text, Some(cursor)));
        }
        self.waiting.extend(self.translation.end(end).into_iter().map(|event| Followed::Event(event, None)));
        self.is_over = true;
    }

    /// Reads the next events up to a position.
    async fn read_events(&mut self, to: i64) -> Result<(), ApiError> {
        let filter = EventFilter { sandbox_id: Some(self.key.run_id.to_string()), ..EventFilter::default() };
        let batch = self.context.store.events_after(self.cursor.event, filter, EVENTS).await?;
        for event in batch.events.iter().filter(|event| event.seq <= to) {
            self.take_event(event);
        }
        self.has_read_all_events = batch.is_newest || batch.next >= to;
        // The position also moves past events of other runs, which are not part of this chat.
        if batch.next > self.cursor.event {
            self.cursor.event = batch.next.min(to);
        }
        Ok(())
    }

    fn take_event(&mut self, event: &LoggedEvent) {
        self.cursor.event = event.seq;
        let Ok(data) = serde_json::from_str::<Value>(&event.event_data) else { return };
        let is_system = event.source.as_str() == "system";
        let event = TurnEvent { event_type: &event.event_type, data: &data, is_system };
        match self.turn.as_mut().map(|turn| turn.watch.event(event)) {
            None | Some(EventPlace::Inside) => {}
            Some(EventPlace::Outside) => return,
            Some(end @ (EventPlace::End | EventPlace::Withdrawn)) => {
                if let Some(turn) = &mut self.turn {
                    turn.end = Some((end, Instant::now()));
                }
                return;
            }
        }
        let told = self.translation.event(event);
        self.waiting.extend(told.map(|told| Followed::Event(told, Some(self.cursor))));
    }

    /// Reads the next pieces of output up to a position. Returns false if there was none.
    async fn read_output(&mut self, to: u64) -> Result<bool, ApiError> {
        let Some(mut reader) = self.reader.take() else { return Ok(false) };
        let left = usize::try_from(to.saturating_sub(self.cursor.output)).unwrap_or(usize::MAX).min(PIECES);
        let read = spawn_blocking(move || {
            let mut pieces = Vec::new();
            while pieces.len() < left
                && let Some(piece) = reader.next_piece()?
            {
                pieces.push(piece);
            }
            Ok::<_, std::io::Error>((reader, pieces))
        });
        let (reader, pieces) = read.await.map_err(|error| ApiError::internal(&error))??;
        self.reader = Some(reader);
        let mut text = String::new();
        for piece in &pieces {
            self.cursor.output = piece.next;
            if let (RecordedStream::Stdout, OutputContent::Bytes(bytes)) = (piece.stream, &piece.content)
                && let Some(ChatEvent::Text(more)) = self.translation.stdout(bytes)
            {
                text += &more;
            }
        }
        if !text.is_empty() {
            self.waiting.push_back(Followed::Event(ChatEvent::Text(text), Some(self.cursor)));
        }
        Ok(!pieces.is_empty())
    }
}
