//! The audit log: one writer, one record a write, each chained to the one before, poisoned for ever by its
//! first error.
//!
//! An intent is acknowledged once it is as durable as `--audit-sync` says; only then may its call go
//! upstream. With `call`, a thread owns the file, takes everything queued, and pays one sync for all of it:
//! a sync in the event loop would stall every stream. With `off`, the event loop writes by itself.

mod entry;
mod file;
mod room;
mod writer;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use sluice_contract::chain::{close_line, line};
use sluice_contract::reason::AUDIT_FULL;
use sluice_contract::record::{
    CallResult, Close, Epoch, Intent, Open, OptionalText, Outcome, Recovered, Refused, SCHEMA, Stamp, TokenCount,
};
use sluice_contract::recovery::RecoveryPlan;
use sluice_contract::{AuditSigner, Chain, RunId, Totals, Usd};

pub use entry::{Ended, Entry, Planned};
pub use file::{AuditFile, Medium, OpenError, OsFile, check, directory, open};
pub use room::Space;
pub use writer::{Ack, Poisoned, Sink};

use crate::refusal::{Refusal, clip};
use room::{CLOSE_MAX, OUTCOME_MAX, Room};
use writer::{Out, Poison};

/// A sandbox that only ever asks for what is refused must not fill the disk: from here on, refusals are
/// counted in `close` and not written.
const REFUSED_LINES: u64 = 10_000;

/// When a record counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// On disk: survives a power cut.
    Call,
    /// In the kernel: survives the death of any process.
    Off,
}

impl SyncMode {
    /// The word of the flag.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Off => "off",
        }
    }
}

/// An open file, locked, and how it goes on; none if it is new.
#[allow(missing_docs, reason = "said above, and by their types")]
pub struct Log {
    pub sink: Box<dyn Sink>,
    pub space: Box<dyn Space>,
    pub past: Option<RecoveryPlan>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("past", &self.past.as_ref().map(|plan| plan.chain)).finish_non_exhaustive()
    }
}

/// What a log came to that has its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Records in the file.
    pub records: u64,
    /// How often the disk was waited for: once for all records that were queued by then.
    pub syncs: u64,
}

/// Whose log it is, and how it is written.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct Terms {
    pub run_id: RunId,
    pub attempt: u32,
    pub mode: SyncMode,
    /// Signs `close`.
    pub signer: Option<AuditSigner>,
}

/// The run's audit log.
pub struct Journal {
    run_id: RunId,
    attempt: u32,
    signer: Option<AuditSigner>,
    poison: Poison,
    /// There was no room for a record, and none is taken any more but those that are owed.
    full: AtomicBool,
    cutting: AtomicBool,
    state: Mutex<State>,
}

