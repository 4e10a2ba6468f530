use sluice_contract::Hash;
use sluice_state::ledger::{BookedEntry, BookedTokens, PriceSource, ReceiptStatus, Settlement};

use super::*;

const NOW: i64 = 1_795_203_278_000_000;
/// Long ago, compared with the delay of LiteLLM's rows.
const OLD: i64 = NOW - 10 * GRACE_US;

mod properties;
mod retries;
mod settlement;
mod unreadable;

fn usage(input: u64, output: u64) -> Usage {
    Usage { input: Some(input), output: Some(output), total: Some(input + output), ..Usage::default() }
}

fn posting(status: ReceiptStatus) -> BookedEntry {
    BookedEntry {
        id: 1,
        source_system: "sluice-audit".into(),
        source_reference: "r1/0/c1#outcome".into(),
        payload_hash: Hash::ZERO.to_string(),
        status,
        reverses: None,
        result: Some("ok".into()),
        end: Some("complete".into()),
        http_status: Some(200),
        litellm_call_id: Some("l1".into()),
        response_id: Some("resp-1".into()),
        model_served: None,
        tokens: usage(10, 5).into(),
        cost_usd: None,
        nano_usd: None,
        price_source: "none".into(),
        null_reason: None,
        period: "2026-11-20".into(),
    }
}

/// A receipt with the state after one entry.
fn known(edit: impl FnOnce(&mut BookedEntry)) -> ReceiptInQuestion {
    let mut entry = posting(ReceiptStatus::Posted);
    (entry.nano_usd, entry.cost_usd) = (Some(5400), Some("0.0000054".into()));
    edit(&mut entry);
    let mut receipt = BookedReceipt {
        source_reference: "r1/0/c1".into(),
        run_id: "r1".into(),
        call_id: "c1".into(),
        account: "acct-1".into(),
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        period: "2026-11-20".into(),
        ..BookedReceipt::default()
    };
    receipt.add_entry(entry);
    ReceiptInQuestion { receipt, origin_day: "2026-11-20".into(), heard_us: OLD }
}

fn open(status: ReceiptStatus) -> ReceiptInQuestion {
    known(|entry| (entry.status, entry.nano_usd, entry.cost_usd) = (status, None, None))
}

/// A call whose answer had this status, without tokens or a cost.
fn failed(status: Option<u16>) -> ReceiptInQuestion {
    known(|entry| {
        (entry.status, entry.nano_usd, entry.cost_usd, entry.http_status, entry.tokens) =
            (ReceiptStatus::PendingCost, None, None, status, BookedTokens::default());
        entry.result = Some("upstream_error".into());
    })
}

/// Row that LiteLLM writes about a call that failed there.
fn failure_row() -> SpendRow {
    SpendRow { is_failure: true, nanos: 0, spend: "0".into(), input: 0, output: 0, ..row() }
}

fn unknown() -> ReceiptInQuestion {
    known(|entry| {
        *entry = BookedEntry {
            tokens: BookedTokens::default(),
            end: None,
            result: None,
            http_status: None,
            ..posting(ReceiptStatus::Unknown)
        };
        (entry.litellm_call_id, entry.response_id) = (None, None);
    })
}

fn row() -> SpendRow {
    SpendRow {
        request_id: "resp-1".into(),
        sluice_call_id: Some("c1".into()),
        run: "r1.0".parse().ok(),
        litellm_call_id: Some("l1".into()),
        account: "acct-1".into(),
        spend: "5.4e-06".into(),
        nanos: 5400,
        input: 10,
        output: 5,
        model: None,
        is_cache_hit: false,
        is_failure: false,
        start_us: OLD,
        end_us: OLD,
    }
}

fn input(known: Vec<ReceiptInQuestion>, rows: Vec<SpendRow>) -> JoinInput {
    JoinInput { receipts: known, rows, now_us: NOW, row_scope: RowScope::Span(0, NOW), ..JoinInput::default() }
}

