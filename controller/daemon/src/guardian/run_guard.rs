//! The rules for one run, event by event.
//!
//! Pure. The caller passes the time. A run that reports without end takes bounded memory and work: for each rule, only the
//! last events within its time are kept, up to a maximum number.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sluice_contract::Hash;
use sluice_contract::time::duration_micros;

use super::facts::Fact;
use super::rules::{GuardianAction, GuardianRules, RepetitionRule};

/// Maximum number of events that are kept for one rule.
const KEPT: usize = 256;
/// Maximum number of events that a hit names.
const NAMED: usize = 10;

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    RepeatedTool,
    RepeatedError,
    CostRate,
    NoFileChange,
    Silence,
}

/// A rule that is met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: Rule,
    pub(super) action: GuardianAction,
    pub(super) evidence: Evidence,
}

/// Evidence for a matched rule: numbers only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Evidence {
    /// Number of events that count.
    pub(super) count: u64,
    /// Positions of the last matched events in the event log.
    pub(super) events: Vec<i64>,
    /// Time from the first to the last event, or the time without the expected event.
    pub(super) seconds: u64,
    /// Cost in nano-USD, for the rule about costs.
    pub(super) cost: Option<i64>,
}

/// The rules for one attempt.
#[derive(Debug)]
pub(super) struct RunGuard {
    rules: GuardianRules,
    tools: VecDeque<(i64, Hash, i64)>,
    errors: VecDeque<(i64, Hash, i64)>,
    /// Time, cost and position of calls.
    costs: VecDeque<(i64, i64, i64)>,
    /// Time of the last changed file, or of the start.
    file_us: i64,
    /// Number of calls that have ended since then, or since the rule was last met, and the positions of the last ones.
    calls: u64,
    calls_at: VecDeque<i64>,
    open_calls: u64,
    /// Time and position of the last sign of life.
    last: (i64, Option<i64>),
    hits: BTreeMap<Rule, i64>,
}

impl Rule {
    /// Returns the word in settings and events.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::RepeatedTool => "repeated_tool",
            Self::RepeatedError => "repeated_error",
            Self::CostRate => "cost_rate",
            Self::NoFileChange => "no_file_change",
            Self::Silence => "silence",
        }
    }
}

impl RunGuard {
    /// Begins at a time, in microseconds since 1970.
    pub(super) fn new(rules: GuardianRules, now_us: i64) -> Self {
        Self {
            rules,
            tools: VecDeque::new(),
            errors: VecDeque::new(),
            costs: VecDeque::new(),
            file_us: now_us,
            calls: 0,
            calls_at: VecDeque::new(),
            open_calls: 0,
            last: (now_us, None),
            hits: BTreeMap::new(),
        }
    }

    /// Begins in the middle of an attempt that has this many calls in progress.
    pub(super) fn with_open_calls(self, open_calls: u64) -> Self {
        Self { open_calls, ..self }
    }

    /// Takes an event, and returns the rules that it meets.
    pub(super) fn observe(&mut self, seq: i64, at_us: i64, fact: &Fact) -> Vec<Hit> {
        self.last = (self.last.0.max(at_us), Some(seq));
        let mut hits = Vec::new();
        match fact {
            Fact::ToolUse(tool) => hits.extend(self.repeated(Rule::RepeatedTool, (at_us, *tool, seq))),
            Fact::Error(error) => hits.extend(self.repeated(Rule::RepeatedError, (at_us, *error, seq))),
            Fact::CallStarted => self.open_calls += 1,
            Fact::CallEnded { nano_usd, error } => {
                self.open_calls = self.open_calls.saturating_sub(1);
                self.calls += 1;
                push(&mut self.calls_at, seq, NAMED);
                hits.extend(self.cost((at_us, *nano_usd, seq)));
                if let Some(error) = error {
                    hits.extend(self.repeated(Rule::RepeatedError, (at_us, *error, seq)));
                }
                hits.extend(self.no_file_change(at_us));
            }
            Fact::FileChanged => {
                (self.file_us, self.calls) = (self.file_us.max(at_us), 0);
                self.calls_at.clear();
            }
            Fact::Other => {}
        }
        hits
    }

    /// Returns the rules that are met because nothing has happened. The caller calls this only for a run that works and
    /// is not paused.
    pub(super) fn look(&mut self, now_us: i64) -> Vec<Hit> {
        self.no_file_change(now_us).into_iter().chain(self.silence(now_us)).collect()
    }

