//! `verify_audit.py` gives the same verdict as the crate for every file.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Map, Value, json};
use sluice_contract::record::CallResult;
use sluice_contract::{Hash, PrivateKey, TrustAnchors, Verdict, Witness, verify};

use crate::build::{File, public};
use crate::golden::{dir, files};
use crate::mutations::{false_certificates, rewritten, signed, thief};

/// Reads files, each preceded by its length, and prints for each the exit code and the bad line.
const DRIVER: &str = r#"
import io, sys, struct
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import verify_audit as page
keys = [bytes.fromhex(key) for key in sys.argv[3:]]
data = open(sys.argv[2], "rb")
while size := data.read(8):
    file = data.read(struct.unpack("<Q", size)[0])
    try:
        print(0 if page.verify(io.BytesIO(file), keys)[0] else 3, 0)
    except page.Bad as bad:
        print(1, bad.args[0])
"#;

fn ours(bytes: &[u8], trust: &TrustAnchors<'_>) -> String {
    let verdict = verify(bytes, trust);
    let line = if let Verdict::Tampered(fault) = &verdict { fault.line } else { 0 };
    format!("{} {line}", verdict.exit_code())
}

/// Runs `verify_audit.py` on all cases in one process.
fn assert_agreed(cases: &[(String, Vec<u8>)], with_key: bool) {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("files");
    let framed = cases.iter().flat_map(|(_, bytes)| [&(bytes.len() as u64).to_le_bytes(), &bytes[..]].concat());
    fs::write(&path, framed.collect::<Vec<_>>()).expect("there is room");
    let mut python = Command::new("python3");
    python.args(["-c", DRIVER]).args([Path::new(env!("CARGO_MANIFEST_DIR")), &path]);
    let keys = if with_key { vec![public()] } else { Vec::new() };
    python.args(keys.iter().map(ToString::to_string));
    let Output { status, stdout, stderr } = python.output().expect("python3 is there");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let said = String::from_utf8(stdout).expect("ASCII");
    assert_eq!(said.lines().count(), cases.len());
    for ((case, bytes), theirs) in cases.iter().zip(said.lines()) {
        assert_eq!(ours(bytes, &TrustAnchors { keys: &keys, seen: &[] }), theirs, "{case}");
    }
}

/// Every byte changed in some way, every line deleted, doubled, swapped; every cut.
fn altered(name: &str, file: &File) -> Vec<(String, Vec<u8>)> {
    let mut cases = vec![(name.to_owned(), file.bytes.clone())];
    for at in 0..file.bytes.len() {
        let flip = [0x01, 0x20, 0x04, 0x80, 0x10][at % 5];
        let mut bytes = file.bytes.clone();
        bytes[at] ^= flip;
        cases.push((format!("{name}, byte {at} ^ {flip:#x}"), bytes));
        if at % 17 == 0 {
            cases.push((format!("{name} cut at {at}"), file.bytes[..at].to_vec()));
        }
    }
    let lines = file.lines();
    for at in 0..lines.len() {
        let mut less = lines.clone();
        less.remove(at);
        cases.push((format!("{name} without line {at}"), less.concat()));
        for other in 0..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(at, other);
            cases.push((format!("{name}, {at} and {other} swapped"), swapped.concat()));
            let mut twice = lines.clone();
            twice.insert(other, lines[at]);
            cases.push((format!("{name}, {at} again at {other}"), twice.concat()));
        }
    }
    cases
}

#[test]
fn the_page_agrees_on_every_golden_file() {
    let cases: Vec<_> = files().into_iter().map(|(name, file, _)| (name.to_owned(), file.bytes)).collect();
    assert_agreed(&cases, true);
    assert_agreed(&cases, false);
}

#[test]
fn the_page_agrees_on_altered_files() {
    assert_agreed(&altered("signed", &signed()), true);
    assert_agreed(&altered("certified", &File::opened().refused().certified()), true);
    assert_agreed(&altered("controlled", &File::opened().controlled()), true);
    for (name, file, _) in
        files().into_iter().filter(|(name, ..)| ["certified", "unsigned", "twice", "additive"].contains(name))
    {
        assert_agreed(&altered(name, &file), false);
    }
}

