//! Altered files: every change is found, and the line is named.

use sluice_contract::reader::FaultKind;
use sluice_contract::record::CallResult;
use sluice_contract::{Fault, Hash, PrivateKey, TrustAnchors, Verdict, Witness, verify};

use crate::build::{File, key, public, run_key};

pub(crate) fn signed() -> File {
    let file = File::opened().intent(false).refused().outcome(CallResult::Ok).intent(true).intent(false);
    let file = file.outcome(CallResult::ClientAbort).outcome(CallResult::Ok).torn().restarted().intent(true);
    file.outcome(CallResult::Ok).closed(Some(&key()))
}

fn fault(bytes: &[u8]) -> Option<Fault> {
    match verify(bytes, &TrustAnchors { keys: &[public()], seen: &[] }) {
        Verdict::Tampered(fault) => Some(fault),
        Verdict::Complete(_) | Verdict::Incomplete(_) => None,
    }
}

/// Returns the line and the kind of the fault in a file of these lines.
fn named(lines: &[&[u8]]) -> Option<(u64, FaultKind)> {
    fault(&lines.concat()).map(|fault| (fault.line, fault.kind))
}

#[test]
fn every_flipped_byte_is_found_in_its_line() {
    let file = signed();
    assert_eq!(fault(&file.bytes), None);
    for at in 0..file.bytes.len() {
        let line = 1 + file.bytes[..at].iter().filter(|byte| **byte == b'\n').count() as u64;
        for flip in [0x01, 0x04, 0x20, 0x80] {
            let mut bytes = file.bytes.clone();
            bytes[at] ^= flip;
            match fault(&bytes) {
                Some(fault) => assert_eq!(fault.line, line, "byte {at} ^ {flip:#x}: {fault}"),
                // A file without its last newline has a torn last line, and is reported as such.
                None => assert_eq!(at, file.bytes.len() - 1, "byte {at} ^ {flip:#x}"),
            }
        }
    }
}

#[test]
fn a_deleted_line_is_found() {
    let file = signed();
    let lines = file.lines();
    for gone in 0..lines.len() - 1 {
        let mut less = lines.clone();
        less.remove(gone);
        assert_eq!(named(&less), Some((gone as u64 + 1, FaultKind::Seq)), "line {gone} deleted");
    }
    // A file without its end is incomplete, and reported as such.
    assert_eq!(verify(&lines[..lines.len() - 1].concat(), &TrustAnchors::default()).exit_code(), 3);
}

#[test]
fn swapped_and_duplicated_lines_are_found() {
    let file = signed();
    let lines = file.lines();
    for first in 0..lines.len() {
        for second in first + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(first, second);
            assert_eq!(named(&swapped).map(|(line, _)| line), Some(first as u64 + 1), "{first} and {second} swapped");
        }
        for at in 0..=lines.len() {
            let mut twice = lines.clone();
            twice.insert(at, lines[first]);
            let found = named(&twice).expect("found").0;
            // A duplicate after its original is the first wrong line; before it, the duplicate's own line is wrong.
            let expected = if at == first { first as u64 + 2 } else { at as u64 + 1 };
            assert_eq!(found, expected, "{first} again at {at}");
        }
    }
}

#[test]
fn an_inserted_line_with_fitting_numbers_is_found() {
    let file = signed();
    let text = String::from_utf8(file.bytes.clone()).expect("UTF-8");
    // The refusal is in the file twice, and all later numbers are increased: the file is unchanged up to the first
    // copy.
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    lines.insert(2, lines[2].clone());
    for (seq, line) in lines.iter_mut().enumerate().skip(3) {
        *line = line.replace(&format!("\"seq\":{},", seq - 1), &format!("\"seq\":{seq},"));
    }
    let fault = fault(lines.concat().as_bytes()).expect("found");
    assert_eq!((fault.line, fault.kind), (4, FaultKind::Prev), "{fault}");
}

/// An attacker with another key.
pub(crate) fn thief() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// Returns the file with one line changed and every later hash recomputed, signed by the attacker.
pub(crate) fn rewritten(file: &File, at: usize, from: &str, to: &str, key: Option<&PrivateKey>) -> Vec<u8> {
    let (mut bytes, mut prev) = (Vec::new(), Hash::ZERO);
    for (number, line) in file.lines().into_iter().enumerate() {
        let mut line = String::from_utf8(line.to_vec()).expect("UTF-8");
        if number == at {
            assert!(line.contains(from), "{line}");
            line = line.replace(from, to);
        }
        let old = line.find("\"prev\":\"").expect("every line has it") + 8;
        line.replace_range(old..old + 64, &prev.to_string());
        let line = if line.contains("\"kind\":\"close\"") {
            let close = serde_json::from_str(&line).expect("a close");
            sluice_contract::chain::close_line(close, key)
        } else {
            line.into_bytes()
        };
        prev = Hash::of(&line);
        bytes.extend_from_slice(&line);
    }
    bytes
}

