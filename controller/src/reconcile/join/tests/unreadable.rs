//! Rows that cannot be read.

use sluice_litellm::spend_log::row::page;

use super::*;

/// A row of call c1 of run r1 with a negative cost.
fn unreadable() -> UnreadableRow {
    let row = serde_json::json!({
        "request_id": "bad", "end_user": "acct-1", "spend": -1,
        "startTime": "2026-11-20T19:34:38.000+00:00", "endTime": "2026-11-20T19:34:39.000+00:00",
        "metadata": {"spend_logs_metadata": {"sluice_call_id": "c1", "run_id": "r1", "attempt": 0}},
    });
    let text = serde_json::json!({ "data": [row], "total": 1 }).to_string();
    page(&text, "acct-1").expect("it is a page").unreadable.remove(0)
}

#[test]
fn a_call_with_an_unreadable_row_is_not_settled() {
    for known in [open(ReceiptStatus::PendingCost), unknown(), failed(Some(400)), known(|_| ())] {
        for rows in [vec![], vec![row()]] {
            let names: Vec<_> =
                ["bad"].into_iter().chain(rows.iter().map(|row| row.request_id.as_str())).map(str::to_owned).collect();
            let input = JoinInput { unreadable: vec![unreadable()], ..input(vec![known.clone()], rows) };

            let findings = join(&input);

            assert_eq!(findings.len(), 1, "{findings:?}");
            let finding = &findings[0];
            assert_eq!((finding.class, &finding.request_ids), (FindingClass::UnreadableRow, &names));
            assert_eq!((&finding.remedy, finding.source_reference.as_deref()), (&None, Some("r1/0/c1")));
            assert!(finding.class.is_mismatch() && finding.ledger.is_some(), "{finding:?}");
            assert!(finding.reason.starts_with("row bad of the spend log cannot be read: spend is -1"), "{finding:?}");
        }
    }
}

#[test]
fn an_unreadable_row_leaves_other_calls_alone() {
    let mut other = open(ReceiptStatus::PendingCost);
    (other.receipt.call_id, other.receipt.source_reference) = ("c2".into(), "r1/0/c2".into());
    let its_row = SpendRow { sluice_call_id: Some("c2".into()), ..row() };
    let known = vec![open(ReceiptStatus::PendingCost), other];
    let findings = join(&JoinInput { unreadable: vec![unreadable()], ..input(known, vec![its_row]) });
    let found: Vec<_> = findings.iter().map(|finding| (finding.class, finding.remedy.is_some())).collect();
    assert_eq!(found, [(FindingClass::UnreadableRow, false), (FindingClass::Settled, true)]);
}

#[test]
fn an_unreadable_row_without_a_receipt_has_its_scope() {
    let mut input = JoinInput { unreadable: vec![unreadable()], ..input(vec![], vec![]) };
    let found = |input: &JoinInput| join(input).first().map(|finding| (finding.class, finding.run.clone()));
    let reported = Some((FindingClass::UnreadableRow, Some("r1.0".to_owned())));
    assert_eq!(found(&input), reported);
    input.row_scope = RowScope::Run("r1".into(), Some(0));
    assert_eq!(found(&input), reported);
    // The call of another account, and then one that is known and not in question.
    input.elsewhere = [("c1".to_owned(), "acct-2".to_owned())].into();
    assert_eq!(found(&input), reported);
    input.elsewhere = [("c1".to_owned(), "acct-1".to_owned())].into();
    assert_eq!(found(&input), None);
    input.elsewhere.clear();
    for scope in [RowScope::Run("r2".into(), None), RowScope::Span(0, NOW - 1), RowScope::None] {
        input.row_scope = scope;
        assert_eq!(found(&input), None, "{:?}", input.row_scope);
    }
}