#[test]
fn the_page_agrees_on_rewritten_files() {
    let file = signed();
    let key = crate::build::key();
    let nested = |depth| format!("\"stacks\":{}{},\"status\":200", "[".repeat(depth), "]".repeat(depth));
    let mut cases = Vec::new();
    for key in [None, Some(&key), Some(&thief())] {
        for (at, from, to) in [
            (0, "acct-1", "acct-2"),
            (1, "\"call\":1", "\"call\":2"),
            (2, "/v1/files", "/v1/filez"),
            (2, "\"method\":\"GET\",", ""),
            (2, "\"refused\"", "\"news\""),
            (3, "0.00000585", "5.85e-06"),
            (3, "\"cost_usd\":\"0.00000585\"", "\"cost_usd\":null"),
            (3, "\"input\":11", "\"input\":12"),
            (3, "\"v\":1", "\"v\":2"),
            (8, "\"open_calls\":[]", "\"open_calls\":[\"x\"]"),
            (8, "\"bytes\":100", "\"bytes\":101"),
            (0, "\"attempt\":0", "\"attempt\":5000000000"),
            (1, "\"uid\":1001", "\"uid\":5000000000"),
            (1, "\"pid\":77", "\"pid\":3000000000"),
            (2, "\"status\":404", "\"status\":70000"),
            (3, "\"status\":200", "\"status\":70000"),
            (3, "0.00000585", "1e41"),
            (3, "0.00000585", "0.00000585e0000000000000"),
            (3, "0.00000585", "585e-0000000000008"),
            (3, "0.00000585", "1e40"),
            (3, "0.00000585", "1e"),
            (3, "0.00000585", &*format!("0.{}", "9".repeat(201))),
            (3, "0.00000585", "1000000000000000"),
            (3, "\"status\":200", &*nested(32)),
            (3, "\"status\":200", &*nested(33)),
        ] {
            cases.push((format!("{from} -> {to}, key {key:?}"), rewritten(&file, at, from, to, key)));
        }
    }
    assert_agreed(&cases, true);
    assert_agreed(&cases, false);
}

#[test]
fn the_page_agrees_on_half_a_relay() {
    let file = File::opened().relayed().closed(None);
    let [open, close] = file.lines()[..] else { panic!("two lines") };
    let with_relay = |relay: Value| {
        let mut close: Map<String, Value> = serde_json::from_slice(close).expect("JSON");
        close.insert("relay".to_owned(), relay);
        for name in ["head", "signature"] {
            close.remove(name);
        }
        let head = Hash::of(&serde_json::to_vec(&close).expect("JSON"));
        close.extend([("head".to_owned(), json!(head.to_string())), ("signature".to_owned(), Value::Null)]);
        [open, &serde_json::to_vec(&close).expect("JSON"), b"\n"].concat()
    };
    let whole = json!({ "refused": 3, "requests": 41 });
    let cases = [whole, json!({}), json!({ "refused": 3 }), Value::Null];
    let cases = cases.map(|relay| (relay.to_string(), with_relay(relay)));
    assert_eq!(ours(&cases[0].1, &TrustAnchors { keys: &[], seen: &[] }), "0 0");
    assert_agreed(&cases, false);
}

/// Bug: the page called a file tampered with a call above nine billion dollars, which a hostile upstream can state.
#[test]
fn the_page_agrees_on_absurd_amounts() {
    let ok = CallResult::Ok;
    let file = File::opened().priced("1000000000000000").intent(false).outcome(ok).closed(Some(&crate::build::key()));
    assert_eq!(ours(&file.bytes, &TrustAnchors { keys: &[], seen: &[] }), "0 0");
    assert_agreed(&[("absurd".to_owned(), file.bytes)], false);
}

#[test]
fn the_page_agrees_on_false_certificates() {
    let cases: Vec<_> = false_certificates().into_iter().map(|(name, file)| (name.to_owned(), file.bytes)).collect();
    assert_agreed(&cases, true);
    assert_agreed(&cases, false);
}

