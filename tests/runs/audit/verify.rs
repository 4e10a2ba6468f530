//! `sluice audit verify` on files that are complete, truncated, altered, forged, unreadable.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_contract::Hash;
use sluice_contract::record::Close;
use sluice_testkit::Sluice;

use super::forgery::{for_another_account, lines, mutations, rewritten, thief};
use super::{audit, finished, ours, private_key, public_key, theirs, upstream};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/contract/tests/golden")
}

/// Puts files beside the state directory, where nothing is known of them.
fn beside(sluice: &Sluice, files: &[(String, Vec<u8>)]) -> Vec<PathBuf> {
    let path = |(at, (_, bytes)): (usize, &(String, Vec<u8>))| {
        let path = sluice.dir().join(format!("copy-{at}.jsonl"));
        fs::write(&path, bytes).expect("a test's directory takes files");
        path
    };
    files.iter().enumerate().map(path).collect()
}

#[tokio::test]
async fn a_finished_run_is_complete_and_names_its_signer() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let (path, key_id) = (sluice.audit_path(&id), private_key(&sluice).public().id());
    let shown = path.display();

    let said = format!("{shown}: complete: 7 lines, 2 calls, $0.0000108, signed by {key_id}\n");
    for name in [id.clone(), format!("{id}.0"), path.display().to_string()] {
        let ran = audit(&sluice, ["verify", &name]).await.expect(0);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (said.as_str(), ""), "{name}");
    }
    let value = audit(&sluice, ["verify", &id, "--json"]).await.expect(0).value();
    let head = Hash::of(lines(&fs::read(&path).expect("the file is there")).last().expect("it has lines")).to_string();
    let detail = json!({
        "lines": 7, "head": head, "closed": true, "open_calls": [], "open_holds": [], "torn_bytes": 0, "recovered": 0, "epochs": 0,
        "signature": "valid", "vouched_by": ["signature", "witness"], "key_id": key_id, "calls": 2, "refused": 1, "unknown": 0, "cost_usd": "0.0000108",
    });
    let file = json!({"file": path, "verdict": "complete", "exit_code": 0, "detail": detail});
    assert_eq!((&value["ok"], &value["files"]), (&json!(true), &json!([file])));
    let key = public_key(&sluice).await;
    assert_eq!(theirs(&[path], &["--key", &key]), [(0, 0)]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn every_change_of_a_file_is_found_by_line() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let (path, key) = (sluice.audit_path(&id), public_key(&sluice).await);
    let bytes = fs::read(&path).expect("the file is there");
    let (files, expected): (Vec<_>, Vec<_>) =
        mutations(&bytes).into_iter().map(|(name, bytes, said)| ((name, bytes), said)).unzip();
    let copies = beside(&sluice, &files);

    let said = ours(&sluice, &copies, &["--key", &key]).await;

    let page = theirs(&copies, &["--key", &key]);
    for ((name, _), ((said, page), expected)) in files.iter().zip(said.iter().zip(&page).zip(&expected)) {
        assert_eq!((said, page), (expected, expected), "{name}: we say, and the page says");
    }
    // The copy in place of the file, with our own keys and witness: the verdict names the same line, or an earlier one
    // that was witnessed.
    for ((name, bytes), expected) in files.iter().zip(&expected).step_by(5) {
        fs::write(&path, bytes).expect("we are root");
        let said = ours(&sluice, std::slice::from_ref(&path), &[]).await[0];
        assert!(said.0 == 1 && said.1 <= expected.1, "{name}: {said:?}");
    }
    fs::write(&path, bytes).expect("we are root");
    sluice.assert_nothing_left().await;
}

/// Returns a signed file with this number of calls.
fn long(calls: u64) -> Vec<u8> {
    let one = fs::read(golden().join("signed.jsonl")).expect("it is in the repository");
    let repeat = |records: &mut Vec<Value>| {
        let of = |kind: &str| records.iter().find(|record| record["kind"] == kind).cloned().expect("one of each");
        let pair = [of("intent"), of("outcome")];
        records.truncate(1);
        records.extend((1..=calls).flat_map(|call| {
            pair.clone().map(|mut record| {
                (record["call"], record["call_id"]) = (call.into(), format!("call-{call}").into());
                record
            })
        }));
    };
    rewritten(&one, repeat, &thief())
}

