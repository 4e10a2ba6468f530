//! Tests with one database, one process and made-up files. The suites of whole runs test the rest.

use std::path::PathBuf;

use proptest::prelude::*;
use sluice_contract::chain::{Chain, close_line, line};
use sluice_contract::record::{
    CallResult, Close, CostSource, End, Intent, NullReason, Open, Outcome, Peer, RunLimits, SCHEMA, Timing, Usage,
};
use sluice_contract::{AuditLog, Hash, PrivateKey, RunKey, TrustAnchors, Usd};
use tempfile::TempDir;

use super::*;
use crate::layout::Layout;
use crate::store::Store;

mod files;
mod implausible;
mod imports;
mod money;
mod repeats;
mod tokens;
mod unsettled;

/// A state directory with a database and audit files.
struct TestLedger {
    _directory: TempDir,
    layout: Layout,
    store: Store,
}

impl TestLedger {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(directory.path()).expect("there is room");
        let store = Store::open(&layout.database()).expect("it is new");
        Self { _directory: directory, layout, store }
    }

    fn put(&self, key: &RunKey, bytes: &[u8]) {
        std::fs::write(self.path(key), bytes).expect("the directory is ours");
    }

    fn path(&self, key: &RunKey) -> PathBuf {
        self.layout.run(key).audit
    }

    async fn ingest(&self, key: &RunKey, bytes: &[u8], writer: Writer) -> Result<Posted, LedgerError> {
        self.store.ingest(reading(key, bytes, writer)).done().await
    }

    async fn all(&self) -> Selection {
        self.store.select(Filter::default()).await.expect("it is readable")
    }

    async fn check(&self) -> RebuildReport {
        AuditArchive { layout: &self.layout, store: &self.store, keys: &[] }.check().await.expect("all is readable")
    }

    async fn fill(&self) -> RebuildReport {
        AuditArchive { layout: &self.layout, store: &self.store, keys: &[] }.fill().await.expect("all is readable")
    }

    async fn found(&self) -> Vec<(DifferenceKind, Option<String>)> {
        self.check().await.differences.into_iter().map(|one| (one.found, one.source_reference)).collect()
    }

    /// Runs a statement on the same file, as another program could.
    fn sql(&self, statement: &str) -> rusqlite::Result<()> {
        rusqlite::Connection::open(self.layout.database())?.execute_batch(statement)
    }

    fn count(&self, table: &str) -> i64 {
        let connection = rusqlite::Connection::open(self.layout.database()).expect("it is there");
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("it is readable")
    }
}

fn reading(key: &RunKey, bytes: &[u8], writer: Writer) -> ParsedAudit {
    seen_by(key, bytes, &TrustAnchors::default(), writer)
}

fn seen_by(key: &RunKey, bytes: &[u8], trust: &TrustAnchors<'_>, writer: Writer) -> ParsedAudit {
    read(key, AuditSource::Bytes(bytes.into()), trust, writer).expect("memory does not fail")
}

/// Returns the number of calls that a file bills.
fn billed(reading: &ParsedAudit) -> usize {
    reading.rows().expect("it is in memory").map(|rows| rows.expect("it is in memory").len()).sum()
}

/// Computes the totals of groups again.
fn grouped(bills: &[BookedReceipt], by: GroupBy) -> std::collections::BTreeMap<String, Total> {
    let mut groups = std::collections::BTreeMap::<String, Total>::new();
    for bill in bills {
        let name = |period: &str| match by {
            GroupBy::Account => bill.account.clone(),
            GroupBy::Run => format!("{}.{}", bill.run_id, bill.attempt),
            GroupBy::Model => bill.model.clone().unwrap_or_default(),
            GroupBy::Day => period.to_owned(),
        };
        groups.entry(name(&bill.period)).or_default().count(bill);
        for entry in &bill.entries {
            groups.entry(name(&entry.period)).or_default().add_entry(entry);
        }
    }
    groups
}

fn key(text: &str) -> RunKey {
    text.parse().expect("a key")
}