#[test]
fn a_file_signed_anew_by_another_key_is_found() {
    let file = signed();
    let last = file.lines().len() as u64;
    assert_eq!(rewritten(&file, 2, "", "", Some(&key())), file.bytes, "the right key makes the same file");
    let thief = thief();
    for key in [None, Some(&thief)] {
        let bytes = rewritten(&file, 2, "/v1/files", "/v1/filez", key);
        let fault = fault(&bytes).expect("found by the key");
        let what = if key.is_some() { FaultKind::UnknownKey } else { FaultKind::Signature };
        assert_eq!((fault.line, fault.kind), (last, what), "{fault}");
        // Without the key a full rewrite is consistent: only the witness detects it.
        assert_eq!(verify(&bytes, &TrustAnchors::default()).exit_code(), 3);
    }
    // The attacker's signature with our key id.
    let bytes = rewritten(&file, 2, "/v1/files", "/v1/filez", Some(&thief));
    let text = String::from_utf8(bytes).expect("UTF-8").replace(&thief.public().id(), &public().id());
    assert_eq!(fault(text.as_bytes()).map(|fault| (fault.line, fault.kind)), Some((last, FaultKind::Head)));
}

#[test]
fn a_signature_of_another_file_does_not_fit() {
    let (file, other) = (signed(), File::opened().closed(Some(&key())));
    let signature = |file: &File| {
        let text = String::from_utf8(file.bytes.clone()).expect("UTF-8");
        text.split("\"signature\":\"").nth(1).expect("signed")[..128].to_owned()
    };
    let text = String::from_utf8(file.bytes.clone()).expect("UTF-8");
    let moved = text.replace(&signature(&file), &signature(&other));
    let last = file.lines().len() as u64;
    assert_eq!(fault(moved.as_bytes()).map(|fault| (fault.line, fault.kind)), Some((last, FaultKind::Signature)));
}

/// Files that are consistent in themselves, each with a close that no trusted key vouches for. The names say why.
pub(crate) fn false_certificates() -> Vec<(&'static str, File)> {
    let file = || File::opened().intent(false).outcome(CallResult::Ok);
    let (state, run, thief) = (key(), run_key(), thief());
    let of = |run_id, attempt, key: &PrivateKey| state.certify(run_id, attempt, &key.public());
    let good = of("run-1", 0, &run);
    let mut renamed = thief.certify("run-1", 0, &run.public());
    renamed.key_id = public().id().into();
    let mut swapped = good.clone();
    swapped.public_key = thief.public().to_string().into();
    let mut cut = good.clone();
    cut.signature = good.signature[..126].to_owned().into();
    let mut no_point = good.clone();
    no_point.public_key = "02".repeat(32).into();
    vec![
        ("for another run", file().closed_with(Some(&run), Some(of("run-2", 0, &run)))),
        ("for another attempt", file().closed_with(Some(&run), Some(of("run-1", 1, &run)))),
        (
            "by a key that is not trusted",
            file().closed_with(Some(&run), Some(thief.certify("run-1", 0, &run.public()))),
        ),
        ("by a key with a trusted name", file().closed_with(Some(&run), Some(renamed))),
        ("by the run's own key", file().closed_with(Some(&run), Some(run.certify("run-1", 0, &run.public())))),
        ("stripped", file().closed_with(Some(&run), None)),
        ("of another key than the one that signs", file().closed_with(Some(&thief), Some(good.clone()))),
        ("with the key swapped", file().closed_with(Some(&thief), Some(swapped))),
        ("without a signature of the file", file().closed_with(None, Some(good))),
        ("with a short signature", file().closed_with(Some(&run), Some(cut))),
        ("of what is not a point", file().closed_with(Some(&run), Some(no_point))),
    ]
}

#[test]
fn a_false_certificate_is_found_in_the_last_line() {
    for (name, file) in false_certificates() {
        let found = fault(&file.bytes).map(|fault| (fault.line, fault.kind));
        let unknown = ["by a key that is not trusted", "stripped", "by the run's own key"].contains(&name);
        let what = if unknown { FaultKind::UnknownKey } else { FaultKind::Signature };
        assert_eq!(found, Some((4, what)), "{name}");
    }
    let good = File::opened().intent(false).outcome(CallResult::Ok).certified();
    assert_eq!(fault(&good.bytes), None);
}