fn classes(known: Vec<ReceiptInQuestion>, rows: Vec<SpendRow>) -> Vec<FindingClass> {
    join(&input(known, rows)).into_iter().map(|finding| finding.class).collect()
}

/// Result of a settlement for a receipt.
fn after(mut known: ReceiptInQuestion, settlement: &Settlement, period: &str) -> ReceiptInQuestion {
    // As in the database: the observed values of the call stay.
    let seen = known.receipt.clone();
    for (number, entry) in settlement.replaces.iter().enumerate() {
        let taken = known.receipt.entries.iter().find(|one| one.id == *entry).expect("it is there").clone();
        let tokens = taken.tokens;
        let minus = |number: Option<i64>| number.map(|number| -number);
        known.receipt.add_entry(BookedEntry {
            id: 100 + i64::try_from(number).expect("few"),
            status: ReceiptStatus::Reversed,
            reverses: Some(*entry),
            nano_usd: minus(taken.nano_usd),
            tokens: BookedTokens {
                input: minus(tokens.input),
                output: minus(tokens.output),
                total: minus(tokens.total),
                ..tokens
            },
            ..taken
        });
    }
    let id = 199 + i64::try_from(known.receipt.entries.len()).expect("few");
    known.receipt.add_entry(BookedEntry {
        id,
        source_system: "litellm-spend".into(),
        source_reference: settlement.reference.clone(),
        payload_hash: settlement.hash.to_string(),
        status: ReceiptStatus::Settled,
        tokens: settlement.usage.map(BookedTokens::from).unwrap_or_default(),
        nano_usd: settlement.nano_usd,
        cost_usd: settlement.cost_usd.clone(),
        price_source: settlement.price_source.as_str().to_owned(),
        period: period.to_owned(),
        end: seen.end,
        http_status: seen.http_status,
        litellm_call_id: seen.litellm_call_id,
        response_id: seen.response_id,
        ..posting(ReceiptStatus::Settled)
    });
    known
}

fn remedy(finding: &Finding) -> &Settlement {
    match finding.remedy.as_ref().expect("something can be done") {
        Remedy::Settle(settlement) | Remedy::Correct(settlement) => settlement,
    }
}