/// One call of a made-up file.
#[derive(Debug, Clone)]
struct Made {
    cost: Option<String>,
    usage: Option<Usage>,
    result: CallResult,
    why: Option<NullReason>,
    is_cache_hit: bool,
    /// True if the file has its outcome.
    seen: bool,
}

fn priced(cost: &str) -> Made {
    let usage = Usage { input: Some(10), output: Some(5), total: Some(15), ..Usage::default() };
    Made {
        cost: Some(cost.to_owned()),
        usage: Some(usage),
        result: CallResult::Ok,
        why: None,
        is_cache_hit: false,
        seen: true,
    }
}

fn unpriced(why: NullReason) -> Made {
    Made { cost: None, why: Some(why), ..priced("0") }
}

fn open_call() -> Made {
    Made { seen: false, ..priced("0") }
}

/// A file that is being written.
struct Log {
    key: RunKey,
    chain: Chain,
    bytes: Vec<u8>,
}

/// Reservation of each call, and the same in nano-USD.
const RESERVED: &str = "0.0003";
const RESERVED_NANOS: i128 = 300_000;
const TS: &str = "2026-11-20T16:39:14.000001Z";

impl Log {
    fn of(key: &RunKey) -> Self {
        Self::paid_by(key, "acct-1")
    }

    fn paid_by(key: &RunKey, account: &str) -> Self {
        Self::opened(key, account, RunLimits::default())
    }

    /// The file of a run with a cap in dollars.
    fn capped(key: &RunKey, cap: &str) -> Self {
        Self::opened(key, "acct-1", RunLimits { max_cost_usd: Some(cap.to_owned()), ..RunLimits::default() })
    }

    fn opened(key: &RunKey, account: &str, limits: RunLimits) -> Self {
        let mut log = Self { key: key.clone(), chain: Chain::default(), bytes: Vec::new() };
        log.push(&line(&Open {
            attempt: key.attempt,
            billing_account_id: account.into(),
            boot_id: "boot".into(),
            build: "build".into(),
            graph_id: "sandbox:agent".into(),
            kind: Open::KIND.into(),
            limits,
            pid: 1,
            policy: "sha256:0".into(),
            prev: log.chain.prev.to_string().into(),
            proxy_version: "0".into(),
            run_id: key.run_id.as_str().into(),
            seq: 0,
            sync: "call".into(),
            ts: TS.into(),
            upstream: "http://up".into(),
            v: SCHEMA,
        }));
        log
    }

    fn push(&mut self, line: &[u8]) {
        self.chain.push(line);
        self.bytes.extend_from_slice(line);
    }

    fn intent(&mut self, call: u64, model: &str) {
        let (key, chain) = (self.key.clone(), self.chain);
        self.push(&line(&Intent {
            attempt: key.attempt,
            bound: None,
            call,
            call_id: format!("call-{call}").into(),
            injected_message_ids: None,
            kind: Intent::KIND.into(),
            method: "POST".into(),
            model: Some(model.into()),
            path: "/v1/chat/completions".into(),
            peer: Peer::default(),
            prev: chain.prev.to_string().into(),
            req_bytes: 1,
            reserved_strict: None,
            reserved_tokens: None,
            reserved_usd: Some(RESERVED.into()),
            run_id: key.run_id.as_str().into(),
            seq: chain.seq,
            stream: false,
            stripped: Vec::new(),
            ts: TS.into(),
            v: SCHEMA,
        }));
    }

    fn outcome(&mut self, call: u64, made: &Made) {
        self.outcome_with(call, made, 200);
    }

