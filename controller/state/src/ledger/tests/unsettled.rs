//! Runs whose bill is not final, in every selection of receipts.

use super::*;
use crate::process::Process;
use crate::run::{Run, RunPhase};
use crate::store::{RunDriver, RunRow, now_us};

const DAY_US: i64 = 86_400_000_000;

impl TestLedger {
    /// Records the start of a run of this host.
    async fn begin_run(&self, run: &RunKey, account: &str) {
        let entry = RunRow {
            key: run.clone(),
            account: account.into(),
            agent: "sandbox:agent".into(),
            model: None,
            image: "image".into(),
            owner: Process::current().expect("there is /proc"),
            driver: RunDriver::Once,
        };
        self.store.begin(entry).await.expect("it is new");
    }

    /// Posts a file, and then reads it again after a byte of it was changed.
    async fn ingest_and_tamper(&self, run: &RunKey, account: &str) {
        let bytes = written(Log::paid_by(run, account), &[priced("0.0000054")]).close();
        self.ingest(run, &bytes, Writer::Gone).await.expect("it is new");
        let altered = String::from_utf8(bytes).expect("text").replace("0.0000054", "0.0000055");
        self.ingest(run, altered.as_bytes(), Writer::Gone).await.expect("the alteration is recorded");
    }

    /// Returns the unsettled runs of a selection, which sums and lists must both have.
    async fn unsettled(&self, filter: &Filter) -> Vec<Unsettled> {
        let usage = self.store.usage(GroupBy::Account, filter.clone()).await.expect("it is readable");
        let list = self.store.select(filter.clone()).await.expect("it is readable");
        assert_eq!(usage.unsettled, list.unsettled, "{filter:?}");
        usage.unsettled
    }
}

/// Returns all combinations of the flags of a selection that has the calls of a run of today.
fn selections(run: &str, account: &str) -> Vec<Filter> {
    let today = now_us() - now_us() % DAY_US;
    let selection = |flags: u8| {
        let has = |flag: u8| flags & (1 << flag) != 0;
        Filter {
            run_id: has(0).then(|| run.to_owned()),
            account: has(1).then(|| account.to_owned()),
            model: has(2).then(|| "odd".to_owned()),
            since_us: has(3).then_some(today - DAY_US),
            until_us: has(4).then_some(today + 2 * DAY_US),
            ..Filter::default()
        }
    };
    (0..32).map(selection).collect()
}

#[tokio::test]
async fn a_tampered_file_is_unsettled_in_every_selection() {
    let ledger = TestLedger::new();
    let (own, imported) = (key("own.0"), key("imported.0"));
    ledger.begin_run(&own, "acct-1").await;
    let closed = Run { phase: RunPhase::Closed, ..Run::new() };
    ledger.store.record(&own, 0, &closed, None).await.expect("it is ours");
    ledger.ingest_and_tamper(&own, "acct-1").await;
    // A file of another host: the ledger has its receipts, and no run.
    ledger.ingest_and_tamper(&imported, "acct-2").await;

    for (run, account) in [("own", "acct-1"), ("imported", "acct-2")] {
        for filter in selections(run, account) {
            let found = ledger.unsettled(&filter).await;
            let of_run = found.iter().find(|unsettled| unsettled.run == format!("{run}.0"));
            assert!(of_run.is_some_and(|unsettled| unsettled.reason.contains("tampered")), "{filter:?}: {found:?}");
        }
    }
}

#[tokio::test]
async fn a_tampered_file_is_absent_from_other_selections() {
    let ledger = TestLedger::new();
    ledger.ingest_and_tamper(&key("r1.0"), "acct-1").await;
    let today = now_us() - now_us() % DAY_US;
    let all = Filter::default;
    for filter in [
        Filter { account: Some("acct-2".into()), ..all() },
        Filter { run_id: Some("r2".into()), ..all() },
        Filter { run_id: Some("r1".into()), attempt: Some(1), ..all() },
        Filter { owner: Some("alice".into()), ..all() },
        Filter { until_us: Some(today - DAY_US), ..all() },
        Filter { since_us: Some(today + 2 * DAY_US), ..all() },
    ] {
        assert_eq!(ledger.unsettled(&filter).await, [], "{filter:?}");
    }
}

#[tokio::test]
async fn a_file_of_no_known_account_concerns_all_accounts() {
    let ledger = TestLedger::new();
    let bytes = file(&key("other.0"), &[priced("1")]);
    ledger.ingest(&key("r1.0"), &bytes, Writer::Gone).await.expect("the alteration is recorded");
    for account in ["acct-1", "acct-2"] {
        let found = ledger.unsettled(&Filter { account: Some(account.into()), ..Filter::default() }).await;
        assert_eq!(found.iter().map(|one| one.run.as_str()).collect::<Vec<_>>(), ["r1.0"], "{account}");
    }
}

#[tokio::test]
async fn a_run_under_way_makes_an_empty_sum_unknown() {
    let ledger = TestLedger::new();
    ledger.begin_run(&key("r1.0"), "acct-1").await;
    for filter in selections("r1", "acct-1") {
        let usage = ledger.store.usage(GroupBy::Run, filter.clone()).await.expect("it is readable");
        assert_eq!(usage.unsettled, [Unsettled { run: "r1.0".into(), reason: "it is under way".into() }], "{filter:?}");
        assert_eq!((usage.total.calls, usage.total.nano_usd), (0, None), "{filter:?}");
        assert_eq!(ledger.unsettled(&filter).await.len(), 1);
    }
    // Its receipts may arrive at any later time.
    let later = Filter { since_us: Some(now_us() + 2 * DAY_US), ..Filter::default() };
    assert_eq!(ledger.unsettled(&later).await.len(), 1);
    let earlier = Filter { until_us: Some(now_us() - 2 * DAY_US), ..Filter::default() };
    assert_eq!(ledger.unsettled(&earlier).await, []);
}

#[tokio::test]
async fn a_late_entry_of_unknown_cost_is_unsettled() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    ledger.ingest(&run, &file(&run, &[unpriced(NullReason::NoCost)]), Writer::Gone).await.expect("it is new");
    let earlier = format!("arrived_us = arrived_us - {}", 3 * DAY_US);
    ledger.sql(&format!("DROP TRIGGER receipts_stay; UPDATE receipts SET {earlier}")).expect("nothing protects it");
    let since_yesterday = Filter { since_us: Some(now_us() - DAY_US), ..Filter::default() };

    let found = ledger.unsettled(&since_yesterday).await;

    let reason = "the cost of 1 of its calls is not known".to_owned();
    assert_eq!(found, [Unsettled { run: "r1.0".into(), reason }]);
    // The call itself counts in the time in which it arrived.
    let usage = ledger.store.usage(GroupBy::Run, since_yesterday).await.expect("it is readable");
    assert_eq!((usage.total.calls, usage.total.open), (0, 0));
}