#[test]
fn each_class_has_a_reason() {
    let with = |edit: fn(&mut SpendRow)| {
        let mut row = row();
        edit(&mut row);
        row
    };
    let voided = || open(ReceiptStatus::Voided);
    let error = || failed(Some(400));
    let models = || {
        let mut known = unknown();
        (known.receipt.method, known.receipt.path) = ("GET".into(), "/v1/models".into());
        known
    };
    let young = |mut known: ReceiptInQuestion| {
        known.heard_us = NOW - GRACE_US + 1;
        known
    };
    let pending = || {
        let mut known = known(|_| ());
        known.receipt.entries.clear();
        (known.receipt.status, known.receipt.nano_usd, known.receipt.usage) = (ReceiptStatus::Pending, None, None);
        known
    };
    let rows: Vec<(&str, ReceiptInQuestion, Vec<SpendRow>, FindingClass)> = vec![
        ("the same", known(|_| ()), vec![row()], FindingClass::Matched),
        ("one nano-USD more", known(|e| e.nano_usd = Some(5401)), vec![row()], FindingClass::Matched),
        ("two nano-USD more", known(|e| e.nano_usd = Some(5402)), vec![row()], FindingClass::AmountDiffers),
        ("two nano-USD less", known(|e| e.nano_usd = Some(5398)), vec![row()], FindingClass::AmountDiffers),
        ("more input there", known(|_| ()), vec![with(|row| row.input = 11)], FindingClass::TokensDiffer),
        ("less output there", known(|_| ()), vec![with(|row| row.output = 4)], FindingClass::TokensDiffer),
        ("no cost here", open(ReceiptStatus::PendingCost), vec![row()], FindingClass::Settled),
        (
            "no cost here, other tokens",
            open(ReceiptStatus::PendingCost),
            vec![with(|row| row.input = 7)],
            FindingClass::TokensDiffer,
        ),
        (
            "cut, other tokens",
            known(|e| {
                *e = posting(ReceiptStatus::PendingCost);
                e.end = Some("cut_by_limit".into());
            }),
            vec![with(|row| row.output = 1)],
            FindingClass::Settled,
        ),
        ("a failure", error(), vec![failure_row()], FindingClass::Settled),
        ("a failure without a row", error(), vec![], FindingClass::NotBilled),
        ("end not seen", unknown(), vec![row()], FindingClass::UnknownSettled),
        ("end not seen, no row", unknown(), vec![], FindingClass::MissingThere),
        ("end not seen just now", young(unknown()), vec![], FindingClass::NotYet),
        ("no row", known(|_| ()), vec![], FindingClass::MissingThere),
        ("no row and no cost", open(ReceiptStatus::PendingCost), vec![], FindingClass::MissingThere),
        ("no row yet", young(known(|_| ())), vec![], FindingClass::NotYet),
        ("not sent", voided(), vec![], FindingClass::NotBilled),
        (
            "not sent, and a row without money",
            voided(),
            vec![with(|row| (row.nanos, row.spend) = (0, "0".into()))],
            FindingClass::NotBilled,
        ),
        ("not sent, and a row with money", voided(), vec![row()], FindingClass::AmountDiffers),
        ("a list of models", models(), vec![], FindingClass::NotBilled),
        ("under way", pending(), vec![], FindingClass::NotYet),
        ("under way, with a row", pending(), vec![row()], FindingClass::NotYet),
        (
            "by LiteLLM's id",
            known(|_| ()),
            vec![with(|row| (row.sluice_call_id, row.request_id) = (None, "x".into()))],
            FindingClass::Matched,
        ),
        (
            "by our id as LiteLLM's",
            known(|_| ()),
            vec![with(|row| (row.sluice_call_id, row.litellm_call_id) = (None, Some("c1".into())))],
            FindingClass::Matched,
        ),
        (
            "by the answer's id",
            known(|_| ()),
            vec![with(|row| (row.sluice_call_id, row.litellm_call_id) = (None, None))],
            FindingClass::Matched,
        ),
    ];
    for (what, known, rows, class) in rows {
        let findings = join(&input(vec![known], rows));
        assert_eq!(findings.iter().map(|finding| finding.class).collect::<Vec<_>>(), [class], "{what}: {findings:?}");
        assert!(!findings[0].reason.is_empty(), "{what}");
    }
}

#[test]
fn cached_tokens_of_the_messages_api_are_input() {
    let mut known = known(|_| ());
    known.receipt.usage = Some(Usage {
        input: Some(10),
        cached_input: Some(90),
        cache_write: Some(7),
        output: Some(5),
        ..Usage::default()
    });
    assert_eq!(classes(vec![known], vec![SpendRow { input: 107, ..row() }]), [FindingClass::Matched]);
}

