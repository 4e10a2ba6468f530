//! Golden files: what this build writes, and what every later build must read.

use std::path::PathBuf;

use sluice_contract::reader::lines;
use sluice_contract::record::{CallResult, ReleaseDecision};
use sluice_contract::verdict::Seal;
use sluice_contract::{AuditLog, Record, TrustAnchors, Verdict, verify};

use crate::build::{File, key, public};

pub(crate) fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A name, the file, and the exit code of a verifier that has the key.
pub(crate) fn files() -> Vec<(&'static str, File, u8)> {
    let (ok, left) = (CallResult::Ok, CallResult::ClientAbort);
    let begun = || File::opened().intent(false).refused().outcome(ok).intent(true).intent(true).outcome(left);
    vec![
        ("signed", begun().outcome(ok).closed(Some(&key())), 0),
        ("unsigned", begun().outcome(ok).closed(None), 1),
        ("killed", begun().intent(false), 3),
        ("torn", begun().torn(), 3),
        ("recovered", begun().torn().restarted().intent(false).outcome(ok).closed(Some(&key())), 3),
        ("twice", begun().restarted().intent(false).torn().restarted().intent(true), 3),
        ("restarted", begun().outcome(ok).restarted().intent(true).outcome(ok).closed(Some(&key())), 0),
        ("torn-open", File::torn_in_open().restarted().closed(Some(&key())), 3),
        ("additive", begun().news().outcome(ok).closed(Some(&key())), 0),
        ("bounded", File::opened().bounded().outcome(ok).bounded().outcome(left).closed(Some(&key())), 0),
        ("refused", named_refusals().closed(Some(&key())), 0),
        ("named", named().closed(Some(&key())), 0),
        ("controlled", begun().controlled().outcome(ok).closed(Some(&key())), 0),
        ("injected", injected().closed(Some(&key())), 0),
        ("held", held().relayed().closed(Some(&key())), 0),
        ("held-killed", held().held(FIRST, "max_calls", Some("12")).restarted().closed(Some(&key())), 3),
        ("empty", File::default(), 3),
        ("high-costs", high_costs().closed(Some(&key())), 0),
        ("certified", begun().outcome(ok).certified(), 0),
        ("certified-recovered", begun().torn().restarted().intent(false).outcome(ok).certified(), 3),
    ]
}

const FIRST: &str = "hold-0123456789ab";
const SECOND: &str = "hold-ba9876543210";

/// Two calls whose sum is more than the highest amount of one call.
fn high_costs() -> File {
    let one = File::opened().priced("9000000000").intent(false).outcome(CallResult::Ok);
    one.intent(false).outcome(CallResult::Ok)
}

/// Requests that wait, some of them for the same hold, and all ends of a wait.
fn held() -> File {
    File::opened()
        .held(FIRST, "max_calls", Some("11"))
        .held(SECOND, "max_cost_usd", Some("0.75"))
        .held(FIRST, "max_calls", Some("12"))
        .released(FIRST, ReleaseDecision::Approve, "alice")
        .intent(false)
        .outcome(CallResult::Ok)
        .released(FIRST, ReleaseDecision::Timeout, "sidecar")
        .decided(SECOND, "deny")
        .released(SECOND, ReleaseDecision::Deny, "alice")
        .held(FIRST, "paused", None)
        .released(FIRST, ReleaseDecision::Left, "client")
}

/// Refusals with and without the requested names.
fn named_refusals() -> File {
    File::opened()
        .refused()
        .refused_for("tool_not_allowed", "gpt-5.5", "tools", Some("web_search"))
        .refused_for("model_not_allowed", "gr\u{f6}\u{df}er \"model\"", "model", None)
}

/// Messages of the operator, in one call and in the next one, which is interrupted.
fn injected() -> File {
    let begun = File::opened().conversed().injected(&["msg-1"]).outcome(CallResult::Ok);
    begun.injected(&["msg-1", "msg-3"]).outcome(CallResult::Interrupted)
}

/// Outcomes and refusals that name the account, and a call that found no connection.
fn named() -> File {
    let begun =
        File::opened().named().refused().refused_for("tool_not_allowed", "gpt-5.5", "tools", Some("web_search"));
    begun.intent(false).outcome(CallResult::Ok).intent(true).unconnected()
}

