//! Real files: made, locked, gone on with, left alone.

use std::path::PathBuf;

use sluice_contract::recovery::AuditOwner;
use sluice_contract::{PublicKey, TrustAnchors, Verdict, verify};

use super::*;

const OWNER: AuditOwner<'_> = AuditOwner { run_id: "r1", attempt: 0, billing_account_id: "acct-1" };

/// A directory of its own; gone when dropped.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-audit-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("a.jsonl")
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).expect("a directory");
        let mut names: Vec<_> =
            names.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    fn verdict(&self) -> Verdict {
        let keys = [public()];
        verify(&std::fs::read(self.file()).expect("the file"), &TrustAnchors { keys: &keys, seen: &[] })
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn signer() -> Option<AuditSigner> {
    Some(PrivateKey::from_seed(&[42; 32]).into())
}

fn public() -> PublicKey {
    signer().expect("made above").key().public()
}

/// One call is whole and one is open; then its process is gone.
fn killed(dir: &Dir) {
    let journal = start_with(open(&dir.file(), &OWNER).expect("a new file"), SyncMode::Call, signer()).expect("begins");
    let (entry, ack) = journal.intent(Planned { call_id: "c1", ..planned() }).expect("room");
    wait(ack).expect("written");
    wait(entry.close(Ended::not_sent(CallResult::Ok, End::Complete))).expect("written");
    let (entry, ack) = journal.intent(Planned { call_id: "c2", ..planned() }).expect("room");
    wait(ack).expect("written");
    // Its drop would write: a process that is killed does not.
    std::mem::forget(entry);
    // Unlocks the file, as the end of the process does.
    let mut state = journal.lock();
    let out = std::mem::replace(&mut state.out, Out::Closed);
    state.room.release();
    drop(state);
    out.end(&journal.poison).expect("the writer ends");
}

fn tear(dir: &Dir, bytes: &[u8]) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().append(true).open(dir.file()).expect("the file");
    file.write_all(bytes).expect("written");
}

#[test]
fn a_file_has_one_writer_and_the_right_mode() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new("mode");
    let log = open(&dir.file(), &OWNER).expect("a new file");
    assert!(matches!(open(&dir.file(), &OWNER), Err(OpenError::Locked)));
    let mode = std::fs::metadata(dir.file()).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(log);
    assert!(matches!(open(&dir.0, &OWNER), Err(OpenError::NotAFile)));
}