#[test]
fn an_old_row_without_a_receipt_is_a_mismatch() {
    let mut input = input(vec![], vec![row()]);
    let class = |input: &JoinInput| join(input).first().map(|finding| finding.class);
    assert_eq!(class(&input), Some(FindingClass::MissingHere));
    input.rows[0].end_us = NOW - 1;
    assert_eq!(class(&input), Some(FindingClass::NotYet));
    input.rows[0].end_us = OLD;
    input.under_way = ["r1.0".parse().expect("a key")].into();
    assert_eq!(class(&input), Some(FindingClass::NotYet));
    // A call that is known, and is not in question.
    input.elsewhere = [("c1".to_owned(), "acct-1".to_owned())].into();
    assert_eq!(class(&input), None);
    // A call of another run: a row that names it was not made by this run.
    input.elsewhere = [("c1".to_owned(), "acct-2".to_owned())].into();
    assert_eq!(class(&input), Some(FindingClass::MissingHere));
    input.elsewhere.clear();
    input.under_way.clear();
    input.row_scope = RowScope::Run("r2".into(), None);
    assert_eq!(class(&input), None);
    input.row_scope = RowScope::Run("r1".into(), Some(1));
    assert_eq!(class(&input), None);
    input.row_scope = RowScope::Run("r1".into(), Some(0));
    assert_eq!(class(&input), Some(FindingClass::MissingHere));
    input.row_scope = RowScope::Span(OLD + 1, NOW);
    assert_eq!(class(&input), None);
    input.row_scope = RowScope::None;
    assert_eq!(class(&input), None);
    // LiteLLM's own refusal of something that it could not read.
    input.row_scope = RowScope::Span(0, NOW);
    (input.rows[0].sluice_call_id, input.rows[0].is_failure, input.rows[0].nanos) = (None, true, 0);
    assert_eq!(class(&input), Some(FindingClass::NotBilled));
    input.rows[0].is_failure = false;
    assert_eq!(class(&input), Some(FindingClass::MissingHere));
}

#[test]
fn a_row_of_another_account_does_not_match() {
    let row = SpendRow { account: "acct-2".into(), ..row() };
    let findings = join(&input(vec![known(|_| ())], vec![row]));
    let found: Vec<_> = findings.iter().map(|finding| (finding.class, finding.account.as_str())).collect();
    assert_eq!(found, [(FindingClass::MissingThere, "acct-1"), (FindingClass::MissingHere, "acct-2")]);
    assert_eq!(findings[1].reason, "it names a call that acct-1 pays");
}

#[test]
fn a_second_row_with_a_cost_is_a_duplicate() {
    let second = SpendRow { request_id: "again".into(), nanos: 7000, spend: "7e-06".into(), ..row() };
    let findings = join(&input(vec![known(|_| ())], vec![second, row()]));
    let found: Vec<_> = findings.iter().map(|finding| (finding.class, &finding.request_ids[..])).collect();
    assert_eq!(
        found,
        [(FindingClass::Matched, &["resp-1".to_owned()][..]), (FindingClass::Duplicate, &["again".to_owned()][..])]
    );
    let failed = SpendRow { request_id: "failed".into(), nanos: 0, is_failure: true, start_us: 0, ..row() };
    let findings = join(&input(vec![open(ReceiptStatus::PendingCost)], vec![failed.clone(), row()]));
    assert_eq!(findings.len(), 1);
    assert_eq!(
        (findings[0].class, &findings[0].request_ids[..]),
        (FindingClass::Settled, &["resp-1".to_owned(), "failed".to_owned()][..])
    );

    // A settled receipt keeps the row that settled it.
    let first = remedy(&findings[0]).clone();
    let known = after(open(ReceiptStatus::PendingCost), &first, "2026-11-20");
    let earlier = SpendRow { start_us: 1, request_id: "again".into(), ..row() };
    let findings = join(&input(vec![known], vec![earlier, row(), failed]));
    let found: Vec<_> = findings.iter().map(|finding| finding.class).collect();
    assert_eq!(found, [FindingClass::Settled, FindingClass::Duplicate]);
    assert_eq!(findings[1].request_ids, ["again"]);
}

#[test]
fn amounts_that_a_float_cannot_distinguish_are_the_same() {
    let million = 1_000_000_000_000_000;
    for (here, there, class) in [
        (120 * million, 120 * million - 60, FindingClass::Matched),
        (120 * million, 120 * million - 120, FindingClass::Matched),
        (120 * million, 120 * million - 121, FindingClass::AmountDiffers),
        (million, million - 1, FindingClass::Matched),
        (million, million - 2, FindingClass::AmountDiffers),
        (i64::MAX, 0, FindingClass::AmountDiffers),
    ] {
        let row = SpendRow { nanos: there, ..row() };
        assert_eq!(classes(vec![known(|e| e.nano_usd = Some(here))], vec![row]), [class], "{here} {there}");
    }
}