#[tokio::test]
async fn verifying_a_long_file_takes_little_memory() {
    let sluice = Sluice::with("http://127.0.0.1:9", "sk-nobody-wants-it");
    // 51 MB; the program's own pages take 65 MB of the memory allowed here, as it is built for tests.
    let file = beside(&sluice, &[("long".into(), long(45_000))]).remove(0).display().to_string();
    let key = thief().public().to_string();
    let within = ["sh", "-c", r#"ulimit -v 87000 && exec "$@""#, "sh"];

    let ran = sluice.command(["audit", "verify", &file, "--key", &key]).wrapper(within).finish().await.expect(0);

    assert!(ran.stdout.contains("complete: 90002 lines, 45000 calls"), "{}", ran.stdout);
}

#[tokio::test]
async fn a_truncated_file_is_incomplete_and_names_open_calls() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let (path, key) = (sluice.audit_path(&id), public_key(&sluice).await);
    let bytes = fs::read(&path).expect("the file is there");
    let lines = lines(&bytes);
    let second = &sluice.audit(&id).calls()[1].id().to_owned();
    let whole = |count: usize| lines[..count].concat();
    let torn = |count: usize| [whole(count), lines[count][..40].to_vec()].concat();
    let cases = [
        ("without its end", whole(6), "6 lines, 2 calls, $0.0000108, not signed, no close".to_owned()),
        (
            "with a torn end",
            torn(6),
            "6 lines, 2 calls, $0.0000108, not signed, no close, 40 bytes of a torn line".into(),
        ),
        ("in a call", whole(5), format!("5 lines, 2 calls, $0.0000054, not signed, no close, open calls: {second}")),
        (
            "in an outcome",
            torn(5),
            format!(
                "5 lines, 2 calls, $0.0000054, not signed, no close, 40 bytes of a torn line, open calls: {second}"
            ),
        ),
        (
            "in its first line",
            bytes[..40].to_vec(),
            "0 lines, 0 calls, $0, not signed, no close, 40 bytes of a torn line".into(),
        ),
        ("to nothing", Vec::new(), "0 lines, 0 calls, $0, not signed, no close".into()),
    ];
    let unproven = "; NOT PROVEN that the file was not rewritten as a whole: give --against";
    for (name, bytes, said) in cases {
        let copy = beside(&sluice, &[(name.to_owned(), bytes)]).remove(0);
        let ran = audit(&sluice, ["verify", &copy.display().to_string(), "--key", &key]).await.expect(3);
        assert_eq!(ran.stdout, format!("{}: incomplete: {said}{unproven}\n", copy.display()), "{name}");
        assert_eq!(theirs(&[copy], &["--key", &key]), [(3, 0)], "{name}");
    }
}

#[tokio::test]
async fn the_page_agrees_on_every_golden_file() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let (mut files, mut exits) = (Vec::new(), std::collections::BTreeSet::new());
    for entry in fs::read_dir(golden()).expect("there are golden files") {
        files.extend(Some(entry.expect("a name").path()).filter(|path| path.extension().is_some_and(|e| e == "jsonl")));
    }
    let key = golden().join("key.pub").display().to_string();
    for args in [&["--key", &key][..], &[]] {
        let said = ours(&sluice, &files, args).await;
        assert_eq!(said, theirs(&files, args), "{files:?} {args:?}");
        exits.extend(said.iter().map(|said| said.0));
    }
    assert!(files.len() >= 10 && exits.contains(&0) && exits.contains(&3), "{files:?} {exits:?}");
}

#[tokio::test]
async fn the_worst_of_several_files_counts() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let file = |name: &str| golden().join(name).display().to_string();
    let [good, cut] = ["signed.jsonl", "killed.jsonl"].map(file);
    let bytes = fs::read(&good).expect("a golden file");
    let bad = beside(&sluice, &[(String::new(), lines(&bytes)[1..].concat())])[0].display().to_string();
    let (gone, directory) = (file("nothing.jsonl"), golden().display().to_string());
    for (files, code) in [
        (&[&good, &good][..], 0),
        (&[&good, &cut], 3),
        (&[&gone], 4),
        (&[&directory], 4),
        (&[&cut, &gone, &good], 4),
        (&[&bad, &gone, &cut], 1),
    ] {
        let words = ["verify"].into_iter().chain(files.iter().map(|file| file.as_str()));
        let ran = audit(&sluice, words).await.expect(code);
        assert_eq!((ran.stdout.lines().count(), ran.stderr.as_str()), (files.len(), ""), "{files:?}: {}", ran.stdout);
    }
    for usage in [
        &["verify"][..],
        &["verify", "--no-such-flag", &good],
        &["verify", "--key", "00", &good],
        &["verify", "--key", &gone, &good],
        &["verify", "--key", &cut, &good],
        &["verify", "--against", &gone, &good],
        &["nothing"],
    ] {
        assert_eq!(audit(&sluice, usage).await.expect(2).stdout, "", "{usage:?}");
    }
    let unknown = audit(&sluice, ["verify", "r20260101-000000-00000000"]).await.expect(4);
    let is_advised = unknown.stdout.contains("name the state directory with --state-dir");
    assert!(unknown.stdout.contains("unreadable: there is no such file") && is_advised, "{}", unknown.stdout);
}

