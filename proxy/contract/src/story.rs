//! What an audit file tells: its calls, each with its outcome or without, its refusals and its sums.
//!
//! Pure. It takes lines one by one, so that a file may be followed while it grows.

use std::collections::{BTreeMap, HashMap};

use crate::Usd;
use crate::reader::{Fault, Line, Lines, Record, What, fault, lines};
use crate::record::{Close, Epoch, Intent, NullReason, Open, Outcome, Recovered, Usage};

/// One call: what was written before it went upstream, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What was to be sent.
    pub intent: Intent<'static>,
    /// None while the call is open, and for ever if its sidecar died: money may have been spent.
    pub outcome: Option<Outcome<'static>>,
}

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

/// Everything that a file says so far.
#[derive(Debug, Clone, Default)]
pub struct Story {
    open: Option<Box<Open<'static>>>,
    calls: Vec<Call>,
    by_id: HashMap<String, usize>,
    refused: BTreeMap<String, u64>,
    recovered: Vec<Recovered<'static>>,
    epochs: Vec<Epoch<'static>>,
    close: Option<Box<Close<'static>>>,
    totals: Totals,
    /// Calls that were open at the last restart, or ended before it: no outcome can follow.
    past: usize,
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

impl Story {
    /// Reads a whole file: its story, and its torn last line, which is empty when all is well.
    ///
    /// # Errors
    /// The first [`Fault`].
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let mut story = Self::default();
        let mut lines = lines(bytes);
        story.take_all(&mut lines)?;
        Ok((story, lines.tail()))
    }

