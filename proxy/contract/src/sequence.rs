//! Rules for the sequence of lines: numbers, run, order, calls, sums.
//!
//! Pure. For each call, the checker keeps only the data that the rules need: for an ended call, its id's hash. So a
//! file of any length can be checked; [`crate::AuditLog`] keeps the content.

use std::collections::{BTreeMap, HashMap};

use crate::Usd;
use crate::hash::Hash;
use crate::reader::{AuditLine, Fault, FaultKind, Record, fault};
use crate::record::{Close, Intent, NullReason, Open, Outcome, Recovered, Released, Usage};

/// Sums over the lines of a file, as `close` states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Number of calls with an intent.
    pub calls: u64,
    /// Number of requests that were not forwarded.
    pub refused: u64,
    /// Number of calls without a known cost, except calls that are known to cost nothing.
    pub unknown: u64,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Sum of the known costs, in nano-USD, each call rounded half-even. It is exact, also above the highest single
    /// amount.
    pub nanos: i128,
}

/// Checker of the lines of a file, with the state that the next line depends on.
#[derive(Debug, Clone, Default)]
pub struct SequenceChecker {
    /// Run and attempt, as `open` states them.
    run: Option<(String, u32)>,
    /// Number of each call, by the hash of its id: an id takes three times the memory.
    numbers: HashMap<Hash, u64>,
    /// Numbers and ids of calls without an outcome.
    open: BTreeMap<u64, String>,
    /// Number of requests that wait, by the id of their hold.
    holds: BTreeMap<String, u64>,
    /// Ids of holds that a restart left without a release, once for each request.
    lost_holds: Vec<String>,
    /// Number of the last call before the last restart: calls up to it can have no further outcome.
    past: u64,
    recovered: u64,
    epochs: u64,
    close: Option<Box<Close<'static>>>,
    totals: Totals,
    lines: u64,
}

impl Totals {
    /// Adds the outcome of one call.
    #[inline]
    pub fn add(&mut self, cost: Option<i64>, why_null: Option<NullReason>, usage: Option<&Usage>) {
        // These calls are known to cost nothing.
        let free = matches!(why_null, Some(NullReason::NotSent | NullReason::NotBilled));
        self.nanos = self.nanos.saturating_add(cost.unwrap_or(0).into());
        self.unknown += u64::from(cost.is_none() && !free);
        if let Some(usage) = usage {
            self.usage.add(usage);
        }
    }

    /// Returns the sum as an amount.
    #[must_use]
    pub fn cost(&self) -> Usd {
        Usd::from_nano_sum(self.nanos)
    }
}

impl SequenceChecker {
    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that breaks a rule; then the checker is unchanged.
    pub fn take(&mut self, line: &AuditLine<'_>) -> Result<(), Fault> {
        self.check_line(line)?;
        let number = line.number;
        match &line.record {
            Record::Open(open) => self.run = Some((open.run_id.to_string(), open.attempt)),
            Record::Intent(intent) => self.add_intent(number, intent)?,
            Record::Outcome(outcome) => self.add_outcome(number, outcome)?,
            Record::Refused(_) => self.totals.refused += 1,
            Record::Recovered(recovered) => self.add_recovered(number, line.offset, recovered)?,
            Record::Held(held) => *self.holds.entry(held.hold_id.to_string()).or_default() += 1,
            Record::Released(released) => self.add_released(number, released)?,
            Record::Epoch(_) => {
                self.begin_anew();
                self.epochs += 1;
            }
            Record::Close(close) => {
                self.check_totals(number, close)?;
                self.close = Some(close.clone());
            }
            Record::Control(_) | Record::Other(_) => {}
        }
        self.lines += 1;
        Ok(())
    }

    /// Checks the rules for every line: its number, its run, its position.
    fn check_line(&self, line: &AuditLine<'_>) -> Result<(), Fault> {
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
            return Err(fault(number, FaultKind::Order, "nothing after close", &common.kind));
        }
        Ok(())
    }

    fn add_intent(&mut self, line: u64, intent: &Intent<'_>) -> Result<(), Fault> {
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

    fn add_outcome(&mut self, line: u64, outcome: &Outcome<'_>) -> Result<(), Fault> {
        let Some(number) = self.number(&outcome.call_id) else {
            return Err(fault(line, FaultKind::Call, "an intent before its outcome", &outcome.call_id));
        };
        if !self.open.contains_key(&number) {
            return Err(fault(line, FaultKind::Call, "one outcome", &outcome.call_id));
        }
        if number <= self.past {
            return Err(fault(line, FaultKind::Call, "no outcome after a restart", &outcome.call_id));
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

    fn add_recovered(&mut self, line: u64, offset: u64, recovered: &Recovered<'_>) -> Result<(), Fault> {
        let open: Vec<_> = self.open_ids().collect();
        if recovered.open_calls != open {
            return Err(fault(line, FaultKind::Call, open.join(" "), recovered.open_calls.join(" ")));
        }
        // A file torn in its first line begins anew; otherwise no line is between the cut and this one.
        if recovered.offset != offset && !(recovered.offset == 0 && self.lines == 1) {
            return Err(fault(line, FaultKind::Members, format!("offset {offset}"), recovered.offset));
        }
        self.begin_anew();
        self.recovered += 1;
        Ok(())
    }

    /// Marks the calls and waits of the sidecar's previous process as ended.
    fn begin_anew(&mut self) {
        self.past = self.totals.calls;
        let lost: Vec<_> = self.open_holds().map(str::to_owned).collect();
        self.lost_holds = lost;
        self.holds.clear();
    }

    fn add_released(&mut self, line: u64, released: &Released<'_>) -> Result<(), Fault> {
        let Some(waiting) = self.holds.get_mut(&*released.hold_id) else {
            return Err(fault(line, FaultKind::Hold, "a hold before its release", &released.hold_id));
        };
        *waiting -= 1;
        if *waiting == 0 {
            self.holds.remove(&*released.hold_id);
        }
        Ok(())
    }

    fn check_totals(&self, line: u64, close: &Close<'_>) -> Result<(), Fault> {
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

    /// Returns the number of the call with this id.
    #[must_use]
    pub fn number(&self, call_id: &str) -> Option<u64> {
        self.numbers.get(&Hash::of(call_id.as_bytes())).copied()
    }

    /// Returns the ids of the calls without an outcome, in the order of their intents.
    pub fn open_ids(&self) -> impl Iterator<Item = &str> {
        self.open.values().map(String::as_str)
    }

    /// Returns the ids of the holds without a release, once for each request that waited.
    pub fn open_holds(&self) -> impl Iterator<Item = &str> {
        let waiting = self.holds.iter().flat_map(|(id, count)| (0..*count).map(move |_| id.as_str()));
        self.lost_holds.iter().map(String::as_str).chain(waiting)
    }

    /// Returns the number of restarts that found the file torn, or calls open.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        self.recovered
    }

    /// Returns the number of restarts of the sidecar.
    #[must_use]
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Returns the last record, once the sidecar has ended in order.
    #[must_use]
    pub fn close(&self) -> Option<&Close<'static>> {
        self.close.as_deref()
    }

    /// Returns the sums over the lines that were read. Open calls are not in `unknown`.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the number of lines that were read.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }
}
