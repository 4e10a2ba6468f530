//! Whether a line may stand where it stands: numbers, run, order, calls, sums.
//!
//! Pure. It keeps no more of a call than that needs: of one that has ended, the hash of its id. So a file of any length
//! can be held against its own rules; whoever wants to know what it says takes a [`crate::AuditLog`].

use std::collections::{BTreeMap, HashMap};

use crate::Usd;
use crate::hash::Hash;
use crate::reader::{AuditLine, Fault, FaultKind, Record, fault};
use crate::record::{Close, Intent, NullReason, Open, Outcome, Recovered, Usage};

/// What `close` sums up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Calls with an intent.
    pub calls: u64,
    /// Requests that were not forwarded.
    pub refused: u64,
    /// Calls whose money is not known: no cost, and not certainly none.
    pub unknown: u64,
    /// The tokens of all calls.
    pub usage: Usage,
    /// The sum of the known costs, in nano-USD, each call rounded half-even.
    pub nanos: i64,
}

/// A file's lines so far, as far as they bear on the next one.
#[derive(Debug, Clone, Default)]
pub struct SequenceChecker {
    /// Run and attempt, as `open` states them.
    run: Option<(String, u32)>,
    /// The number of each call, by its id's hash: an id takes three times the room.
    numbers: HashMap<Hash, u64>,
    /// Numbers and ids of calls without an outcome.
    open: BTreeMap<u64, String>,
    /// Calls up to this one were open at the last restart, or ended before it: no outcome can follow.
    past: u64,
    recovered: u64,
    epochs: u64,
    close: Option<Box<Close<'static>>>,
    totals: Totals,
    lines: u64,
}

impl Totals {
    /// Adds what came of one call.
    pub fn add(&mut self, cost: Option<i64>, why_null: Option<NullReason>, usage: Option<&Usage>) {
        // Of these it is certain that they cost nothing.
        let free = matches!(why_null, Some(NullReason::NotSent | NullReason::NotBilled));
        self.nanos = self.nanos.saturating_add(cost.unwrap_or(0));
        self.unknown += u64::from(cost.is_none() && !free);
        if let Some(usage) = usage {
            self.usage.add(usage);
        }
    }

    /// The sum as an amount.
    #[must_use]
    pub fn cost(&self) -> Usd {
        Usd::from_nanos(self.nanos)
    }
}

impl SequenceChecker {
    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that cannot stand here; then the sequence is as it was.
    pub fn take(&mut self, line: &AuditLine<'_>) -> Result<(), Fault> {
        self.fits(line)?;
        let number = line.number;
        match &line.record {
            Record::Open(open) => self.run = Some((open.run_id.to_string(), open.attempt)),
            Record::Intent(intent) => self.intend(number, intent)?,
            Record::Outcome(outcome) => self.settle(number, outcome)?,
            Record::Refused(_) => self.totals.refused += 1,
            Record::Recovered(recovered) => self.recover(number, line.offset, recovered)?,
            Record::Epoch(_) => {
                self.past = self.totals.calls;
                self.epochs += 1;
            }
            Record::Close(close) => {
                self.sums_up(number, close)?;
                self.close = Some(close.clone());
            }
            Record::Other(_) => {}
        }
        self.lines += 1;
        Ok(())
    }

    /// What holds for every line: its number, its run, its place.
    fn fits(&self, line: &AuditLine<'_>) -> Result<(), Fault> {
        let (number, common) = (line.number, &line.header);
        if common.seq != self.lines {
            return Err(fault(number, FaultKind::Seq, self.lines, common.seq));
        }
        match (&self.run, &line.record) {
            (None, Record::Open(_)) => return Ok(()),
            (None, _) => return Err(fault(number, FaultKind::Order, Open::KIND, &common.kind)),
            (Some(_), Record::Open(_)) => return Err(fault(number, FaultKind::Order, "no second open", &common.kind)),
            (Some((run, attempt)), _) if (&common.run_id, common.attempt) != (run, *attempt) => {
                let found = format!("{} attempt {}", common.run_id, common.attempt);
                return Err(fault(number, FaultKind::Run, format!("{run} attempt {attempt}"), found));
            }
            (Some(_), _) => {}
        }
        if self.close.is_some() {
            return Err(fault(number, FaultKind::Order, "nothing behind close", &common.kind));
        }
        Ok(())
    }