    /// Notes that the run is paused: its silence and its time without a changed file begin anew afterwards.
    pub(super) fn rest(&mut self, now_us: i64) {
        self.last.0 = self.last.0.max(now_us);
        self.file_us = self.file_us.max(now_us);
    }

    fn repeated(&mut self, rule: Rule, next: (i64, Hash, i64)) -> Option<Hit> {
        let (known, limit) = match rule {
            Rule::RepeatedTool => (&mut self.tools, self.rules.repeated_tool?),
            _ => (&mut self.errors, self.rules.repeated_error?),
        };
        let RepetitionRule { count, within, action } = limit;
        let (now_us, hash, _) = next;
        known.retain(|(at_us, ..)| span(*at_us, now_us) < within);
        push(known, next, KEPT);
        let same: Vec<_> = known.iter().filter(|(_, other, _)| *other == hash).collect();
        if same.len() < count as usize {
            return None;
        }
        let first_us = same.first().map_or(now_us, |(at_us, ..)| *at_us);
        let evidence = Evidence {
            count: same.len() as u64,
            events: last(same.iter().map(|(.., seq)| *seq)),
            seconds: span(first_us, now_us).as_secs(),
            cost: None,
        };
        known.retain(|(_, other, _)| *other != hash);
        self.hit(rule, action, evidence, now_us)
    }

    fn cost(&mut self, next: (i64, i64, i64)) -> Option<Hit> {
        let limit = self.rules.cost_rate?;
        let now_us = next.0;
        self.costs.retain(|(at_us, ..)| span(*at_us, now_us) < limit.within);
        if self.costs.len() == KEPT {
            // Two calls count as one: nothing of the sum is lost.
            let (first, second) = (self.costs.pop_front()?, self.costs.pop_front()?);
            self.costs.push_front((second.0, first.1.saturating_add(second.1), second.2));
        }
        self.costs.push_back(next);
        let sum = self.costs.iter().fold(0_i64, |sum, (_, cost, _)| sum.saturating_add(*cost));
        if sum < limit.nano_usd {
            return None;
        }
        let first_us = self.costs.front().map_or(now_us, |(at_us, ..)| *at_us);
        let evidence = Evidence {
            count: self.costs.len() as u64,
            events: last(self.costs.iter().map(|(.., seq)| *seq)),
            seconds: span(first_us, now_us).as_secs(),
            cost: Some(sum),
        };
        self.costs.clear();
        self.hit(Rule::CostRate, limit.action, evidence, now_us)
    }

    fn no_file_change(&mut self, now_us: i64) -> Option<Hit> {
        let limit = self.rules.no_file_change?;
        let without = span(self.file_us, now_us);
        if without < limit.after || self.calls < u64::from(limit.calls) {
            return None;
        }
        let events = self.calls_at.iter().copied().collect();
        let evidence = Evidence { count: self.calls, events, seconds: without.as_secs(), cost: None };
        self.calls = 0;
        self.calls_at.clear();
        self.hit(Rule::NoFileChange, limit.action, evidence, now_us)
    }

    fn silence(&mut self, now_us: i64) -> Option<Hit> {
        let limit = self.rules.silence?;
        let without = span(self.last.0, now_us);
        if self.open_calls > 0 || without < limit.after {
            return None;
        }
        let events = self.last.1.into_iter().collect();
        let evidence = Evidence { count: 0, events, seconds: without.as_secs(), cost: None };
        self.hit(Rule::Silence, limit.action, evidence, now_us)
    }

    /// Returns a hit, unless the same rule was met a short time ago.
    fn hit(&mut self, rule: Rule, action: GuardianAction, evidence: Evidence, now_us: i64) -> Option<Hit> {
        let is_cooling = self.hits.get(&rule).is_some_and(|before| span(*before, now_us) < self.rules.cool_down);
        if is_cooling {
            return None;
        }
        self.hits.insert(rule, now_us);
        Some(Hit { rule, action, evidence })
    }
}

fn push<T>(kept: &mut VecDeque<T>, next: T, max: usize) {
    if kept.len() == max {
        kept.pop_front();
    }
    kept.push_back(next);
}

/// Returns the last positions, at most [`NAMED`].
fn last(events: impl DoubleEndedIterator<Item = i64>) -> Vec<i64> {
    let mut last: Vec<_> = events.rev().take(NAMED).collect();
    last.reverse();
    last
}

/// Returns the time between two times; zero if the clock went back.
fn span(from_us: i64, to_us: i64) -> Duration {
    let us = to_us.saturating_sub(from_us).clamp(0, duration_micros(Duration::MAX));
    Duration::from_micros(us.unsigned_abs())
}