#[test]
fn every_flipped_byte_of_a_certified_end_is_found() {
    let file = File::opened().certified();
    let close = file.lines()[0].len();
    for at in close..file.bytes.len() - 1 {
        for flip in [0x01, 0x04, 0x20, 0x80] {
            let mut bytes = file.bytes.clone();
            bytes[at] ^= flip;
            assert_eq!(fault(&bytes).map(|fault| fault.line), Some(2), "byte {at} ^ {flip:#x}");
        }
    }
}

#[test]
fn a_trusted_key_signs_directly_beside_a_certificate() {
    let file = File::opened().certified();
    let keys = [run_key().public()];
    let verdict = verify(&file.bytes, &TrustAnchors { keys: &keys, seen: &[] });
    assert_eq!(verdict.exit_code(), 0, "{verdict}");
}

#[test]
fn a_witness_finds_a_file_rewritten_completely() {
    let file = signed();
    let seen = |bytes: &[u8]| -> Vec<Witness> {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
        lines.map(|(seq, line)| Witness { seq: seq as u64, head: Hash::of(line) }).collect()
    };
    let all = seen(&file.bytes);
    let against = |bytes: &[u8], seen: &[Witness]| match verify(bytes, &TrustAnchors { keys: &[public()], seen }) {
        Verdict::Tampered(fault) => Some((fault.line, fault.kind)),
        Verdict::Complete(_) | Verdict::Incomplete(_) => None,
    };
    assert_eq!(against(&file.bytes, &all), None);
    // The witness also detects an attacker who has the key.
    let bytes = rewritten(&file, 2, "/v1/files", "/v1/filez", Some(&key()));
    assert_eq!(against(&bytes, &[]), None);
    assert_eq!(against(&bytes, &all), Some((3, FaultKind::Witness)));
    assert_eq!(against(&bytes, &all[8..9]), Some((9, FaultKind::Witness)));
    // A line that was seen and is gone.
    let lines = file.lines();
    assert_eq!(against(&lines[..4].concat(), &all[..6]), Some((5, FaultKind::Witness)));
    assert_eq!(against(&lines[..4].concat(), &all[..4]), None);
}

#[test]
fn sums_that_do_not_fit_their_lines_are_found() {
    let file = signed();
    let close = file.lines().len() - 1;
    for (from, to) in [
        ("\"calls\":4", "\"calls\":5"),
        ("\"cost_usd\":\"0.00001755\"", "\"cost_usd\":\"0\""),
        ("\"refused\":1", "\"refused\":0"),
        ("\"unknown\":1", "\"unknown\":0"),
        ("\"input\":33", "\"input\":32"),
    ] {
        let bytes = rewritten(&file, close, from, to, Some(&key()));
        let found = fault(&bytes).map(|fault| (fault.line, fault.kind));
        assert_eq!(found, Some((close as u64 + 1, FaultKind::Totals)), "{from} -> {to}");
    }
    // After a flood, refusals are counted and not written.
    let bytes = rewritten(&file, close, "\"refused\":1", "\"refused\":12345", Some(&key()));
    assert_eq!(fault(&bytes), None);
}

#[test]
fn an_outcome_after_the_restart_is_found() {
    let file = File::opened().intent(false);
    let late = file.clone().restarted();
    let mut outcome = file.outcome(CallResult::Ok).lines()[2].to_vec();
    let text = String::from_utf8(outcome).expect("UTF-8").replace("\"seq\":2", "\"seq\":4");
    let prev = Hash::of(late.lines()[3]).to_string();
    let old = text.find("\"prev\":\"").expect("every line has it") + 8;
    outcome = [&text.as_bytes()[..old], prev.as_bytes(), &text.as_bytes()[old + 64..]].concat();
    let bytes = [&late.bytes[..], &outcome].concat();
    assert_eq!(fault(&bytes).map(|fault| (fault.line, fault.kind)), Some((5, FaultKind::Call)));
}

#[test]
fn a_long_altered_value_is_shortened() {
    let file = signed();
    let text = String::from_utf8(file.bytes).expect("JSON");
    let long = text.replacen(r#""run_id":""#, &format!(r#""run_id":"{}"#, "é".repeat(100_000)), 2);

    let fault = fault(long.as_bytes()).expect("it was altered");

    assert!(fault.to_string().len() < 2000, "{} bytes", fault.to_string().len());
}