#[test]
fn a_dropped_entry_is_closed_as_never_sent() {
    let dir = Dir::new("dropped");
    let journal = start_with(open(&dir.file(), &OWNER).expect("a new file"), SyncMode::Call, signer()).expect("begins");
    drop(journal.intent(planned()).expect("not poisoned"));
    wait(journal.close("test")).expect("closes");
    let text = std::fs::read_to_string(dir.file()).expect("the file");
    assert!(text.lines().nth(2).expect("an outcome").contains(r#""null_reason":"not_sent""#), "{text}");
    assert!(text.lines().nth(3).expect("a close").contains(r#""calls":1"#), "{text}");
    assert!(matches!(dir.verdict(), Verdict::Complete(_)), "{}", dir.verdict());
    // What has ended in order does not go on.
    assert!(matches!(open(&dir.file(), &OWNER), Err(OpenError::Unusable(_))));
}

#[test]
fn nothing_stays_reserved_behind_the_end() {
    use std::os::unix::fs::MetadataExt;
    let dir = Dir::new("blocks");
    let journal = start_with(open(&dir.file(), &OWNER).expect("a new file"), SyncMode::Call, signer()).expect("begins");
    wait(journal.refused("GET", "/", &refusal())).expect("written");
    let blocks = || std::fs::metadata(dir.file()).expect("the file").blocks() * 512;
    assert!(blocks() >= 60_000, "{} bytes are reserved", blocks());
    wait(journal.close("test")).expect("closes");
    assert!(blocks() <= 8192, "{} bytes are left", blocks());
}

#[test]
fn a_torn_line_is_kept_aside_and_its_file_goes_on() {
    let dir = Dir::new("torn");
    killed(&dir);
    let whole = std::fs::read(dir.file()).expect("the file");
    tear(&dir, b"{\"attempt\":0,\"call");

    let journal = start_with(open(&dir.file(), &OWNER).expect("goes on"), SyncMode::Call, signer()).expect("begins");
    let (entry, ack) = journal.intent(Planned { call_id: "c3", ..planned() }).expect("room");
    wait(ack).expect("written");
    drop(entry);
    wait(journal.close("test")).expect("closes");

    let aside = format!("a.jsonl.torn-{}", whole.len());
    assert_eq!(dir.names(), ["a.jsonl".to_owned(), aside.clone()]);
    assert_eq!(std::fs::read(dir.0.join(aside)).expect("the copy"), b"{\"attempt\":0,\"call");
    let bytes = std::fs::read(dir.file()).expect("the file");
    assert!(bytes.starts_with(&whole));
    let Verdict::Incomplete(report) = dir.verdict() else { panic!("{}", dir.verdict()) };
    assert_eq!((report.closed, report.recovered, report.epochs, report.torn), (true, 1, 1, 0));
    assert_eq!((report.open_calls, report.totals.calls), (vec!["c2".to_owned()], 3));
    let (log, _) = sluice_contract::AuditLog::read(&bytes).expect("readable");
    let recovered = &log.recovered()[0];
    assert_eq!((recovered.bytes, recovered.offset), (18, whole.len() as u64));
    assert_eq!(log.close().map(|close| close.unknown), Some(1));
}

#[test]
fn a_restart_that_ended_before_it_could_say_so_is_made_good() {
    let dir = Dir::new("twice");
    killed(&dir);
    let whole = std::fs::metadata(dir.file()).expect("the file").len();
    tear(&dir, b"torn");
    // Cut, and gone before the first record.
    drop(open(&dir.file(), &OWNER).expect("goes on"));
    assert_eq!(std::fs::metadata(dir.file()).expect("the file").len(), whole);

    let journal = start_with(open(&dir.file(), &OWNER).expect("goes on"), SyncMode::Call, signer()).expect("begins");
    wait(journal.close("test")).expect("closes");

    let bytes = std::fs::read(dir.file()).expect("the file");
    let (log, _) = sluice_contract::AuditLog::read(&bytes).expect("readable");
    assert_eq!(log.recovered().iter().map(|recovered| recovered.bytes).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_file_without_one_whole_line_begins_anew() {
    let dir = Dir::new("anew");
    std::fs::write(dir.file(), b"{\"attempt\":0,\"bil").expect("written");
    let journal = start_with(open(&dir.file(), &OWNER).expect("begins anew"), SyncMode::Off, signer()).expect("begins");
    wait(journal.close("test")).expect("closes");
    let text = std::fs::read_to_string(dir.file()).expect("the file");
    let kinds: Vec<_> = ["open", "recovered", "close"].map(|kind| format!("\"kind\":\"{kind}\"")).to_vec();
    assert!(text.lines().zip(&kinds).all(|(line, kind)| line.contains(kind)) && text.lines().count() == 3, "{text}");
    assert!(matches!(dir.verdict(), Verdict::Incomplete(_)), "{}", dir.verdict());
}

#[test]
fn what_is_damaged_or_anothers_stays_as_it_is() {
    let dir = Dir::new("damaged");
    killed(&dir);
    let good = std::fs::read(dir.file()).expect("the file");
    let mut bad = good.clone();
    bad[20] ^= 1;
    bad.extend_from_slice(b"torn");
    for (bytes, owner) in [
        (&bad, OWNER),
        (&good, AuditOwner { run_id: "r2", ..OWNER }),
        (&good, AuditOwner { attempt: 1, ..OWNER }),
        (&good, AuditOwner { billing_account_id: "acct-2", ..OWNER }),
        (&b"-----BEGIN".to_vec(), OWNER),
    ] {
        std::fs::write(dir.file(), bytes).expect("written");
        assert!(matches!(check(&dir.file(), &owner), Err(OpenError::Unusable(_))));
        assert!(matches!(open(&dir.file(), &owner), Err(OpenError::Unusable(_))));
        assert_eq!(&std::fs::read(dir.file()).expect("the file"), bytes);
        assert_eq!(dir.names(), ["a.jsonl"]);
    }
}