    fn intend(&mut self, line: u64, intent: &Intent<'_>) -> Result<(), Fault> {
        let next = self.totals.calls + 1;
        if intent.call != next {
            return Err(fault(line, FaultKind::Call, format!("call {next}"), format!("call {}", intent.call)));
        }
        let id = Hash::of(intent.call_id.as_bytes());
        if self.numbers.contains_key(&id) {
            return Err(fault(line, FaultKind::Call, "an id of its own", &intent.call_id));
        }
        self.numbers.insert(id, next);
        self.open.insert(next, intent.call_id.to_string());
        self.totals.calls = next;
        Ok(())
    }

    fn settle(&mut self, line: u64, outcome: &Outcome<'_>) -> Result<(), Fault> {
        let Some(number) = self.number(&outcome.call_id) else {
            return Err(fault(line, FaultKind::Call, "an intent before its outcome", &outcome.call_id));
        };
        if !self.open.contains_key(&number) {
            return Err(fault(line, FaultKind::Call, "one outcome", &outcome.call_id));
        }
        if number <= self.past {
            return Err(fault(line, FaultKind::Call, "no outcome behind a restart", &outcome.call_id));
        }
        if number != outcome.call {
            return Err(fault(line, FaultKind::Call, format!("call {number}"), format!("call {}", outcome.call)));
        }
        let cost = match outcome.cost_usd.as_deref().map(Usd::parse).transpose() {
            Ok(cost) => cost.map(|cost| cost.to_nanos()),
            Err(error) => return Err(fault(line, FaultKind::Members, "an amount in cost_usd", error)),
        };
        self.totals.add(cost, outcome.null_reason, outcome.usage.as_ref());
        self.open.remove(&number);
        Ok(())
    }

    fn recover(&mut self, line: u64, offset: u64, recovered: &Recovered<'_>) -> Result<(), Fault> {
        let open: Vec<_> = self.open_ids().collect();
        if recovered.open_calls != open {
            return Err(fault(line, FaultKind::Call, open.join(" "), recovered.open_calls.join(" ")));
        }
        // A file that was torn in its first line begins anew; else nothing stands between the cut and this line.
        if recovered.offset != offset && !(recovered.offset == 0 && self.lines == 1) {
            return Err(fault(line, FaultKind::Members, format!("offset {offset}"), recovered.offset));
        }
        self.past = self.totals.calls;
        self.recovered += 1;
        Ok(())
    }

    fn sums_up(&self, line: u64, close: &Close<'_>) -> Result<(), Fault> {
        let totals = &self.totals;
        let unknown = totals.unknown + self.open.len() as u64;
        let cost = totals.cost().to_string();
        let number = |name: &str, counted: u64, stated: u64| {
            let differ = || fault(line, FaultKind::Totals, format!("{name} {counted}"), format!("{name} {stated}"));
            if counted == stated { Ok(()) } else { Err(differ()) }
        };
        number("calls", totals.calls, close.calls)?;
        number("unknown", unknown, close.unknown)?;
        // A flood of refusals is counted and not written.
        number("refused", totals.refused, close.refused.min(totals.refused))?;
        if close.cost_usd != cost {
            return Err(fault(
                line,
                FaultKind::Totals,
                format!("cost_usd {cost}"),
                format!("cost_usd {}", close.cost_usd),
            ));
        }
        if close.usage != totals.usage {
            let show = |usage| serde_json::to_string(usage).unwrap_or_default();
            return Err(fault(line, FaultKind::Totals, show(&totals.usage), show(&close.usage)));
        }
        Ok(())
    }

    /// The number of the call of this id.
    #[must_use]
    pub fn number(&self, call_id: &str) -> Option<u64> {
        self.numbers.get(&Hash::of(call_id.as_bytes())).copied()
    }

    /// The ids of the calls without an outcome, in the order of their intents.
    pub fn open_ids(&self) -> impl Iterator<Item = &str> {
        self.open.values().map(String::as_str)
    }

    /// How often a restart found the file torn, or calls open.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.recovered
    }

    /// How often its sidecar was started again.
    #[must_use]
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// The last record, once the sidecar has ended in order.
    #[must_use]
    pub fn close(&self) -> Option<&Close<'static>> {
        self.close.as_deref()
    }

    /// The sums over what was read. Calls that are open are not in `unknown`.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// How many lines were read.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }
}
