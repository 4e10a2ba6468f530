//! Properties of the join for arbitrary receipts and rows.

use proptest::prelude::*;

use super::*;

fn statuses() -> impl Strategy<Value = ReceiptInQuestion> {
    prop_oneof![
        (0i64..20_000).prop_map(|nanos| known(|e| e.nano_usd = Some(nanos))),
        Just(open(ReceiptStatus::PendingCost)),
        Just(unknown()),
        Just(open(ReceiptStatus::Voided)),
        prop_oneof![Just(None), (200u16..600).prop_map(Some)].prop_map(failed),
    ]
}

fn made_rows() -> impl Strategy<Value = SpendRow> {
    let named = (0usize..12, any::<bool>(), any::<bool>(), any::<bool>());
    (named, 0i64..3, 8u64..11, any::<(bool, bool)>(), 0usize..6).prop_map(
        |((call, by_ours, by_litellm, retried), money, input, (failed, cached), id)| SpendRow {
            request_id: format!("row-{id}-{call}"),
            sluice_call_id: by_ours.then(|| format!("c{call}")),
            litellm_call_id: by_litellm.then(|| format!("l{call}{}", if retried { "-attempt-0" } else { "" })),
            nanos: money * 5400,
            spend: format!("{}e-09", money * 5400),
            input,
            is_cache_hit: cached,
            is_failure: failed,
            ..row()
        },
    )
}

proptest! {
    /// For all contents of both sides: each receipt has one finding besides duplicates, each row is in one finding, and after
    /// all permitted settlements nothing is left to do.
    #[test]
    fn each_row_counts_once_and_repetition_changes_nothing(
        known in prop::collection::vec(statuses(), 0..8),
        rows in prop::collection::btree_map("[a-f]", made_rows(), 0..10),
        correct in any::<bool>(),
    ) {
        let known: Vec<_> = known.into_iter().enumerate().map(|(at, mut known)| {
            known.receipt.source_reference = format!("r1/0/c{at}");
            known.receipt.call_id = format!("c{at}");
            known.receipt.litellm_call_id = Some(format!("l{at}"));
            known.receipt.response_id = None;
            for entry in &mut known.receipt.entries {
                entry.litellm_call_id = Some(format!("l{at}"));
                entry.response_id = None;
            }
            known
        }).collect();
        let rows: Vec<_> = rows.into_iter().map(|(name, row)| SpendRow { request_id: format!("{}-{name}", row.request_id), ..row }).collect();
        let input = input(known.clone(), rows.clone());
        let findings = join(&input);

        let mut named: Vec<_> = findings.iter().flat_map(|finding| finding.request_ids.clone()).collect();
        named.sort();
        let mut there: Vec<_> = rows.iter().map(|row| row.request_id.clone()).collect();
        there.sort();
        prop_assert_eq!(named, there);
        let receipts = findings.iter().filter(|finding| finding.ledger.is_some()).count();
        prop_assert_eq!(receipts, known.len());
        let money: i128 = findings.iter().filter_map(|finding| finding.spend_log.as_ref()?.nano_usd).sum();
        prop_assert_eq!(money, rows.iter().map(|row| i128::from(row.nanos)).sum::<i128>());

        // As many rounds of posting as a reconciliation has.
        let (mut settled, mut findings) = (known, findings);
        for _ in 0..crate::reconcile::ROUNDS {
            for finding in &findings {
                let may = match &finding.remedy {
                    Some(Remedy::Settle(settlement)) => Some(settlement),
                    Some(Remedy::Correct(settlement)) if correct => Some(settlement),
                    _ => None,
                };
                if let Some(settlement) = may {
                    let at = settled.iter().position(|known| known.receipt.source_reference == settlement.receipt).expect("it is known");
                    settled[at] = after(settled[at].clone(), settlement, "2026-11-20");
                }
            }
            findings = join(&JoinInput { receipts: settled.clone(), ..input.clone() });
        }
        for finding in &findings {
            prop_assert!(!matches!(finding.remedy, Some(Remedy::Settle(_))), "{:?}", finding);
            if correct {
                prop_assert!(finding.remedy.is_none(), "{:?}", finding);
            }
        }
    }
}