    fn outcome_with(&mut self, call: u64, made: &Made, status: u16) {
        let (key, chain) = (self.key.clone(), self.chain);
        let source = if made.cost.is_some() { CostSource::Header } else { CostSource::None };
        self.push(&line(&Outcome {
            account: None,
            attempt: key.attempt,
            budget_limit_usd: None,
            budget_of: None,
            budget_spent_usd: None,
            cache_hit: made.is_cache_hit.then_some(true),
            call,
            call_id: format!("call-{call}").into(),
            connect_detail: None,
            connect_error: None,
            cost_source: source,
            cost_usd: made.cost.as_deref().map(Into::into),
            drained: None,
            end: End::Complete,
            kind: Outcome::KIND.into(),
            litellm_call_id: Some(format!("call-{call}").into()),
            model: None,
            model_served: Some("served".into()),
            null_reason: made.why,
            prev: chain.prev.to_string().into(),
            resp_bytes: 1,
            response_id: Some(format!("resp-{call}").into()),
            result: made.result,
            run_id: key.run_id.as_str().into(),
            seq: chain.seq,
            status: Some(status),
            timing_us: Timing::default(),
            ts: TS.into(),
            usage: made.usage,
            v: SCHEMA,
        }));
    }

    fn close(self) -> Vec<u8> {
        self.close_with(None)
    }

    fn close_with(mut self, signer: Option<&PrivateKey>) -> Vec<u8> {
        let (log, _) = AuditLog::read(&self.bytes).expect("it was well made");
        let totals = log.totals();
        let close = Close {
            attempt: self.key.attempt,
            calls: totals.calls,
            certificate: None,
            cost_usd: totals.cost().to_string().into(),
            head: "".into(),
            key_id: None,
            kind: Close::KIND.into(),
            prev: self.chain.prev.to_string().into(),
            reason: "stop".into(),
            refused: 0,
            relay: None,
            run_id: self.key.run_id.to_string().into(),
            seq: self.chain.seq,
            signature: None,
            ts: TS.into(),
            unknown: totals.unknown + log.open_calls().count() as u64,
            usage: totals.usage,
            v: SCHEMA,
        };
        let line = close_line(close, signer);
        self.push(&line);
        self.bytes
    }
}

/// Returns a complete file of these calls, one after the other.
fn file(key: &RunKey, calls: &[Made]) -> Vec<u8> {
    written(Log::of(key), calls).close()
}

fn written(mut log: Log, calls: &[Made]) -> Log {
    for (number, made) in (1..).zip(calls) {
        log.intent(number, if number % 2 == 0 { "even" } else { "odd" });
        if made.seen {
            log.outcome(number, made);
        }
    }
    log
}

fn statuses(selection: &Selection) -> Vec<&'static str> {
    selection.receipts.iter().map(|bill| bill.status.as_str()).collect()
}

fn costs() -> impl Strategy<Value = Option<String>> {
    // As LiteLLM writes them, from below a nano-dollar to more than any call costs.
    let amount = prop_oneof![
        (0u64..2_000_000, 0i32..14).prop_map(|(digits, places)| format!("{digits}e-{places:02}")),
        (0u64..100_000, 0u64..1_000_000_000).prop_map(|(whole, part)| format!("{whole}.{part:09}5")),
    ];
    proptest::option::weighted(0.8, amount)
}

fn usages() -> impl Strategy<Value = Option<Usage>> {
    let tokens = || proptest::option::of(0u64..1 << 48);
    let all = (tokens(), tokens(), tokens(), tokens(), tokens(), tokens());
    proptest::option::of(all.prop_map(|(cache_write, cached_input, input, output, reasoning, total)| Usage {
        cache_write,
        cached_input,
        input,
        output,
        reasoning,
        total,
    }))
}

fn made() -> impl Strategy<Value = Made> {
    (costs(), usages(), proptest::bool::weighted(0.9)).prop_map(|(cost, usage, seen)| {
        let why = cost.is_none().then_some(NullReason::NoCost);
        Made { cost, usage, result: CallResult::Ok, why, is_cache_hit: false, seen }
    })
}

fn nanos(made: &Made) -> i128 {
    let seen = made.cost.as_deref().filter(|_| made.seen);
    seen.map_or(0, |cost| i128::from(Usd::parse(cost).expect("an amount").to_nanos()))
}

/// Runs a test's future to its end.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}
