use proptest::prelude::*;
use sluice_contract::Hash;
use sluice_state::ledger::{BookedEntry, PriceSource, ReceiptStatus, Settlement, Tokens};

use super::*;

const NOW: i64 = 1_795_203_278_000_000;
/// Long ago, as LiteLLM's rows go.
const OLD: i64 = NOW - 10 * GRACE_US;

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

/// A receipt as it stands with one entry.
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
            (ReceiptStatus::PendingCost, None, None, status, Tokens::default());
        entry.result = Some("upstream_error".into());
    })
}

/// What LiteLLM writes about a call that failed there.
fn failure_row() -> SpendRow {
    SpendRow { is_failure: true, nanos: 0, spend: "0".into(), input: 0, output: 0, ..row() }
}

fn unknown() -> ReceiptInQuestion {
    known(|entry| {
        *entry = BookedEntry {
            tokens: Tokens::default(),
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

/// What a settlement makes of a receipt.
fn after(mut known: ReceiptInQuestion, settlement: &Settlement, period: &str) -> ReceiptInQuestion {
    // As the database does it: what was seen of the call stays.
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
            tokens: Tokens {
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
        tokens: settlement.usage.map(Tokens::from).unwrap_or_default(),
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

    // What it was settled by, it stands by.
    let first = remedy(&findings[0]).clone();
    let known = after(open(ReceiptStatus::PendingCost), &first, "2026-11-20");
    let earlier = SpendRow { start_us: 1, request_id: "again".into(), ..row() };
    let findings = join(&input(vec![known], vec![earlier, row(), failed]));
    let found: Vec<_> = findings.iter().map(|finding| finding.class).collect();
    assert_eq!(found, [FindingClass::Settled, FindingClass::Duplicate]);
    assert_eq!(findings[1].request_ids, ["again"]);
}

#[test]
fn a_settled_receipt_keeps_its_class_and_needs_nothing() {
    let cached =
        SpendRow { is_cache_hit: true, nanos: 0, spend: "0".into(), request_id: "resp-1_cache_hit17".into(), ..row() };
    for (known, row, period, class) in [
        (open(ReceiptStatus::PendingCost), row(), "2026-11-20", FindingClass::Settled),
        (open(ReceiptStatus::PendingCost), row(), "2026-11-21", FindingClass::Late),
        (unknown(), row(), "2026-11-20", FindingClass::UnknownSettled),
        (unknown(), row(), "2026-11-21", FindingClass::UnknownSettled),
        (open(ReceiptStatus::PendingCost), cached.clone(), "2026-11-20", FindingClass::CacheHit),
        (known(|e| e.nano_usd = Some(9999)), row(), "2026-11-20", FindingClass::Settled),
        (open(ReceiptStatus::PendingCost), SpendRow { input: 99, ..row() }, "2026-11-20", FindingClass::Settled),
    ] {
        let before = join(&input(vec![known.clone()], vec![row.clone()]));
        let settled = after(known, remedy(&before[0]), period);
        assert_eq!(settled.receipt.nano_usd, Some(row.nanos));
        assert_eq!(
            settled.receipt.usage.map(|usage| (usage.input, usage.output)),
            Some((Some(row.input), Some(row.output)))
        );
        let again = join(&input(vec![settled], vec![row]));
        assert_eq!((again[0].class, &again[0].remedy), (class, &None), "{again:?}");
    }
}

#[test]
fn a_call_that_a_cache_answered_costs_nothing() {
    let hit = SpendRow {
        is_cache_hit: true,
        nanos: 0,
        spend: "0.0".into(),
        request_id: "resp-1_cache_hit17".into(),
        ..row()
    };
    let in_band = || {
        known(|entry| {
            (entry.nano_usd, entry.cost_usd) = (Some(0), Some("0".into()));
            entry.price_source = sluice_state::ledger::CACHE_HIT.into();
        })
    };
    // The tokens of an answer from a cache are not billed: LiteLLM counts those of streams again.
    for row in [hit.clone(), SpendRow { input: 99, output: 1, ..hit.clone() }] {
        for (known, posts) in [
            (in_band(), false),
            (known(|_| ()), true),
            (open(ReceiptStatus::PendingCost), true),
            (unknown(), true),
            (failed(Some(429)), true),
        ] {
            let findings = join(&input(vec![known.clone()], vec![row.clone()]));
            assert_eq!(findings[0].class, FindingClass::CacheHit, "{:?}", known.receipt);
            assert_eq!(matches!(findings[0].remedy, Some(Remedy::Settle(_))), posts, "{findings:?}");
            assert!(!matches!(findings[0].remedy, Some(Remedy::Correct(_))));
            if posts {
                let settlement = remedy(&findings[0]);
                assert_eq!((settlement.nano_usd, settlement.price_source), (Some(0), PriceSource::CacheHit));
                assert_eq!(settlement.replaces.is_empty(), known.receipt.is_open());
                let again = join(&input(vec![after(known, settlement, "2026-11-20")], vec![row.clone()]));
                assert_eq!((again[0].class, &again[0].remedy), (FindingClass::CacheHit, &None), "{again:?}");
            }
        }
    }
    // Of a paid row and one of a cache, a receipt does not stand by the cheaper one.
    let other = SpendRow { nanos: 7000, spend: "7e-06".into(), ..row() };
    assert_eq!(
        classes(vec![known(|_| ())], vec![SpendRow { start_us: 0, ..hit.clone() }, other]),
        [FindingClass::AmountDiffers]
    );
    // What the sidecar took for a hit was none.
    assert_eq!(classes(vec![in_band()], vec![row()]), [FindingClass::AmountDiffers]);
    // A hit that LiteLLM charges is a call like any other.
    let charged = SpendRow { nanos: 7000, spend: "7e-06".into(), ..hit };
    assert_eq!(classes(vec![known(|_| ())], vec![charged]), [FindingClass::AmountDiffers]);
}

#[test]
fn earlier_attempts_of_a_call_belong_to_its_receipt() {
    // As LiteLLM writes them: with the sidecar's id, or without any of its metadata.
    let attempt = |number: u32, ours: bool| SpendRow {
        request_id: format!("c1-attempt-{number}"),
        sluice_call_id: ours.then(|| "c1".into()),
        run: None,
        litellm_call_id: Some(format!("c1-attempt-{number}")),
        nanos: 100,
        spend: "1e-07".into(),
        input: 3,
        output: 1,
        is_failure: true,
        ..row()
    };
    for start in [open(ReceiptStatus::PendingCost), unknown(), known(|_| ())] {
        let rows = vec![attempt(0, false), row(), attempt(1, true)];
        let first = join(&input(vec![start.clone()], rows.clone()));
        let of =
            |row: &str| first.iter().position(|f| f.request_ids == [row.to_owned()]).expect("each row has its own");
        assert_eq!((first.len(), of("resp-1")), (3, 0), "{first:?}");
        let mut settled = start.clone();
        for finding in first.iter().filter(|finding| finding.remedy.is_some()) {
            assert!(matches!(finding.remedy, Some(Remedy::Settle(_))), "{finding:?}");
            settled = after(settled, remedy(finding), "2026-11-20");
        }
        assert_eq!(settled.receipt.nano_usd, Some(5600));
        assert_eq!(settled.receipt.cost_usd.as_deref(), Some("0.0000056"));
        assert_ne!(settled.receipt.price_source.as_deref(), Some("spend_log_retry"));
        assert_eq!(settled.receipt.usage.and_then(|usage| usage.total), Some(23));

        let again = join(&input(vec![settled.clone()], rows));
        assert!(again.iter().all(|finding| finding.remedy.is_none() && !finding.class.is_mismatch()), "{again:?}");
        let sum = |side: fn(&Finding) -> Option<&SideAmounts>| -> i64 {
            again.iter().filter_map(|finding| side(finding)?.nano_usd).sum()
        };
        assert_eq!((sum(|f| f.ledger.as_ref()), sum(|f| f.spend_log.as_ref())), (5600, 5600));

        // Another price of the call itself takes back that alone.
        let dearer = SpendRow { nanos: 9000, spend: "9e-06".into(), ..row() };
        let changed = join(&input(vec![settled.clone()], vec![attempt(0, false), dearer, attempt(1, true)]));
        let corrected = after(settled, remedy(&changed[0]), "2026-11-20");
        assert_eq!(corrected.receipt.nano_usd, Some(9200));
    }
}

#[test]
fn an_earlier_attempt_waits_for_its_call() {
    let attempt = SpendRow {
        request_id: "x".into(),
        sluice_call_id: None,
        run: None,
        litellm_call_id: Some("c1-attempt-0".into()),
        is_failure: true,
        ..row()
    };
    // An open receipt holds what was reserved for it until its own row is there.
    let waits = join(&input(vec![open(ReceiptStatus::PendingCost)], vec![attempt.clone()]));
    assert_eq!(waits.iter().map(|f| f.class).collect::<Vec<_>>(), [FindingClass::MissingThere, FindingClass::NotYet]);
    assert!(waits.iter().all(|finding| finding.remedy.is_none()));
    // A free try is one more row of the call.
    let free = SpendRow { nanos: 0, spend: "0".into(), ..attempt.clone() };
    assert_eq!(classes(vec![known(|_| ())], vec![row(), free]), [FindingClass::Matched]);
    for (what, row) in [
        ("another account's", SpendRow { account: "acct-2".into(), ..attempt.clone() }),
        ("of an unknown call", SpendRow { litellm_call_id: Some("c9-attempt-0".into()), ..attempt.clone() }),
        ("no number", SpendRow { litellm_call_id: Some("c1-attempt-".into()), ..attempt.clone() }),
        ("a success", SpendRow { is_failure: false, ..attempt.clone() }),
    ] {
        let found = join(&input(vec![known(|_| ())], vec![row]));
        let found: Vec<_> = found.iter().map(|finding| finding.class).collect();
        assert_eq!(found, [FindingClass::MissingThere, FindingClass::MissingHere], "{what}");
    }
    // A call that is not in question has it all the same.
    let mut elsewhere = input(vec![], vec![attempt]);
    elsewhere.elsewhere = [("c1".to_owned(), "acct-1".to_owned())].into();
    assert_eq!(join(&elsewhere), []);
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

#[test]
fn a_difference_is_corrected_only_with_permission() {
    let findings = join(&input(vec![known(|e| e.nano_usd = Some(9000))], vec![row()]));
    let Some(Remedy::Correct(settlement)) = &findings[0].remedy else { panic!("{findings:?}") };
    let want = Settlement {
        receipt: "r1/0/c1".into(),
        reference: "r1/0/c1#resp-1".into(),
        hash: row().hash(),
        cost_usd: Some("5.4e-06".into()),
        nano_usd: Some(5400),
        price_source: PriceSource::SpendLog,
        usage: Some(usage(10, 5)),
        null_reason: None,
        litellm_call_id: Some("l1".into()),
        model_served: None,
        origin_us: OLD,
        replaces: vec![1],
        cause: Some("row resp-1 of the spend log: 9000 here, 5400 there, in nano-USD".into()),
    };
    assert_eq!(*settlement, want);
}

#[test]
fn a_row_that_changed_after_settlement_is_a_mismatch() {
    let before = join(&input(vec![open(ReceiptStatus::PendingCost)], vec![row()]));
    let settled = after(open(ReceiptStatus::PendingCost), remedy(&before[0]), "2026-11-20");
    let changed = SpendRow { nanos: 6000, spend: "6e-06".into(), ..row() };
    let findings = join(&input(vec![settled], vec![changed]));
    let Some(Remedy::Correct(settlement)) = &findings[0].remedy else { panic!("{findings:?}") };
    assert_eq!((findings[0].class, settlement.reference.as_str()), (FindingClass::AmountDiffers, "r1/0/c1#resp-1#1"));
    assert_eq!(settlement.replaces, [1, 200]);
}

#[test]
fn a_late_row_settles_a_receipt_without_cost() {
    let free = failed(Some(429));
    let before = join(&input(vec![free.clone()], vec![]));
    let free = after(free, remedy(&before[0]), "2026-11-20");
    assert_eq!(classes(vec![free.clone()], vec![]), [FindingClass::NotBilled]);
    let findings = join(&input(vec![free.clone()], vec![row()]));
    assert!(matches!(&findings[0].remedy, Some(Remedy::Settle(_))), "{findings:?}");
    assert_eq!(after(free, remedy(&findings[0]), "2026-11-20").receipt.nano_usd, Some(5400));
}

#[test]
fn a_failed_call_that_could_be_billed_stays_open() {
    let cut = |status| {
        let mut known = failed(status);
        known.receipt.end = Some("cut_by_upstream".into());
        known
    };
    let errors = [408, 409, 422, 499, 500, 502, 503, 504, 529].map(|status| failed(Some(status)));
    // An error event in a stream that began well, a stream that broke, and a call without an answer.
    for known in errors.into_iter().chain([failed(Some(200)), cut(Some(200)), failed(None), cut(None)]) {
        let findings = join(&input(vec![known.clone()], vec![]));
        assert_eq!(
            (findings[0].class, &findings[0].remedy),
            (FindingClass::MissingThere, &None),
            "{:?}",
            known.receipt
        );
        let way_out = "; if no row will come, sluice budget set acct-1 USD begins the budget anew";
        assert!(findings[0].reason.contains(way_out), "{}", findings[0].reason);

        // What LiteLLM says of it settles it, whenever it comes.
        for (row, source) in [(failure_row(), PriceSource::FailureRow), (row(), PriceSource::SpendLog)] {
            let settlement = remedy(&join(&input(vec![known.clone()], vec![row.clone()]))[0]).clone();
            assert_eq!((settlement.nano_usd, settlement.price_source), (Some(row.nanos), source));
            assert!(!after(known.clone(), &settlement, "2026-11-20").receipt.is_open());
        }
    }
    let young = ReceiptInQuestion { heard_us: NOW - GRACE_US + 1, ..failed(Some(500)) };
    assert_eq!(classes(vec![young], vec![]), [FindingClass::NotYet]);
}

#[test]
fn a_failed_call_without_a_bill_is_settled() {
    for (status, _) in sluice_contract::billing::NEVER_BILLED {
        let findings = join(&input(vec![failed(Some(status))], vec![]));
        let settlement = remedy(&findings[0]);
        assert_eq!((findings[0].class, settlement.nano_usd), (FindingClass::NotBilled, None), "{status}");
        assert_eq!(settlement.null_reason.as_deref(), Some("not_billed"));
    }
}

#[test]
fn a_receipt_settled_by_a_failure_names_it() {
    let settlement = remedy(&join(&input(vec![failed(Some(500))], vec![failure_row()]))[0]).clone();
    let known = after(failed(Some(500)), &settlement, "2026-11-20");
    assert_eq!(known.receipt.price_source.as_deref(), Some("spend_log_failure"));
    let again = join(&input(vec![known.clone()], vec![failure_row()]));
    assert_eq!((again[0].class, &again[0].remedy), (FindingClass::Settled, &None));
    assert_eq!(again[0].reason, "its cost is the spend log's; LiteLLM logged it as failed");
    // A row with money, after all, is reported.
    let paid = SpendRow { request_id: "late".into(), ..row() };
    assert_eq!(classes(vec![known], vec![failure_row(), paid]), [FindingClass::Settled, FindingClass::Duplicate]);
}

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
    /// Whatever both sides hold: each receipt has one finding that is no duplicate, each row is in one finding, and once
    /// all that may be done is done there is nothing left to do.
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
        let money: i64 = findings.iter().filter_map(|finding| finding.spend_log.as_ref()?.nano_usd).sum();
        prop_assert_eq!(money, rows.iter().map(|row| row.nanos).sum::<i64>());

        let mut settled = known;
        let mut rounds = vec![findings];
        for round in 0..2 {
        for finding in &rounds[round] {
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
            rounds.push(join(&JoinInput { receipts: settled.clone(), ..input.clone() }));
        }
        for finding in &rounds[2] {
            prop_assert!(!matches!(finding.remedy, Some(Remedy::Settle(_))), "{:?}", finding);
            if correct {
                prop_assert!(finding.remedy.is_none(), "{:?}", finding);
            }
        }
    }
}