#[test]
fn golden_files_are_what_is_written() {
    for (name, file, _) in files() {
        let path = dir().join(format!("{name}.jsonl"));
        // The variable is set only to add a golden file, never to change one.
        if std::env::var_os("SLUICE_NEW_GOLDEN").is_some() && !path.exists() {
            std::fs::write(&path, &file.bytes).expect("the directory is there");
        }
        let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(String::from_utf8_lossy(&golden), String::from_utf8_lossy(&file.bytes), "{name}");
    }
    let public_key = std::fs::read_to_string(dir().join("key.pub")).expect("the golden key");
    assert_eq!(public_key.parse(), Ok(public()));
}

#[test]
fn every_golden_file_has_its_verdict() {
    let keys = [public()];
    for (name, file, exit) in files() {
        let verdict = verify(&file.bytes, &TrustAnchors { keys: &keys, seen: &[] });
        assert_eq!(verdict.exit_code(), exit, "{name}: {verdict}");
    }
}

#[test]
fn the_sum_of_high_costs_is_exact() {
    let bytes = high_costs().closed(Some(&key())).bytes;
    let verdict = verify(&bytes, &TrustAnchors::default());
    assert_eq!(verdict.report().map(|report| report.totals.cost().to_string()).as_deref(), Some("18000000000"));
    let (log, _) = AuditLog::read(&bytes).expect("readable");
    assert_eq!(log.close().map(|close| close.cost_usd.to_string()).as_deref(), Some("18000000000"));
}

#[test]
fn without_a_trusted_key_no_signature_is_checked() {
    for (name, file, exit) in files() {
        let verdict = verify(&file.bytes, &TrustAnchors::default());
        let exit = if name == "unsigned" { 0 } else { exit };
        assert_eq!(verdict.exit_code(), exit, "{name}: {verdict}");
        let report = verdict.report().expect("nothing is altered");
        let signed = report.closed && name != "unsigned";
        assert_eq!(report.seal, if signed { Seal::Unchecked(public().id()) } else { Seal::None }, "{name}");
    }
}

#[test]
fn a_refusal_names_what_was_asked_for() {
    let refused: Vec<_> = lines(&named_refusals().bytes)
        .filter_map(|line| match line.expect("readable").record {
            Record::Refused(refused) => Some(*refused),
            _ => None,
        })
        .map(|refused| [refused.model, refused.param, refused.tool].map(|name| name.map(|name| name.0.into_owned())))
        .collect();
    let names = |names: [Option<&str>; 3]| names.map(|name| name.map(str::to_owned));
    let expected = [
        [None; 3],
        [Some("gpt-5.5"), Some("tools"), Some("web_search")],
        [Some("gr\u{f6}\u{df}er \"model\""), Some("model"), None],
    ];
    assert_eq!(refused, expected.map(names));
    let text = String::from_utf8(named_refusals().bytes).expect("UTF-8");
    assert!(!text.lines().any(|line| line.contains("refused") && line.contains("null")), "{text}");
}

#[test]
fn a_report_says_what_is_missing() {
    let file = |name| files().into_iter().find(|(it, ..)| *it == name).expect("a golden file").1;
    let call = |number: u32| format!("00000000-0000-4000-8000-{number:012}");
    let Verdict::Incomplete(killed) = verify(&file("killed").bytes, &TrustAnchors::default()) else { panic!("killed") };
    assert_eq!((killed.open_calls, killed.closed, killed.torn), (vec![call(3), call(4)], false, 0));
    let Verdict::Incomplete(torn) = verify(&file("torn").bytes, &TrustAnchors::default()) else { panic!("torn") };
    assert_eq!((torn.open_calls, torn.closed, torn.torn), (vec![call(3)], false, 100));
    let Verdict::Incomplete(recovered) = verify(&file("recovered").bytes, &TrustAnchors::default()) else {
        panic!("recovered")
    };
    assert_eq!((recovered.open_calls, recovered.closed, recovered.recovered), (vec![call(3)], true, 1));
    let Verdict::Incomplete(held) = verify(&file("held-killed").bytes, &TrustAnchors::default()) else {
        panic!("held")
    };
    assert_eq!((held.open_holds, held.closed, held.recovered), (vec![FIRST.to_owned()], true, 0));
    let (log, _) = AuditLog::read(&file("recovered").bytes).expect("readable");
    assert_eq!(log.close().map(|close| (close.calls, close.unknown)), Some((4, 2)));
}
