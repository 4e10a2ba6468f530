//! Costs that are compared with the cap of their run, which a person may raise.

use sluice_contract::record::{Control, ControlValues, OptionalText};

use super::*;
use crate::live_usage::LiveUsageReader;

impl Log {
    /// A person raises the cap in dollars.
    fn raise(&mut self, to: &str) {
        let (key, chain) = (self.key.clone(), self.chain);
        let cap = |usd: &str| ControlValues {
            max_cost_usd: Some(OptionalText(usd.to_owned().into())),
            ..ControlValues::default()
        };
        self.push(&line(&Control {
            attempt: key.attempt,
            by: None,
            from: cap("0.5"),
            kind: Control::KIND.into(),
            prev: chain.prev.to_string().into(),
            reason: None,
            run_id: key.run_id.as_str().into(),
            seq: chain.seq,
            to: cap(to),
            ts: TS.into(),
            v: SCHEMA,
            what: "caps".into(),
        }));
    }
}

/// Moment at which the cap is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RaiseTime {
    BeforeTheCall,
    DuringTheCall,
}

/// Returns the file of a run with a cap of $0.5 that is raised, and with one call of $15.
fn raised_file(run: &RunKey, to: &str, at: RaiseTime) -> Vec<u8> {
    let mut log = Log::capped(run, "0.5");
    if at == RaiseTime::BeforeTheCall {
        log.raise(to);
    }
    log.intent(1, "m");
    if at == RaiseTime::DuringTheCall {
        log.raise(to);
    }
    log.outcome(1, &priced("15"));
    log.close()
}

#[tokio::test]
async fn a_raised_cap_is_the_measure_of_plausibility() {
    let run = key("r1.0");
    for (to, status, known) in [("200", "posted", Some(15_000_000_000)), ("1.4", "pending_cost", None)] {
        for at in [RaiseTime::BeforeTheCall, RaiseTime::DuringTheCall] {
            let ledger = TestLedger::new();
            let bytes = raised_file(&run, to, at);
            ledger.put(&run, &bytes);
            ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");

            let found = ledger.all().await;
            assert_eq!((statuses(&found), total(&found.receipts).nano_usd), (vec![status], known), "{to} {at:?}");
            // The report of the run, and its live sums, have the same cost.
            let tally = crate::receipt::tally(&reading(&run, &bytes, Writer::Gone));
            assert_eq!(tally.receipts[0].status.as_str(), status, "{to} {at:?}");
            assert_eq!(tally.implausible.is_empty(), known.is_some(), "{to} {at:?}");
            // $15 are within a cap of $200, and not within one of $1.40, whether they are posted or not.
            let over: Vec<String> = tally.over_caps.iter().map(ToString::to_string).collect();
            let expected = format!("$15 spent, and --max-cost-usd is ${to}");
            assert_eq!(over, if to == "200" { vec![] } else { vec![expected] }, "{at:?}");
            let mut live = LiveUsageReader::default();
            assert_eq!(live.read_new(&ledger.path(&run)).expect("it is ours").nano_usd, known, "{to} {at:?}");
        }
    }
}

#[tokio::test]
async fn a_cap_that_was_not_raised_stays_the_measure() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let mut log = Log::capped(&run, "0.5");
    log.intent(1, "m");
    log.outcome(1, &priced("15"));
    let bytes = log.close();

    ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");

    let found = ledger.all().await;
    assert_eq!(statuses(&found), ["pending_cost"]);
    assert_eq!(found.receipts[0].null_reason.as_deref(), Some("implausible"));
    let advice = crate::receipt::tally(&reading(&run, &bytes, Writer::Gone)).implausible[0].describe();
    assert!(advice.ends_with("with sluice reconcile --run RUN"), "{advice}");
}
