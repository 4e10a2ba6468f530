//! The ledger beside LiteLLM's own bill.
//!
//! Receipts in question → the rows of their accounts (`client`, by `window`) → held against each other (`join`) → what was
//! not known is posted → held against each other once more: so what is told is how things stand now, and a further
//! reconciliation finds the same and changes nothing. It decides nothing twice: all of `join` is pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use sluice_runs::observer::{Observation, Observer};
use sluice_state::ledger::{BookedReceipt, Filter, LedgerError, Settled, Settlement};
use sluice_state::store::{Store, now_us};

pub mod background;
pub mod finding;
pub mod join;

pub use finding::{Class, Finding};

use finding::{Remedy, Side};
use join::{Facts, Known, Reach, join};
use sluice_litellm::spend_log::row::SpendRow;
use sluice_litellm::spend_log::window::{TimeWindow, merged};
use sluice_litellm::spend_log::{SpendLog, SpendLogError};

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// A run, or one start of it.
    Run {
        /// Which.
        run_id: String,
        /// Which start; none is all.
        attempt: Option<u32>,
    },
    /// All that one account, or each of ours, spent since then (microseconds since 1970); and of earlier calls those
    /// whose cost is not known.
    Since {
        /// Which; none is each that has receipts.
        account: Option<String>,
        /// Since when.
        from_us: i64,
    },
    /// Calls whose cost is not known, and nothing else.
    Open {
        /// Calls of this time or later.
        from_us: i64,
        /// That were heard of at this time or earlier.
        heard_us: i64,
    },
}

/// What may be posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// What was not known.
    Settle,
    /// That, and the spend log's numbers in place of ours where both have some.
    Correct,
}

/// A reconciliation.
pub struct Reconcile<'a> {
    /// The ledger.
    pub store: &'a Store,
    /// The other side.
    pub spend_log: SpendLog,
    /// What may be posted.
    pub permission: Permission,
    /// Receiver of notes on slow parts.
    pub observer: Arc<dyn Observer>,
}

/// How both sides stand.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Whether nobody has to look at anything.
    pub ok: bool,
    /// How many findings there are of each class.
    pub classes: BTreeMap<&'static str, u64>,
    /// Those that are not plainly matched.
    pub findings: Vec<Finding>,
    /// What the receipts come to; those that are not decided yet are not in it.
    pub receipts: Sum,
    /// What their rows come to, with those that have no receipt.
    pub spend_log: Sum,
    /// What was posted by this reconciliation.
    pub posted: Settled,
    /// Rows of others that came unasked, and were not looked at.
    pub foreign_rows: usize,
}

