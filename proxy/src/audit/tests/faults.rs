//! Every fault at every place: a file in memory with system calls that fail one by one.

use sluice_contract::recovery::{AuditOwner, plan};
use sluice_contract::{TrustAnchors, Verdict, verify};

use super::*;

const OWNER: AuditOwner<'_> = AuditOwner { run_id: "r1", attempt: 0, billing_account_id: "acct-1" };

/// Fault of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The disk takes this many bytes, and reserves none beyond.
    Disk(usize),
    /// The disk takes this many bytes, and promised more.
    Liar(usize),
    /// The process ends in the write that goes beyond this many bytes.
    Kill(usize),
    /// This write fails and takes nothing; all later ones would succeed.
    Write(usize),
    /// This sync fails; all later ones would succeed.
    Sync(usize),
}

/// Content of a file in memory, and the part of it that would survive a power cut.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    writes: usize,
    syncs: usize,
    /// Number of system calls after the one that failed.
    after: usize,
    failed: bool,
}

#[derive(Debug, Clone)]
struct Memory {
    held: Arc<Mutex<Held>>,
    fault: Fault,
}

impl Memory {
    fn fail<T>(held: &mut Held, kind: io::ErrorKind) -> io::Result<T> {
        held.failed = true;
        Err(kind.into())
    }
}

impl AuditStorage for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let held = &mut *self.held.lock().expect("no test panics inside");
        held.writes += 1;
        held.after += usize::from(held.failed);
        let len = held.bytes.len();
        let room = match self.fault {
            Fault::Disk(max) | Fault::Liar(max) | Fault::Kill(max) => max.saturating_sub(len),
            Fault::Write(at) if at == held.writes => return Self::fail(held, io::ErrorKind::Other),
            Fault::None | Fault::Write(_) | Fault::Sync(_) => bytes.len(),
        };
        let taken = room.min(bytes.len());
        held.bytes.extend_from_slice(&bytes[..taken]);
        match (taken == bytes.len(), self.fault, taken) {
            (true, ..) => Ok(taken),
            // The result does not matter: the process is gone.
            (false, Fault::Kill(_), _) => Self::fail(held, io::ErrorKind::BrokenPipe),
            (false, _, 0) => Self::fail(held, io::ErrorKind::StorageFull),
            (false, ..) => {
                held.failed = true;
                Ok(taken)
            }
        }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let held = &mut *self.held.lock().expect("no test panics inside");
        if matches!(self.fault, Fault::Kill(_)) && held.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        held.bytes.truncate(usize::try_from(len).expect("a small file"));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let held = &mut *self.held.lock().expect("no test panics inside");
        held.syncs += 1;
        held.after += usize::from(held.failed);
        if self.fault == Fault::Sync(held.syncs) {
            return Self::fail(held, io::ErrorKind::Other);
        }
        held.durable = held.bytes.clone();
        Ok(())
    }
}