    /// Takes every whole line that is there.
    ///
    /// # Errors
    /// The first [`Fault`]; what came before it is taken.
    pub fn take_all(&mut self, lines: &mut Lines<'_>) -> Result<(), Fault> {
        lines.try_for_each(|line| self.take(line?))
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that cannot stand here; then the story is as it was.
    pub fn take(&mut self, line: Line<'_>) -> Result<(), Fault> {
        self.fits(&line)?;
        let number = line.number;
        match line.record {
            Record::Open(open) => self.open = Some(open),
            Record::Intent(intent) => self.intend(number, *intent)?,
            Record::Outcome(outcome) => self.settle(number, *outcome)?,
            Record::Refused(refused) => {
                *self.refused.entry(refused.reason.into_owned()).or_default() += 1;
                self.totals.refused += 1;
            }
            Record::Recovered(recovered) => self.recover(number, line.offset, *recovered)?,
            Record::Epoch(epoch) => {
                self.past = self.calls.len();
                self.epochs.push(*epoch);
            }
            Record::Close(close) => {
                self.sums_up(number, &close)?;
                self.close = Some(close);
            }
            Record::Other(_) => {}
        }
        self.lines += 1;
        Ok(())
    }

    /// What holds for every line: its number, its run, its place.
    fn fits(&self, line: &Line<'_>) -> Result<(), Fault> {
        let (number, common) = (line.number, &line.common);
        if common.seq != self.lines {
            return Err(fault(number, What::Seq, self.lines, common.seq));
        }
        match (&self.open, &line.record) {
            (None, Record::Open(_)) => return Ok(()),
            (None, _) => return Err(fault(number, What::Order, Open::KIND, &common.kind)),
            (Some(_), Record::Open(_)) => return Err(fault(number, What::Order, "no second open", &common.kind)),
            (Some(open), _) if (&*common.run_id, common.attempt) != (&*open.run_id, open.attempt) => {
                let (run, attempt) = (&open.run_id, open.attempt);
                let found = format!("{} attempt {}", common.run_id, common.attempt);
                return Err(fault(number, What::Run, format!("{run} attempt {attempt}"), found));
            }
            (Some(_), _) => {}
        }
        if self.close.is_some() {
            return Err(fault(number, What::Order, "nothing behind close", &common.kind));
        }
        Ok(())
    }

    fn intend(&mut self, line: u64, intent: Intent<'static>) -> Result<(), Fault> {
        let next = self.totals.calls + 1;
        if intent.call != next {
            return Err(fault(line, What::Call, format!("call {next}"), format!("call {}", intent.call)));
        }
        if self.by_id.contains_key(&*intent.call_id) {
            return Err(fault(line, What::Call, "an id of its own", &intent.call_id));
        }
        self.by_id.insert(intent.call_id.to_string(), self.calls.len());
        self.calls.push(Call { intent, outcome: None });
        self.totals.calls = next;
        Ok(())
    }

    fn settle(&mut self, line: u64, outcome: Outcome<'static>) -> Result<(), Fault> {
        let at = self.by_id.get(&*outcome.call_id).copied();
        let Some(call) = at.and_then(|at| self.calls.get_mut(at)) else {
            return Err(fault(line, What::Call, "an intent before its outcome", &outcome.call_id));
        };
        if call.outcome.is_some() {
            return Err(fault(line, What::Call, "one outcome", &outcome.call_id));
        }
        if at.is_some_and(|at| at < self.past) {
            return Err(fault(line, What::Call, "no outcome behind a restart", &outcome.call_id));
        }
        if call.intent.call != outcome.call {
            let expected = format!("call {}", call.intent.call);
            return Err(fault(line, What::Call, expected, format!("call {}", outcome.call)));
        }
        let cost = match outcome.cost_usd.as_deref().map(Usd::parse).transpose() {
            Ok(cost) => cost.map(|cost| cost.to_nanos()),
            Err(error) => return Err(fault(line, What::Members, "an amount in cost_usd", error)),
        };
        self.totals.add(cost, outcome.null_reason, outcome.usage.as_ref());
        call.outcome = Some(outcome);
        Ok(())
    }

    fn recover(&mut self, line: u64, offset: u64, recovered: Recovered<'static>) -> Result<(), Fault> {
        let open: Vec<_> = self.open_ids().collect();
        if recovered.open_calls != open {
            return Err(fault(line, What::Call, open.join(" "), recovered.open_calls.join(" ")));
        }
        // A file that was torn in its first line begins anew; else nothing stands between the cut and this line.
        if recovered.offset != offset && !(recovered.offset == 0 && self.lines == 1) {
            return Err(fault(line, What::Members, format!("offset {offset}"), recovered.offset));
        }
        self.past = self.calls.len();
        self.recovered.push(recovered);
        Ok(())
    }

    fn sums_up(&self, line: u64, close: &Close<'_>) -> Result<(), Fault> {
        let totals = &self.totals;
        let unknown = totals.unknown + self.open_calls().count() as u64;
        let cost = totals.cost().to_string();
        let number = |name: &str, counted: u64, stated: u64| {
            let differ = || fault(line, What::Totals, format!("{name} {counted}"), format!("{name} {stated}"));
            if counted == stated { Ok(()) } else { Err(differ()) }
        };
        number("calls", totals.calls, close.calls)?;
        number("unknown", unknown, close.unknown)?;
        // A flood of refusals is counted and not written.
        number("refused", totals.refused, close.refused.min(totals.refused))?;
        if close.cost_usd != cost {
            return Err(fault(line, What::Totals, format!("cost_usd {cost}"), format!("cost_usd {}", close.cost_usd)));
        }
        if close.usage != totals.usage {
            let show = |usage| serde_json::to_string(usage).unwrap_or_default();
            return Err(fault(line, What::Totals, show(&totals.usage), show(&close.usage)));
        }
        Ok(())
    }

    /// The first record.
    #[must_use]
    pub fn open(&self) -> Option<&Open<'static>> {
        self.open.as_deref()
    }

    /// All calls, in the order of their intents.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The call of this id.
    #[must_use]
    pub fn call(&self, call_id: &str) -> Option<&Call> {
        self.by_id.get(call_id).and_then(|at| self.calls.get(*at))
    }

    /// The calls without an outcome.
    pub fn open_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.outcome.is_none())
    }

    /// Their ids.
    pub fn open_ids(&self) -> impl Iterator<Item = &str> {
        self.open_calls().map(|call| &*call.intent.call_id)
    }

    /// How often each reason stands among the refusals.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<String, u64> {
        &self.refused
    }

    /// What restarts found torn or open.
    #[must_use]
    pub fn recovered(&self) -> &[Recovered<'static>] {
        &self.recovered
    }

    /// The restarts.
    #[must_use]
    pub fn epochs(&self) -> &[Epoch<'static>] {
        &self.epochs
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

#[cfg(test)]
mod tests;