struct State {
    chain: Chain,
    totals: Totals,
    cut: u64,
    /// Calls without an outcome.
    open: u64,
    room: Room,
    out: Out,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("run_id", &self.run_id)
            .field("refuses", &self.refuses())
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Writes `open`, or what a restart has to say. It is durable at the latest with the first intent; a disk
    /// that is full already shows here.
    ///
    /// # Errors
    /// The first write's.
    pub fn begin(terms: Terms, log: Log, open: impl FnOnce(Stamp<'_>) -> Open<'static>) -> io::Result<Arc<Self>> {
        let Terms { run_id, attempt, mode, signer } = terms;
        let Log { mut sink, space, past } = log;
        let (chain, end) = past.as_ref().map_or((Chain::default(), 0), |plan| (plan.chain, plan.keep));
        let totals = past.as_ref().map_or_else(Totals::default, totals);
        let state = State { chain, totals, cut: 0, open: 0, room: Room::new(space, end), out: Out::Closed };
        let journal = Self {
            run_id,
            attempt,
            signer,
            poison: Poison::default(),
            full: AtomicBool::new(false),
            cutting: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        {
            let mut state = journal.lock();
            let opened = open(journal.stamp(&state));
            match &past {
                None => state.put(&mut *sink, &line(&opened))?,
                Some(plan) => journal.resume(&mut state, &mut *sink, plan, &opened)?,
            }
            state.out = match mode {
                SyncMode::Off => Out::Here(sink),
                SyncMode::Call => Out::thread(sink, &journal.poison)?,
            };
        }
        Ok(Arc::new(journal))
    }

    /// Says what was found, and that it goes on.
    fn resume(&self, state: &mut State, sink: &mut dyn Sink, plan: &RecoveryPlan, opened: &Open<'_>) -> io::Result<()> {
        let is_new = plan.chain.seq == 0;
        if is_new {
            state.put(sink, &line(opened))?;
        }
        let open_calls: Vec<_> = plan.log.open_ids().map(Into::into).collect();
        if plan.torn > 0 || !open_calls.is_empty() {
            tracing::warn!(
                torn = plan.torn,
                open_calls = open_calls.len(),
                "the audit log did not end in order; going on behind it"
            );
            let stamp = self.stamp(state);
            let recovered = Recovered {
                attempt: stamp.attempt,
                bytes: plan.torn,
                kind: Recovered::KIND.into(),
                offset: plan.keep,
                open_calls,
                prev: stamp.prev.into(),
                run_id: stamp.run_id.into(),
                seq: stamp.seq,
                sha256: plan.sha256.to_string().into(),
                ts: stamp.ts.into(),
                v: SCHEMA,
            };
            state.put(sink, &line(&recovered))?;
            sink.sync()?;
        }
        if is_new {
            return Ok(());
        }
        let stamp = self.stamp(state);
        let epoch = Epoch {
            attempt: stamp.attempt,
            boot_id: (&*opened.boot_id).into(),
            build: (&*opened.build).into(),
            kind: Epoch::KIND.into(),
            pid: opened.pid,
            policy: (&*opened.policy).into(),
            prev: stamp.prev.into(),
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            sync: (&*opened.sync).into(),
            ts: stamp.ts.into(),
            upstream: (&*opened.upstream).into(),
            v: SCHEMA,
        };
        state.put(sink, &line(&epoch))
    }

    /// Whether no more calls are taken: a record was lost, or there is no room for more.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.poison.is_set() || self.full.load(Ordering::Acquire)
    }

    /// From here on a call that ends without a reason of its own was cut by us.
    pub fn cut(&self) {
        self.cutting.store(true, Ordering::Release);
    }

    /// Whether what is open is being cut.
    #[must_use]
    pub fn is_cutting(&self) -> bool {
        self.cutting.load(Ordering::Acquire)
    }

    /// How many calls were cut.
    #[must_use]
    pub fn calls_cut(&self) -> u64 {
        self.lock().cut
    }

    /// Writes that a call is about to go upstream. It may go once the acknowledgement says so.
    ///
    /// # Errors
    /// [`Poisoned`]
    pub fn intent(self: &Arc<Self>, planned: Planned<'_>) -> Result<(Entry, Ack), Poisoned> {
        let mut state = self.lock();
        if self.refuses() {
            return Err(Poisoned);
        }
        let call = state.totals.calls + 1;
        let stamp = self.stamp(&state);
        let line = line(&Intent {
            attempt: stamp.attempt,
            bound: planned.bound.map(TokenCount),
            call,
            call_id: planned.call_id.into(),
            kind: Intent::KIND.into(),
            method: planned.method.into(),
            model: planned.model.map(Into::into),
            path: planned.path.into(),
            peer: planned.peer,
            prev: stamp.prev.into(),
            req_bytes: planned.req_bytes,
            reserved_strict: planned.reserved_strict,
            reserved_tokens: planned.reserved_tokens.map(TokenCount),
            reserved_usd: planned.reserved_usd.map(Into::into),
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            stream: planned.stream,
            stripped: planned.stripped,
            ts: stamp.ts.into(),
            v: SCHEMA,
        });
        let owed = (state.open + 1) * OUTCOME_MAX + CLOSE_MAX;
        state.room.make(line.len(), owed).map_err(|error| self.fill(&error))?;
        state.totals.calls = call;
        state.open += 1;
        let ack = self.append(&mut state, line);
        Ok((Entry::new(Arc::clone(self), call, planned.call_id), ack))
    }

    /// Writes that a request was not forwarded.
    pub fn refused(&self, method: &str, path: &str, refusal: &Refusal) -> Ack {
        let mut state = self.lock();
        state.totals.refused += 1;
        if self.refuses() {
            return Ack::Known(Err(Poisoned));
        }
        if state.totals.refused > REFUSED_LINES {
            return Ack::Known(Ok(()));
        }
        let stamp = self.stamp(&state);
        let name = |name: &'_ Option<Box<str>>| name.as_deref().map(|name| OptionalText(name.to_owned().into()));
        let line = line(&Refused {
            attempt: stamp.attempt,
            kind: Refused::KIND.into(),
            method: clip(method, 32).into(),
            model: name(&refusal.model),
            param: name(&refusal.param),
            path: clip(path, 256).into(),
            prev: stamp.prev.into(),
            reason: refusal.reason.as_str().into(),
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            status: refusal.reason.status().as_u16(),
            tool: name(&refusal.tool),
            ts: stamp.ts.into(),
            v: SCHEMA,
        });
        let owed = state.open * OUTCOME_MAX + CLOSE_MAX;
        if let Err(error) = state.room.make(line.len(), owed) {
            return Ack::Known(Err(self.fill(&error)));
        }
        self.append(&mut state, line)
    }

    fn outcome(&self, call: u64, call_id: &str, ended: Ended) -> Ack {
        let mut state = self.lock();
        let known = ended.cost.as_ref().map(Usd::to_nanos);
        state.totals.add(known, ended.null_reason, ended.usage.as_ref());
        state.cut += u64::from(ended.result == CallResult::Deadline);
        state.open -= 1;
        let stamp = self.stamp(&state);
        let budget = ended.budget.as_deref();
        let usd = |amount: Option<i64>| amount.map(|nanos| OptionalText(Usd::from_nanos(nanos).to_string().into()));
        let line = line(&Outcome {
            attempt: stamp.attempt,
            budget_limit_usd: usd(budget.and_then(|budget| budget.limit)),
            budget_of: budget.map(|budget| OptionalText(budget.owner.into())),
            budget_spent_usd: usd(budget.and_then(|budget| budget.spent)),
            cache_hit: ended.cache_hit,
            call,
            call_id: call_id.into(),
            cost_source: ended.cost_source,
            cost_usd: ended.cost.map(|cost| cost.to_string().into()),
            drained: ended.drained,
            end: ended.end,
            kind: Outcome::KIND.into(),
            litellm_call_id: printable(ended.litellm_call_id),
            model_served: printable(ended.model_served),
            null_reason: ended.null_reason,
            prev: stamp.prev.into(),
            resp_bytes: ended.resp_bytes,
            response_id: printable(ended.response_id),
            result: ended.result,
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            status: ended.status,
            timing_us: ended.timing,
            ts: stamp.ts.into(),
            usage: ended.usage,
            v: SCHEMA,
        });
        self.append(&mut state, line)
    }

    /// Writes `close`, syncs whatever the mode, and lets the file go. Nothing else runs by then.
    ///
    /// # Errors
    /// [`Poisoned`], when the file does not hold everything.
    pub async fn close(&self, reason: &str) -> Result<Sealed, Poisoned> {
        let (ack, out, records) = {
            let mut state = self.lock();
            let ack = self.append_close(&mut state, reason);
            state.room.release();
            (ack, std::mem::replace(&mut state.out, Out::Closed), state.chain.seq)
        };
        ack.await?;
        let syncs = out.end(&self.poison)?;
        if self.refuses() { Err(Poisoned) } else { Ok(Sealed { records, syncs }) }
    }

    fn append_close(&self, state: &mut State, reason: &str) -> Ack {
        let stamp = self.stamp(state);
        let record = Close {
            attempt: stamp.attempt,
            calls: state.totals.calls,
            certificate: self.signer.as_ref().and_then(AuditSigner::certificate).cloned(),
            cost_usd: state.totals.cost().to_string().into(),
            head: "".into(),
            key_id: None,
            kind: Close::KIND.into(),
            prev: stamp.prev.into(),
            reason: if self.refuses() { AUDIT_FULL } else { reason }.into(),
            refused: state.totals.refused,
            run_id: stamp.run_id.into(),
            seq: stamp.seq,
            signature: None,
            ts: stamp.ts.into(),
            unknown: state.totals.unknown + state.open,
            usage: state.totals.usage,
            v: SCHEMA,
        };
        let line = close_line(record, self.signer.as_ref().map(AuditSigner::key));
        self.append(state, line)
    }

    /// The line is the chain's next.
    fn append(&self, state: &mut State, line: Vec<u8>) -> Ack {
        if self.poison.is_set() {
            return Ack::Known(Err(Poisoned));
        }
        state.chain.push(&line);
        state.room.take(line.len());
        state.out.append(line, &self.poison)
    }

    /// Nothing is lost, and nothing more is taken: what is owed has its room.
    fn fill(&self, error: &io::Error) -> Poisoned {
        if !self.full.swap(true, Ordering::AcqRel) {
            tracing::error!(%error, "there is no room for the audit log: every further call is refused; free the disk and start a new attempt");
        }
        Poisoned
    }

    fn stamp(&self, state: &State) -> Stamp<'_> {
        let ts = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let Chain { seq, prev } = state.chain;
        Stamp { attempt: self.attempt, prev: prev.to_hex(), run_id: self.run_id.as_str(), seq, ts }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A line before there are calls.
    fn put(&mut self, sink: &mut dyn Sink, line: &[u8]) -> io::Result<()> {
        self.room.make(line.len(), CLOSE_MAX)?;
        sink.append(line)?;
        self.room.take(line.len());
        self.chain.push(line);
        Ok(())
    }
}

/// What the file comes to so far; a call that was open when its sidecar died stays unknown.
fn totals(plan: &RecoveryPlan) -> Totals {
    let mut totals = *plan.log.totals();
    totals.unknown += plan.log.open_calls().count() as u64;
    totals
}

/// What a provider calls itself and its answers is text; anything else would only swell the line.
fn printable(name: Option<String>) -> Option<Cow<'static, str>> {
    name.filter(|name| !name.chars().any(char::is_control)).map(Into::into)
}

#[cfg(test)]
mod tests;