/// So many, and what they come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// A string, since a reader's number may be a float.
    #[serde(serialize_with = "as_text")]
    pub nano_usd: i128,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Nobody knows this run.
    #[error("there is no run {0} in the ledger; sluice receipts lists those there are")]
    NoRun(String),
    /// Of the other side.
    #[error(transparent)]
    SpendLog(#[from] SpendLogError),
    /// Of ours.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// While a row may still come, it is looked for this often.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often what can be posted is posted before it is told. Something else may have settled a receipt meanwhile, so
/// that it takes nothing.
const ROUNDS: u32 = 3;

/// What is looked at.
struct Scope {
    /// Each account, and when to look for its rows.
    windows: BTreeMap<String, Vec<TimeWindow>>,
    filters: Vec<Filter>,
    reach: Reach,
}

impl Reconcile<'_> {
    /// Holds both sides against each other, and posts what is missing.
    ///
    /// With a limit it waits until then, for what may still come.
    ///
    /// # Errors
    /// [`ReconcileError`].
    pub async fn run(&mut self, question: &Question, wait: Option<Duration>) -> Result<Outcome, ReconcileError> {
        let limit_us = wait.map(|wait| now_us().saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX)));
        let scope = self.scope(question).await?;
        let mut posted = Settled::default();
        loop {
            let (rows, foreign) = self.rows(&scope).await?;
            let mut findings = join(&self.facts(&scope, &rows).await?);
            // What a receipt takes may make room for more: earlier tries of a call follow what the call itself cost.
            for _ in 0..ROUNDS {
                let settlements = self.settlements(&findings);
                if settlements.is_empty() {
                    break;
                }
                let more = self.store.settle(settlements).await?;
                posted.receipts += more.receipts;
                posted.reversed += more.reversed;
                findings = join(&self.facts(&scope, &rows).await?);
            }
            let until = findings.iter().filter_map(|finding| finding.until_us).max();
            let Some(until) = until.filter(|_| limit_us.is_some_and(|limit| now_us() < limit)) else {
                return Ok(Outcome::of(findings, posted, foreign));
            };
            let waiting = findings.iter().filter(|finding| finding.until_us.is_some()).count();
            let left = Duration::from_micros(u64::try_from(until - now_us()).unwrap_or(0));
            let note = format!("{waiting} rows may still come, for {} s", left.as_secs() + 1);
            self.observer.observe(Observation::Note(&note));
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    async fn scope(&self, question: &Question) -> Result<Scope, ReconcileError> {
        let now = now_us();
        let mut windows: BTreeMap<String, Vec<TimeWindow>> = BTreeMap::new();
        let (mut open, mut heard_us) = (None, i64::MAX);
        let (filters, reach) = match question {
            Question::Run { run_id, attempt } => {
                let span = self.store.span_of_run(run_id.clone(), *attempt).await?;
                let (account, from, to) = span.ok_or_else(|| ReconcileError::NoRun(run_id.clone()))?;
                windows.insert(account, vec![TimeWindow::over(from, to)]);
                let filter = Filter { run_id: Some(run_id.clone()), attempt: *attempt, ..Filter::default() };
                (vec![filter], Reach::Run(run_id.clone(), *attempt))
            }
            Question::Since { account, from_us } => {
                let accounts = match account {
                    Some(account) => vec![account.clone()],
                    None => self.store.payer_names().await?,
                };
                windows.extend(accounts.into_iter().map(|account| (account, vec![TimeWindow::over(*from_us, now)])));
                let of = || Filter { account: account.clone(), ..Filter::default() };
                open = Some(Filter { to_us: Some(from_us - 1), open: true, ..of() });
                let since = Filter { from_us: Some(*from_us), to_us: Some(now), ..of() };
                (vec![since], Reach::Span(*from_us, now))
            }
            Question::Open { from_us, heard_us: limit } => {
                heard_us = *limit;
                open = Some(Filter { from_us: Some(*from_us), open: true, ..Filter::default() });
                (Vec::new(), Reach::None)
            }
        };
        let mut scope = Scope { windows, filters, reach };
        if let Some(open) = open {
            self.add_open(&mut scope, open, heard_us).await?;
        }
        for windows in scope.windows.values_mut() {
            *windows = merged(std::mem::take(windows));
        }
        Ok(scope)
    }

    /// Calls beside the time that is asked about: they have their rows around them. They are asked for by their names
    /// from here on, since they will not be open for long.
    async fn add_open(&self, scope: &mut Scope, open: Filter, heard_us: i64) -> Result<(), ReconcileError> {
        let mut names = Vec::new();
        for (bill, heard) in self.store.hold(open).await?.bills {
            if heard <= heard_us {
                scope.windows.entry(bill.account.clone()).or_default().push(TimeWindow::around(origin_us(&bill)));
                names.push(bill.source_reference);
            }
        }
        scope.filters.push(Filter { references: Some(names), ..Filter::default() });
        Ok(())
    }

    async fn rows(&mut self, scope: &Scope) -> Result<(Vec<SpendRow>, usize), ReconcileError> {
        let (mut rows, mut foreign) = (Vec::new(), 0);
        for (account, windows) in &scope.windows {
            let note = format!("reading the spend log of {account}");
            self.observer.observe(Observation::Note(&note));
            let found = self.spend_log.rows(account, windows).await?;
            rows.extend(found.rows.into_values());
            foreign += found.foreign;
        }
        Ok((rows, foreign))
    }

    /// All that decides, as it stands now.
    async fn facts(&self, scope: &Scope, rows: &[SpendRow]) -> Result<Facts, ReconcileError> {
        let (mut known, mut under_way) = (HashMap::new(), HashSet::new());
        for filter in &scope.filters {
            let held = self.store.hold(filter.clone()).await?;
            under_way.extend(held.under_way);
            known.extend(held.bills.into_iter().map(|(bill, heard)| (bill.source_reference.clone(), (bill, heard))));
        }
        let in_question: HashSet<_> = known.values().map(|(bill, _)| bill.call_id.clone()).collect();
        let names = rows.iter().filter_map(SpendRow::call_id);
        let names = names.filter(|id| !in_question.contains(*id)).map(str::to_owned).collect();
        let elsewhere = self.store.payers(names).await?;
        let mut known: Vec<_> = known.into_values().map(|(bill, heard_us)| known_of(bill, heard_us)).collect();
        known.sort_by(|a, b| {
            (&a.bill.origin, &a.bill.source_reference).cmp(&(&b.bill.origin, &b.bill.source_reference))
        });
        let reach = scope.reach.clone();
        Ok(Facts { known, elsewhere, under_way, rows: rows.to_vec(), reach, now_us: now_us() })
    }

    fn settlements(&self, findings: &[Finding]) -> Vec<Settlement> {
        let remedies = findings.iter().filter_map(|finding| finding.remedy.as_ref());
        let allowed = remedies.filter_map(|remedy| match (remedy, self.permission) {
            (Remedy::Settle(settlement), _) | (Remedy::Correct(settlement), Permission::Correct) => {
                Some(settlement.clone())
            }
            (Remedy::Correct(_), Permission::Settle) => None,
        });
        allowed.collect()
    }
}

impl Outcome {
    fn of(findings: Vec<Finding>, posted: Settled, foreign_rows: usize) -> Self {
        let mut classes: BTreeMap<_, _> = Class::ALL.iter().map(|class| (class.as_str(), 0)).collect();
        let (mut receipts, mut spend_log) = (Sum::default(), Sum::default());
        for finding in &findings {
            *classes.entry(finding.class.as_str()).or_default() += 1;
            // What is not decided is in neither sum, so that the sums of what is can be compared.
            if finding.class != Class::NotYet {
                receipts.add(u64::from(finding.ledger.is_some()), finding.ledger.as_ref());
                spend_log.add(finding.request_ids.len() as u64, finding.spend_log.as_ref());
            }
        }
        let ok = !findings.iter().any(|finding| finding.class.is_mismatch());
        let findings = findings.into_iter().filter(|finding| finding.class != Class::Matched).collect();
        Self { ok, classes, findings, receipts, spend_log, posted, foreign_rows }
    }
}

impl Sum {
    fn add(&mut self, count: u64, side: Option<&Side>) {
        self.count += count;
        self.nano_usd += i128::from(side.and_then(|side| side.nano_usd).unwrap_or(0));
    }
}

fn known_of(bill: BookedReceipt, heard_us: i64) -> Known {
    let origin_day = bill.origin.get(..10).unwrap_or_default().to_owned();
    Known { bill, origin_day, heard_us }
}

fn origin_us(bill: &BookedReceipt) -> i64 {
    let time = humantime::parse_rfc3339(&bill.origin).ok();
    let since = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn as_text<S: serde::Serializer>(amount: &i128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(amount)
}