impl DiskSpace for Memory {
    fn reserve(&mut self, from: u64, len: u64) -> io::Result<()> {
        match self.fault {
            Fault::Disk(max) if from + len > max as u64 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

/// Acknowledgements that a caller got.
#[derive(Debug, Default)]
struct Told {
    intents: Vec<String>,
    outcomes: Vec<String>,
    refused: usize,
    closed: bool,
}

/// A short life: calls one after another, calls at once, a refusal, an end.
fn live(journal: &Arc<Journal>, told: &mut Told) {
    let intend = |id: &str, told: &mut Told| {
        let (entry, ack) = journal.intent(CallIntent { call_id: id, ..planned() }).ok()?;
        wait(ack).ok()?;
        told.intents.push(id.to_owned());
        Some(entry)
    };
    let settle = |id: &str, entry: Option<CallGuard>, told: &mut Told| {
        let Some(entry) = entry else { return };
        if wait(entry.close(CallOutcome::not_sent(CallResult::Ok, End::Complete))).is_ok() {
            told.outcomes.push(id.to_owned());
        }
    };
    let entry = intend("a", told);
    settle("a", entry, told);
    let (first, second) = (intend("b", told), intend("c", told));
    told.refused += usize::from(wait(journal.refused("GET", "/", &refusal())).is_ok());
    settle("b", first, told);
    let third = intend("d", told);
    settle("c", second, told);
    settle("d", third, told);
    told.closed = wait(journal.close("test")).is_ok();
}

fn run(fault: Fault, mode: SyncMode) -> (Held, Told) {
    let memory = Memory { held: Arc::default(), fault };
    let (sink, space) = (AuditFile::new(memory.clone(), 0), memory.clone());
    let mut told = Told::default();
    let log = OpenLog { sink: Box::new(sink), space: Box::new(space), past: None };
    if let Ok(journal) = start(log, mode) {
        live(&journal, &mut told);
    }
    let held = std::mem::take(&mut *memory.held.lock().expect("no test panics inside"));
    (held, told)
}

fn kinds(bytes: &[u8], kind: &str) -> Vec<String> {
    let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let lines = whole.map(|line| serde_json::from_slice::<serde_json::Value>(line).expect("JSON"));
    let of_kind = lines.filter(|line| line["kind"] == kind);
    of_kind.map(|line| line["call_id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Checks a file as it is found after its process has ended, whatever ended it.
fn assert_honest(bytes: &[u8], told: &Told, name: &str) {
    let verdict = verify(bytes, &TrustAnchors::default());
    assert_ne!(verdict.exit_code(), 1, "{name}: {verdict}");
    // Each acknowledged record is there.
    let (intents, outcomes) = (kinds(bytes, "intent"), kinds(bytes, "outcome"));
    assert!(told.intents.iter().all(|id| intents.contains(id)), "{name}: {told:?}, {intents:?}");
    assert!(told.outcomes.iter().all(|id| outcomes.contains(id)), "{name}: {told:?}, {outcomes:?}");
    assert!(kinds(bytes, "refused").len() >= told.refused, "{name}");
    if told.closed {
        assert!(matches!(verdict, Verdict::Complete(_)), "{name}: {verdict}");
        return;
    }
    // The file can continue.
    let past = match plan(bytes, b"", &OWNER) {
        Ok(past) => past,
        // The end was written, and its sync failed.
        Err(sluice_contract::recovery::Unusable::Closed) => return,
        Err(error) => panic!("{name}: {error}"),
    };
    let keep = usize::try_from(past.keep).expect("a small file");
    let held = Held { bytes: bytes[..keep].to_vec(), ..Held::default() };
    let memory = Memory { held: Arc::new(Mutex::new(held)), fault: Fault::None };
    let sink = Box::new(AuditFile::new(memory.clone(), past.keep));
    let open: Vec<_> = past.log.open_ids().map(str::to_owned).collect();
    let log = OpenLog { sink, space: Box::new(memory.clone()), past: Some(past) };
    let journal = start(log, SyncMode::Off).expect("goes on");
    wait(journal.intent(CallIntent { call_id: "later", ..planned() }).expect("room").1).expect("written");
    wait(journal.close("test")).expect("closes");
    let held = memory.held.lock().expect("no test panics inside");
    let verdict = verify(&held.bytes, &TrustAnchors::default());
    let report = verdict.report().unwrap_or_else(|| panic!("{name}, gone on: {verdict}"));
    assert_eq!(report.open_calls, open, "{name}, gone on");
    assert!(report.closed, "{name}, gone on");
}

fn assert_fault(fault: Fault, mode: SyncMode) -> Told {
    let name = format!("{fault:?} with {mode:?}");
    let (held, told) = run(fault, mode);
    assert_honest(&held.bytes, &told, &name);
    if mode == SyncMode::Call {
        // A power cut takes some or all of the bytes that were not synced.
        let unsynced = held.bytes.len().saturating_sub(held.durable.len());
        assert_honest(&held.durable, &told, &format!("{name}, power cut"));
        if held.bytes.starts_with(&held.durable) {
            let half = &held.bytes[..held.durable.len() + unsynced / 2];
            assert_honest(half, &told, &format!("{name}, power cut with a part written"));
        }
    }
    assert_eq!(held.after, 0, "{name}: nothing is tried behind the first error");
    assert!(!held.failed || !told.closed, "{name}: an error shows at the end");
    if !matches!(fault, Fault::Kill(_)) {
        assert!(held.bytes.is_empty() || held.bytes.ends_with(b"\n"), "{name}: whole records");
    }
    told
}

const MODES: [SyncMode; 2] = [SyncMode::Call, SyncMode::Off];

#[test]
fn without_a_fault_all_is_told() {
    for mode in MODES {
        let told = assert_fault(Fault::None, mode);
        assert_eq!((told.intents.len(), told.outcomes.len(), told.refused, told.closed), (4, 4, 1, true));
    }
}

#[test]
fn a_full_disk_loses_no_record() {
    for mode in MODES {
        let len = run(Fault::None, mode).0.bytes.len() + 2 * usize::try_from(OUTCOME_MAX).expect("small");
        // Only whole records are refused, so not every byte is another case.
        for max in (0..len).step_by(5) {
            let told = assert_fault(Fault::Disk(max), mode);
            // Reserved blocks are there: each call that was sent has its outcome.
            assert_eq!(told.intents.len(), told.outcomes.len(), "{max}: {told:?}");
        }
    }
}

#[test]
fn a_short_write_at_any_byte_leaves_whole_records() {
    for mode in MODES {
        for max in 0..run(Fault::None, mode).0.bytes.len() {
            assert_fault(Fault::Liar(max), mode);
        }
    }
}

#[test]
fn a_kill_loses_no_acknowledged_record() {
    for mode in MODES {
        for max in 0..run(Fault::None, mode).0.bytes.len() {
            assert_fault(Fault::Kill(max), mode);
        }
    }
}

#[test]
fn any_write_that_fails_is_the_last() {
    for mode in MODES {
        for at in 1..=run(Fault::None, mode).0.writes {
            assert_fault(Fault::Write(at), mode);
        }
    }
}

#[test]
fn any_sync_that_fails_is_the_last() {
    for mode in MODES {
        for at in 1..=run(Fault::None, mode).0.syncs {
            assert_fault(Fault::Sync(at), mode);
        }
    }
}