#[test]
fn the_page_is_a_program_with_our_exit_codes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("verify_audit.py");
    let run = |args: &[&str]| {
        // It is executable.
        let output = Command::new(&page).args(args).output().expect("it is a program");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let golden = |name: &str| dir().join(name).display().to_string();
    let (key, good) = (golden("key.pub"), golden("signed.jsonl"));
    for (name, _, exit) in files() {
        let (code, said) = run(&[&golden(&format!("{name}.jsonl")), "--key", &key]);
        assert_eq!(code, Some(i32::from(exit)), "{name}: {said}");
    }
    assert_eq!(run(&[&good, "--key", &public().to_string()]).0, Some(0));
    let good = good.as_str();
    for usage in [&[][..], &[good, good], &[good, "--key"], &[good, "--key", "00"], &[good, "--against", "x"]] {
        assert_eq!(run(usage).0, Some(2), "{usage:?}");
    }
    assert_eq!(run(&[&golden("nothing.jsonl")]).0, Some(4));

    let bytes = fs::read(good).expect("a golden file");
    let Verdict::Complete(report) = verify(&bytes, &TrustAnchors::default()) else { panic!("it is complete") };
    let zero = "0".repeat(64);
    for (seq, head, exit) in [(8, report.head.to_string(), 0), (8, zero.clone(), 1), (9, zero, 1)] {
        let seen = [Witness { seq, head: head.parse().expect("a hash") }];
        assert_eq!(verify(&bytes, &TrustAnchors { keys: &[], seen: &seen }).exit_code(), exit);
        assert_eq!(run(&[good, "--against", &format!("{seq}:{head}")]).0, Some(i32::from(exit)));
    }
    let killed = File::opened().intent(false).outcome(CallResult::Ok);
    assert_eq!(ours(&killed.bytes, &TrustAnchors::default()), "3 0");
}

#[test]
fn the_page_reads_all_keys_of_a_file() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("verify_audit.py");
    let directory = tempfile::tempdir().expect("there is room");
    let put = |name: &str, text: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("our own directory");
        path
    };
    let signers = [crate::build::key(), thief()];
    let keys = signers.each_ref().map(PrivateKey::public);
    // As a host prints them after a rotation.
    let both = put("both.pub", format!("{}\n{}\n", keys[0], keys[1]).as_bytes());
    let none = put("none.pub", b"");
    for (signer, other) in [(&signers[0], &keys[1]), (&signers[1], &keys[0])] {
        let file = File::opened().intent(false).outcome(CallResult::Ok).closed(Some(signer));
        let path = put("audit.jsonl", &file.bytes);
        let other = put("other.pub", format!("{other}\n").as_bytes());
        assert_eq!(verify(&file.bytes, &TrustAnchors { keys: &keys, seen: &[] }).exit_code(), 0);
        // A file without a key is an error: otherwise no signature would be checked.
        for (key_file, exit) in [(&both, 0), (&other, 1), (&none, 2)] {
            let mut python = Command::new("python3");
            python.arg("-B").arg(&page).arg(&path).arg("--key").arg(key_file);
            let Output { status, stdout, .. } = python.output().expect("python3 is there");
            let said = String::from_utf8_lossy(&stdout);
            assert_eq!(status.code(), Some(exit), "{}: {said}", key_file.display());
        }
    }
}

/// A line of the control log.
const ACTION: &str = concat!(
    r#"{"after":null,"before":null,"key_id":"0","object":"acct-1","operation":"budget.set","owner":null,"#,
    r#""prev":"0","principal":"uid:0","reason":null,"request":null,"result":"accepted","role":"operator","#,
    r#""seq":0,"signature":"0","source":null,"ts":"2026-11-20T16:00:00.000000Z","v":1,"way":"command"}"#,
    "\n"
);

#[test]
fn the_page_calls_no_control_log_tampered() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("verify_audit.py");
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("audit.jsonl");
    let (action, run) = (ACTION.as_bytes().to_vec(), signed().bytes);
    let named = ACTION.replacen("\"source\"", "\"run_id\":\"r1\",\"source\"", 1).into_bytes();
    let seen = format!("0:{}", "0".repeat(64));
    for (case, bytes, args, exit) in [
        ("control log", action.clone(), &[][..], 4),
        ("torn control log", [action.clone(), b"{\"after\"".to_vec()].concat(), &[], 4),
        ("a line of a run was seen", action.clone(), &["--against", seen.as_str()], 1),
        ("before the records of a run", [action.clone(), run.clone()].concat(), &[], 1),
        ("after the records of a run", [run, action].concat(), &[], 1),
        ("with a member of a record", named, &[], 1),
        ("text", b"text\n".to_vec(), &[], 1),
    ] {
        fs::write(&path, bytes).expect("our own directory");
        let output = Command::new("python3").arg("-B").arg(&page).arg(&path).args(args).output();
        let Output { status, stdout, .. } = output.expect("python3 is there");
        let said = String::from_utf8_lossy(&stdout);
        assert_eq!(status.code(), Some(exit), "{case}: {said}");
        assert_eq!(said.contains("sluice audit verify control checks it"), exit == 4, "{case}: {said}");
    }
}
