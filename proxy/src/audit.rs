//! The audit log: one writer, one write for each record, each record chained to the one before. The first error
//! poisons the log for good.
//!
//! An intent is acknowledged once it is as durable as `--audit-sync` demands; only then may its call go upstream.
//! With `call`, a thread owns the file, takes all queued records, and syncs once for all of them: a sync in the event
//! loop would stall every stream. With `off`, the event loop writes.

mod call;
mod disk_reserve;
mod file;
mod guard;
mod held;
mod lines;
mod writer;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use sluice_contract::chain::line;
use sluice_contract::reason::AUDIT_FULL;
use sluice_contract::record::{CallResult, ControlValues, Open, RelayCounts, Stamp};
use sluice_contract::recovery::RecoveryPlan;
use sluice_contract::{Account, AuditSigner, Chain, RunId, Totals, Usd};

pub use call::{CallIntent, CallOutcome};
pub use disk_reserve::DiskSpace;
pub use file::{AuditFile, AuditStorage, OpenError, OsFile, check, directory, open};
pub use guard::CallGuard;
pub use writer::{Ack, LogSink, Poisoned};

use crate::refusal::Refusal;
use disk_reserve::{CLOSE_MAX, DiskReserve, OUTCOME_MAX};
use guard::CallNames;
use writer::{LineOutput, Poison};

/// Maximum number of written refusals. A sandbox that sends only refused requests must not fill the disk: further
/// refusals are counted in `close`, and not written.
const REFUSED_LINES: u64 = 10_000;

/// Point from which a record counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// On disk: the record survives a power cut.
    Call,
    /// In the kernel: the record survives the end of any process.
    Off,
}

impl SyncMode {
    /// Returns the value of the flag.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Off => "off",
        }
    }
}

/// An open and locked file, and the plan by which it continues; `past` is `None` for a new file.
#[allow(missing_docs, reason = "said above, and by their types")]
pub struct OpenLog {
    pub sink: Box<dyn LogSink>,
    pub space: Box<dyn DiskSpace>,
    pub past: Option<RecoveryPlan>,
}

impl fmt::Debug for OpenLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenLog").field("past", &self.past.as_ref().map(|plan| plan.chain)).finish_non_exhaustive()
    }
}

/// Totals of a log that was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTotals {
    /// Number of records in the file.
    pub records: u64,
    /// Number of syncs: one sync covers all records that were queued by then.
    pub syncs: u64,
}

/// Owner of the log, and the way in which it is written.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct JournalConfig {
    pub run_id: RunId,
    pub attempt: u32,
    /// Account that pays for the run.
    pub account: Account,
    pub mode: SyncMode,
    /// Key that signs `close`.
    pub signer: Option<AuditSigner>,
}

/// Audit log of the run.
pub struct Journal {
    run_id: RunId,
    attempt: u32,
    account: Account,
    signer: Option<AuditSigner>,
    poison: Poison,
    /// True once there was no disk space for a record. From then on only the reserved records are taken.
    full: AtomicBool,
    cutting: AtomicBool,
    state: Mutex<State>,
}

struct State {
    chain: Chain,
    totals: Totals,
    cut: u64,
    /// Number of records that are due: the outcome of each open call, and the release of each held request.
    open: u64,
    relay: Option<RelayCounts>,
    disk_reserve: DiskReserve,
    out: LineOutput,
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
    /// Writes `open`, or the records of a restart. With `call`, they are durable with the first intent at the latest. A
    /// full disk is detected here.
    ///
    /// # Errors
    /// The error of the first write.
    pub fn begin(
        config: JournalConfig,
        log: OpenLog,
        open: impl FnOnce(Stamp<'_>) -> Open<'static>,
    ) -> io::Result<Arc<Self>> {
        let JournalConfig { run_id, attempt, account, mode, signer } = config;
        let OpenLog { mut sink, space, past } = log;
        let (chain, end) = past.as_ref().map_or((Chain::default(), 0), |plan| (plan.chain, plan.keep));
        let totals = past.as_ref().map_or_else(Totals::default, totals);
        let state = State {
            chain,
            totals,
            cut: 0,
            open: 0,
            relay: None,
            disk_reserve: DiskReserve::new(space, end),
            out: LineOutput::Closed,
        };
        let journal = Self {
            run_id,
            attempt,
            account,
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
                SyncMode::Off => LineOutput::Inline(sink),
                SyncMode::Call => LineOutput::thread(sink, &journal.poison)?,
            };
        }
        Ok(Arc::new(journal))
    }

    /// Writes what was found in an existing file, and that the run continues.
    fn resume(
        &self,
        state: &mut State,
        sink: &mut dyn LogSink,
        plan: &RecoveryPlan,
        opened: &Open<'_>,
    ) -> io::Result<()> {
        let is_new = plan.chain.seq == 0;
        if is_new {
            state.put(sink, &line(opened))?;
        }
        let open_calls = plan.log.open_ids().count();
        if plan.torn > 0 || open_calls > 0 {
            tracing::warn!(
                torn = plan.torn,
                open_calls,
                "the audit log did not end in order; it continues after its last whole record"
            );
            let recovered = lines::recovered(self.stamp(state), plan);
            state.put(sink, &recovered)?;
            sink.sync()?;
        }
        if is_new {
            return Ok(());
        }
        let epoch = lines::epoch(self.stamp(state), opened);
        state.put(sink, &epoch)
    }

