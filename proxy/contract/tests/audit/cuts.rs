//! Files that end anywhere: each prefix verifies or reports its open calls, and each can be continued.

use proptest::prelude::*;
use serde_json::Value;
use sluice_contract::record::CallResult;
use sluice_contract::recovery::{AuditOwner, Unusable, plan};
use sluice_contract::{Hash, TrustAnchors, Verdict, verify};

use crate::build::{File, key, public};
use crate::golden::files;

const OWNER: AuditOwner<'_> = AuditOwner { run_id: "run-1", attempt: 0, billing_account_id: "acct-1" };

/// Returns the calls without an outcome in complete lines, without the crate's reader.
fn open_calls(bytes: &[u8]) -> Vec<String> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut open = Vec::new();
    for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
        let line: Value = serde_json::from_slice(line).expect("JSON");
        let id = line["call_id"].as_str().unwrap_or_default().to_owned();
        match line["kind"].as_str() {
            Some("intent") => open.push(id),
            Some("outcome") => open.retain(|call| *call != id),
            _ => {}
        }
    }
    open
}

fn assert_prefix(bytes: &[u8], cut: usize) {
    let prefix = &bytes[..cut];
    let whole = prefix.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    match verify(prefix, &TrustAnchors { keys: &[public()], seen: &[] }) {
        Verdict::Tampered(fault) => panic!("cut at {cut}: {fault}"),
        Verdict::Complete(report) => assert!(report.closed && open_calls(prefix).is_empty(), "cut at {cut}"),
        Verdict::Incomplete(report) => {
            assert_eq!(report.open_calls, open_calls(prefix), "cut at {cut}");
            assert_eq!(report.torn, (cut - whole) as u64, "cut at {cut}");
            assert_eq!(report.lines, prefix.iter().filter(|byte| **byte == b'\n').count() as u64, "cut at {cut}");
        }
    }
}

#[test]
fn every_prefix_of_a_golden_file_is_not_tampered() {
    for (_, file, _) in files().into_iter().filter(|(name, ..)| *name != "unsigned") {
        (0..=file.bytes.len()).for_each(|cut| assert_prefix(&file.bytes, cut));
    }
}

#[test]
fn every_prefix_of_a_golden_file_can_go_on() {
    for (name, file, _) in files() {
        for cut in 0..=file.bytes.len() {
            let prefix = &file.bytes[..cut];
            let whole = prefix.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let closed = String::from_utf8_lossy(&prefix[..whole]).contains("\"kind\":\"close\"");
            match plan(prefix, b"", &OWNER) {
                Err(Unusable::Closed) => assert!(closed, "{name} cut at {cut}"),
                Err(error) => panic!("{name} cut at {cut}: {error}"),
                Ok(plan) => {
                    let lines = prefix.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
                    let last = lines.clone().next_back().map_or(Hash::ZERO, Hash::of);
                    assert!(!closed, "{name} cut at {cut}");
                    assert_eq!((plan.keep, plan.torn), (whole as u64, (cut - whole) as u64), "{name} cut at {cut}");
                    assert_eq!(plan.sha256, Hash::of(&prefix[whole..]), "{name} cut at {cut}");
                    assert_eq!((plan.chain.seq, plan.chain.prev), (lines.count() as u64, last), "{name} cut at {cut}");
                    let open: Vec<_> = plan.log.open_ids().collect();
                    assert_eq!(open, open_calls(prefix), "{name} cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn bytes_cut_off_before_their_record_are_known() {
    let file = File::opened().intent(false);
    let plan = plan(&file.bytes, b"torn", &OWNER).expect("a plan");
    assert_eq!((plan.keep, plan.torn, plan.sha256), (file.bytes.len() as u64, 4, Hash::of(b"torn")));
}

#[test]
fn only_the_last_line_is_ever_repaired() {
    let file = File::opened().intent(false).outcome(CallResult::Ok).torn();
    for at in 0..file.bytes.len() - 101 {
        let mut bytes = file.bytes.clone();
        bytes[at] ^= 4;
        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
        match plan(&bytes, b"", &OWNER) {
            // The last whole line has no successor that vouches for it.
            Ok(_) | Err(Unusable::OtherRun { .. }) => assert_eq!(line, 3, "byte {at}"),
            // A flip in an earlier line shows there, or where the next one disagrees.
            Err(Unusable::Damaged(fault)) => assert!([line, line + 1].contains(&fault.line), "byte {at}: {fault}"),
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
}

#[test]
fn anothers_file_is_left_alone() {
    let file = File::opened();
    let others = [
        AuditOwner { run_id: "run-2", ..OWNER },
        AuditOwner { attempt: 1, ..OWNER },
        AuditOwner { billing_account_id: "acct-2", ..OWNER },
    ];
    for other in others {
        let found = plan(&file.bytes, b"", &other).err();
        let billing_account_id = "acct-1".to_owned();
        assert_eq!(found, Some(Unusable::OtherRun { run_id: "run-1".to_owned(), attempt: 0, billing_account_id }));
    }
}

#[test]
fn a_foreign_file_is_left_alone() {
    for text in ["x", "{}", "{\"attempt\":1", "-----BEGIN", "\0\0\0"] {
        assert_eq!(plan(text.as_bytes(), b"", &OWNER).err(), Some(Unusable::NotAnAuditFile), "{text}");
    }
    for text in ["x\n", "{}\n", "\n"] {
        assert!(matches!(plan(text.as_bytes(), b"", &OWNER), Err(Unusable::Damaged(_))), "{text}");
    }
    assert!(plan(b"{\"att", b"", &OWNER).is_ok() && plan(b"", b"", &OWNER).is_ok());
}

/// Possible next steps in a run.
#[derive(Debug, Clone)]
enum Step {
    Intent(bool),
    Outcome(CallResult),
    Refused,
    Restart,
    TornRestart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<bool>().prop_map(Step::Intent),
        prop_oneof![Just(CallResult::Ok), Just(CallResult::Unknown), Just(CallResult::ClientAbort)]
            .prop_map(Step::Outcome),
        Just(Step::Refused),
        Just(Step::Restart),
        Just(Step::TornRestart),
    ];
    prop::collection::vec(step, 0..24)
}

fn file(steps: &[Step]) -> File {
    steps.iter().fold(File::opened(), |file, step| match step {
        Step::Intent(stream) => file.intent(*stream),
        Step::Outcome(result) if file.has_open() => file.outcome(*result),
        Step::Outcome(_) | Step::Refused => file.refused(),
        Step::Restart => file.restarted(),
        Step::TornRestart => file.torn().restarted(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_run_verifies_at_any_cut(steps in steps(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 20)) {
        let file = file(&steps).closed(Some(&key()));
        for cut in cuts {
            assert_prefix(&file.bytes, cut.index(file.bytes.len() + 1));
        }
        let verdict = verify(&file.bytes, &TrustAnchors { keys: &[public()], seen: &[] });
        let whole = open_calls(&file.bytes).is_empty() && !String::from_utf8_lossy(&file.bytes).contains("recovered");
        prop_assert_eq!(verdict.exit_code(), if whole { 0 } else { 3 }, "{}", verdict);
    }
}