#[tokio::test]
async fn a_foreign_file_is_verified_by_known_keys_only() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let (key, key_id) = (public_key(&sluice).await, private_key(&sluice).public().id());
    let bytes = fs::read(sluice.audit_path(&id)).expect("the file is there");
    // The file with a signature of the right form that does not fit.
    let mut forged = String::from_utf8(bytes.clone()).expect("UTF-8");
    let signature = forged.rfind("\"signature\":\"").expect("it is signed") + "\"signature\":\"".len();
    forged.replace_range(signature..signature + 128, &"5".repeat(128));
    let forged = sluice.file("forged.jsonl", &forged);
    let copy = beside(&sluice, &[(String::new(), bytes)])[0].display().to_string();
    let wrong = thief().public().to_string();
    let of_one = sluice.file("one.pub", &format!("{key}\n"));
    let of_two = sluice.file("two.pub", &format!("{wrong}\n{key}\n"));
    let of_another = sluice.file("another.pub", &wrong);
    // A host that knows nothing of the run.
    let elsewhere = sluice.dir().join("elsewhere").display().to_string();

    let unproven = format!(
        "signature of {key_id} not checked; NOT PROVEN that the file was not rewritten as a whole: give --key, or \
         --against"
    );
    for (words, code, said) in [
        (&["--state-dir", &elsewhere][..], 0, unproven),
        (&[], 0, format!("signed by {key_id}")),
        (&["--key", &key], 0, format!("signed by {key_id}")),
        (&["--key", &of_one], 0, format!("signed by {key_id}")),
        (&["--key", &of_two], 0, format!("signed by {key_id}")),
        (&["--key", &wrong, "--key", &key], 0, format!("signed by {key_id}")),
        (&["--key", &wrong], 1, format!("found one by {key_id}")),
        (&["--key", &of_another], 1, format!("found one by {key_id}")),
    ] {
        let ran = audit(&sluice, ["verify", &copy].iter().chain(words)).await.expect(code);
        assert!(ran.stdout.ends_with(&format!("{said}\n")), "{words:?}: {}", ran.stdout);
    }
    let database = sluice.state().join("sluice.db").display().to_string();
    for (words, vouched) in [
        (&["--json", "--state-dir", &elsewhere][..], json!([])),
        (&["--json", "--state-dir", &elsewhere, "--against", &database], json!(["witness"])),
        (&["--json"], json!(["signature"])),
        (&["--json", "--key", &key], json!(["signature"])),
    ] {
        let ran = audit(&sluice, ["verify", &copy].iter().chain(words)).await.expect(0);
        assert_eq!(ran.value()["files"][0]["detail"]["vouched_by"], vouched, "{words:?}");
    }
    // A file that names a key of ours must be signed by it.
    let ran = audit(&sluice, ["verify", &forged]).await.expect(1);
    assert!(ran.stdout.contains(": tampered: line 7: signature: "), "{}", ran.stdout);
    // If keys are given, one of them must have signed our own file too.
    let ran = audit(&sluice, ["verify", &id, "--key", &wrong]).await.expect(1);
    assert!(ran.stdout.contains(": tampered: line 7: unknown key: "), "{}", ran.stdout);
}

#[tokio::test]
async fn an_unsigned_file_is_not_ours() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let path = sluice.audit_path(&id);
    let bytes = fs::read(&path).expect("the file is there");
    let last = lines(&bytes).pop().expect("it has an end");
    let mut close: Close<'_> = serde_json::from_slice(&last).expect("a close");
    close.certificate = None;
    let unsigned = [&bytes[..bytes.len() - last.len()], &sluice_contract::chain::close_line(close, None)].concat();
    let copy = beside(&sluice, &[(String::new(), unsigned)]).remove(0);
    let key = public_key(&sluice).await;

    let copy = std::slice::from_ref(&copy);
    assert_eq!(ours(&sluice, copy, &["--key", &key]).await, [(1, 7)]);
    assert_eq!(theirs(copy, &["--key", &key]), [(1, 7)]);
    assert_eq!(ours(&sluice, copy, &[]).await, [(0, 0)], "without keys no signature is required");
}