    /// Returns true if no more calls are taken: a record was lost, or the disk is full.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.poison.is_set() || self.full.load(Ordering::Acquire)
    }

    /// Notes that the run cuts its open calls: a call that ends from here on without another reason was cut.
    pub fn cut(&self) {
        self.cutting.store(true, Ordering::Release);
    }

    /// Returns true while open calls are being cut.
    #[must_use]
    pub fn is_cutting(&self) -> bool {
        self.cutting.load(Ordering::Acquire)
    }

    /// Returns the number of calls that were cut.
    #[must_use]
    pub fn calls_cut(&self) -> u64 {
        self.lock().cut
    }

    /// Writes that a call is about to go upstream. The call may go once the acknowledgement has come.
    ///
    /// # Errors
    /// [`Poisoned`]
    pub fn intent(self: &Arc<Self>, planned: CallIntent<'_>) -> Result<(CallGuard, Ack), Poisoned> {
        let mut state = self.lock();
        if self.refuses() {
            return Err(Poisoned);
        }
        let call = state.totals.calls + 1;
        let names = CallNames::new(planned.call_id, planned.model);
        let line = lines::intent(self.stamp(&state), call, planned);
        let owed = (state.open + 1) * OUTCOME_MAX + CLOSE_MAX;
        state.disk_reserve.make(line.len(), owed).map_err(|error| self.mark_full(&error))?;
        state.totals.calls = call;
        state.open += 1;
        let ack = self.append(&mut state, line);
        Ok((CallGuard::new(Arc::clone(self), call, names), ack))
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
        let line = lines::refused(self.stamp(&state), self.account.as_str(), method, path, refusal);
        let owed = state.open * OUTCOME_MAX + CLOSE_MAX;
        if let Err(error) = state.disk_reserve.make(line.len(), owed) {
            return Ack::Known(Err(self.mark_full(&error)));
        }
        self.append(&mut state, line)
    }

    /// Writes that the operator changes something. The change may take effect once the acknowledgement has come.
    pub fn control(
        &self,
        what: &str,
        from: ControlValues<'_>,
        to: ControlValues<'_>,
        by: Option<&str>,
        reason: Option<&str>,
    ) -> Ack {
        let mut state = self.lock();
        if self.refuses() {
            return Ack::Known(Err(Poisoned));
        }
        let line = lines::control(self.stamp(&state), what, from, to, by, reason);
        let owed = state.open * OUTCOME_MAX + CLOSE_MAX;
        if let Err(error) = state.disk_reserve.make(line.len(), owed) {
            return Ack::Known(Err(self.mark_full(&error)));
        }
        self.append(&mut state, line)
    }

    fn outcome(&self, call: u64, names: &CallNames, ended: CallOutcome) -> Ack {
        let mut state = self.lock();
        let known = ended.cost.as_ref().map(Usd::to_nanos);
        state.totals.add(known, ended.null_reason, ended.usage.as_ref());
        state.cut += u64::from(ended.result == CallResult::Deadline);
        state.open -= 1;
        let line = lines::outcome(self.stamp(&state), self.account.as_str(), call, names, ended);
        self.append(&mut state, line)
    }

    /// Writes `close`, syncs in both modes, and releases the file. No other call uses the journal by then.
    ///
    /// # Errors
    /// [`Poisoned`], if a record is missing, or the disk was full.
    pub async fn close(&self, reason: &str) -> Result<LogTotals, Poisoned> {
        let (ack, out, records) = {
            let mut state = self.lock();
            let ack = self.append_close(&mut state, reason);
            state.disk_reserve.release();
            (ack, std::mem::replace(&mut state.out, LineOutput::Closed), state.chain.seq)
        };
        ack.await?;
        let syncs = out.end(&self.poison)?;
        if self.refuses() { Err(Poisoned) } else { Ok(LogTotals { records, syncs }) }
    }

    fn append_close(&self, state: &mut State, reason: &str) -> Ack {
        let reason = if self.refuses() { AUDIT_FULL } else { reason };
        let line =
            lines::close(self.stamp(state), &state.totals, state.open, state.relay, reason, self.signer.as_ref());
        self.append(state, line)
    }

    /// Appends the next line of the chain.
    fn append(&self, state: &mut State, line: Vec<u8>) -> Ack {
        if self.poison.is_set() {
            return Ack::Known(Err(Poisoned));
        }
        state.chain.push(&line);
        state.disk_reserve.take(line.len());
        state.out.append(line, &self.poison)
    }

    /// Refuses further records, since the disk is full. Nothing is lost: the disk space of the records that are still
    /// due is reserved.
    fn mark_full(&self, error: &io::Error) -> Poisoned {
        if !self.full.swap(true, Ordering::AcqRel) {
            tracing::error!(%error, "the disk has no space for the audit log: every further call is refused; free the disk and start a new attempt");
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
    /// Writes a line before there are calls.
    fn put(&mut self, sink: &mut dyn LogSink, line: &[u8]) -> io::Result<()> {
        self.disk_reserve.make(line.len(), CLOSE_MAX)?;
        sink.append(line)?;
        self.disk_reserve.take(line.len());
        self.chain.push(line);
        Ok(())
    }
}

/// Returns the totals of an existing file. A call that was open when its sidecar ended stays unknown.
fn totals(plan: &RecoveryPlan) -> Totals {
    let mut totals = *plan.log.totals();
    totals.unknown += plan.log.open_calls().count() as u64;
    totals
}

#[cfg(test)]
mod tests;