#[tokio::test]
async fn a_state_directory_without_keys_or_database_proves_nothing() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let public = sluice.state().join("keys/public");
    let aside = sluice.dir().join("aside");

    fs::rename(&public, &aside).expect("it is ours too");
    let without = audit(&sluice, ["verify", &id]).await.expect(4);
    fs::create_dir(&public).expect("the name is free");
    let empty = audit(&sluice, ["verify", &id]).await.expect(4);
    let keys = audit(&sluice, ["keys"]).await.expect(4);
    fs::remove_dir(&public).expect("it is ours");
    fs::rename(&aside, &public).expect("the name is free");

    assert_eq!((without.stdout.as_str(), empty.stdout.as_str(), keys.stdout.as_str()), ("", "", ""));
    assert!(empty.stderr.contains("there is no public key in"), "{}", empty.stderr);
    let database = sluice.state().join("sluice.db");
    let all = ["sluice.db", "sluice.db-wal", "sluice.db-shm"];
    for name in all {
        let _ = fs::rename(sluice.state().join(name), sluice.dir().join(name));
    }
    let ran = audit(&sluice, ["verify", &id]).await.expect(4);
    assert!(ran.stderr.contains(&format!("there is no database {}", database.display())), "{}", ran.stderr);
    for name in all {
        let _ = fs::rename(sluice.dir().join(name), sluice.state().join(name));
    }
    audit(&sluice, ["verify", &id]).await.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_file_cannot_pass_for_that_of_another_run() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let (one, other) = (finished(&sluice).await, finished(&sluice).await);
    let [path, second] = [&one, &other].map(|id| sluice.audit_path(id));
    let bytes = fs::read(&path).expect("the file is there");

    // Another run's file under its name; and a forged file, with a valid signature, of a run that never was.
    fs::copy(&second, &path).expect("we are root");
    let swapped = audit(&sluice, ["verify", &one]).await.expect(1);
    let name = "r20200101-000000-00000000";
    let rename = |records: &mut Vec<Value>| records.iter_mut().for_each(|line| line["run_id"] = name.into());
    let forged = rewritten(&bytes, rename, &private_key(&sluice));
    fs::write(&path, &forged).expect("we are root");
    let renamed = audit(&sluice, ["verify", &one]).await.expect(1);
    let invented = sluice.audit_path(name);
    fs::write(&invented, &forged).expect("we are root");
    let unknown = audit(&sluice, ["verify", name]).await.expect(5);
    let database = sluice.state().join("sluice.db").display().to_string();
    let copy = beside(&sluice, &[(String::new(), forged)])[0].display().to_string();
    let against = audit(&sluice, ["verify", &copy, "--against", &database]).await.expect(5);

    let said = format!("line 1: run: expected {one}.0, found {other}.0\n");
    assert!(swapped.stdout.ends_with(&said), "{}", swapped.stdout);
    assert!(renamed.stdout.ends_with(&format!("expected {one}.0, found {name}.0\n")), "{}", renamed.stdout);
    for ran in [unknown, against] {
        let said = format!("unknown to this database: it has never seen run {name}.0; ");
        assert!(ran.stdout.contains(&said), "{}", ran.stdout);
    }
    audit(&sluice, ["verify", &copy]).await.expect(0);
}

#[tokio::test]
async fn verify_prints_no_control_characters_of_a_file() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let bytes = fs::read(sluice.audit_path(&id)).expect("the file is there");
    let spell = "\u{1b}[2J\r\nr1: complete: signed by all\u{9b}1A";
    let speak = |records: &mut Vec<Value>| {
        records[0]["billing_account_id"] = spell.into();
        records[1]["model"] = spell.into();
        records[3]["reason"] = spell.into();
        records[4]["call_id"] = spell.into();
        records[5]["call_id"] = spell.into();
    };
    let spoken = rewritten(&bytes, speak, &thief());
    let wrong = String::from_utf8(bytes).expect("UTF-8").replacen(&"0".repeat(64), "\\u001b[2J\\nall is well", 1);
    let mut lines = lines(&spoken);
    let mut kind: Value = serde_json::from_slice(&lines[3]).expect("a record");
    (kind["kind"], kind["head"]) = (spell.into(), "".into());
    lines[3] = format!("{kind}\n").into_bytes();
    let open = lines[..5].concat();
    let files = [spoken, wrong.into_bytes(), lines.concat(), open].map(|bytes| (String::new(), bytes));
    let copies = beside(&sluice, &files);
    for copy in copies.iter().map(|path| path.display().to_string()) {
        let page = golden().join("../../verify_audit.py");
        let page = std::process::Command::new("python3").arg("-B").arg(page).arg(&copy).output();
        let printed = String::from_utf8(page.expect("there is a python3").stdout).expect("UTF-8");
        assert!(printed.lines().count() == 1 && !printed.trim_end().contains(char::is_control), "{printed:?}");
        for command in ["verify", "show", "hash", "tail"] {
            let ran = audit(&sluice, [command, &copy]).await;
            let printed = ran.stdout + &ran.stderr;
            assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "{command}: {printed:?}");
            assert!(!printed.lines().any(|line| line.starts_with("r1") || line.starts_with("all")), "{printed}");
        }
    }
}

#[tokio::test]
async fn a_database_that_is_asked_is_not_changed() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let path = sluice.audit_path(&id).display().to_string();
    let notes = sluice.file("notes.db", &"not a database, but somebody's notes\n".repeat(100));
    let empty = sluice.file("empty.db", "");
    for database in [&notes, &empty] {
        let before = fs::read(database).expect("our own file");
        let ran = audit(&sluice, ["verify", &path, "--against", database]).await.expect(4);
        assert!(ran.stderr.contains(database.as_str()), "{}", ran.stderr);
        assert_eq!(fs::read(database).expect("our own file"), before);
    }
    let own = sluice.state().join("sluice.db");
    let before = fs::read(&own).expect("we are root");
    let forged = rewritten(&fs::read(&path).expect("we are root"), for_another_account, &private_key(&sluice));
    let copy = beside(&sluice, &[(String::new(), forged)])[0].display().to_string();
    audit(&sluice, ["verify", &copy, "--against", &own.display().to_string()]).await.expect(1);
    assert_eq!(fs::read(&own).expect("we are root"), before);
    sluice.assert_nothing_left().await;
}

/// Runs a command, and prints its peak memory in KiB on stderr.
const MEASURED: &str = "import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)";

#[tokio::test]
async fn an_endless_line_is_damage_and_takes_no_memory() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let whole = fs::read(golden().join("signed.jsonl")).expect("it is in the repository");
    let lines = lines(&whole);
    // After a complete log, and after one without an end: three billion zeros in a sparse file.
    for (name, kept) in [("whole", lines.len()), ("begun", 3)] {
        let path = sluice.dir().join(format!("{name}.jsonl"));
        fs::write(&path, lines[..kept].concat()).expect("a test's directory takes files");
        let file = fs::OpenOptions::new().append(true).open(&path).expect("it was just made");
        file.set_len(3 << 30).expect("zeros take no room");
        let (shown, bad) = (path.display().to_string(), kept as u64 + 1);
        let page =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/contract/verify_audit.py").display().to_string();

        for (args, code) in
            [(&["verify"][..], 1), (&["show"], 1), (&["hash"], 1), (&["tail"], if kept == 3 { 1 } else { 0 })]
        {
            let ran =
                sluice.command(["audit"]).wrapper(["python3", "-c", MEASURED]).args(args).arg(&shown).finish().await;
            let told = format!("{}{}", ran.stdout, ran.stderr);
            assert_eq!(ran.code, code, "{args:?}: {told}");
            assert!(code == 0 || told.contains(&format!("line {bad}: length: ")), "{args:?}: {told}");
            assert!(peak(&ran.stderr) < 64 << 10, "{args:?}: {told}");
        }
        let mut python = std::process::Command::new("python3");
        let output = python.args(["-c", MEASURED, "python3", &page, &shown]).output().expect("there is a python3");
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{said}{told}");
        assert!(said.contains(&format!("line {bad}: length: ")), "{said}");
        assert!(peak(&told) < 64 << 10, "{told}");
    }
    sluice.assert_nothing_left().await;
}

fn peak(stderr: &str) -> u64 {
    let kib = stderr.lines().rev().find_map(|line| line.strip_prefix("peak ")).and_then(|kib| kib.parse().ok());
    kib.unwrap_or_else(|| panic!("no peak in {stderr}"))
}
