use super::*;
use sluice_contract::record::{End, Limits};

/// What happened to a scripted file, in order.
#[derive(Debug, Clone, Default)]
struct Script {
    events: Arc<Mutex<Vec<String>>>,
    fail_append: Option<usize>,
    fail_sync: Option<usize>,
}

#[derive(Default)]
struct Scripted {
    script: Script,
    appends: usize,
    syncs: usize,
}

impl Sink for Scripted {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.appends += 1;
        if self.script.fail_append == Some(self.appends) {
            return Err(io::Error::other("injected"));
        }
        let value: serde_json::Value = serde_json::from_slice(line).expect("one record a line");
        assert_eq!(line.last(), Some(&b'\n'));
        let text = format!("{} {}", value["seq"], value["kind"].as_str().expect("a kind"));
        self.script.events.lock().expect("no test panics inside").push(text);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        self.script.events.lock().expect("no test panics inside").push("sync".to_owned());
        if self.script.fail_sync == Some(self.syncs) { Err(io::Error::other("injected")) } else { Ok(()) }
    }
}

fn open_record(stamp: Stamp<'_>, mode: SyncMode) -> Open<'static> {
    Open {
        attempt: stamp.attempt,
        billing_account_id: "acct-1".into(),
        boot_id: "".into(),
        build: "".into(),
        graph_id: "".into(),
        kind: Open::KIND.into(),
        limits: Limits::default(),
        pid: 1,
        policy: "".into(),
        proxy_version: "".into(),
        run_id: stamp.run_id.to_owned().into(),
        seq: stamp.seq,
        sync: mode.as_str().into(),
        ts: stamp.ts.into(),
        upstream: "".into(),
        v: SCHEMA,
    }
}

fn begin(script: &Script, mode: SyncMode) -> io::Result<Arc<Journal>> {
    let sink = Box::new(Scripted { script: script.clone(), ..Scripted::default() });
    Journal::begin("r1".parse().expect("a run id"), 0, sink, mode, |stamp| open_record(stamp, mode))
}

fn events(script: &Script) -> Vec<String> {
    script.events.lock().expect("no test panics inside").clone()
}

fn planned() -> Planned<'static> {
    Planned { call_id: "c", ..Planned::default() }
}

fn wait(ack: impl Future<Output = Result<(), Poisoned>>) -> Result<(), Poisoned> {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(ack)
}

#[test]
fn an_intent_is_synced_before_it_is_acknowledged() {
    let script = Script::default();
    let journal = begin(&script, SyncMode::Call).expect("begins");
    let (entry, ack) = journal.intent(planned()).expect("not poisoned");
    wait(ack).expect("written");
    assert_eq!(events(&script), ["0 open", "1 intent", "sync"]);
    wait(entry.close(Ended::not_sent(CallResult::Ok, End::Complete))).expect("written");
    wait(journal.close("test")).expect("closes");
    assert_eq!(events(&script), ["0 open", "1 intent", "sync", "2 outcome", "sync", "3 close", "sync"]);
}

#[test]
fn without_sync_every_record_is_still_written_at_once() {
    let script = Script::default();
    let journal = begin(&script, SyncMode::Off).expect("begins");
    let (entry, ack) = journal.intent(planned()).expect("not poisoned");
    assert!(matches!(ack, Ack::Known(Ok(()))));
    assert_eq!(events(&script), ["0 open", "1 intent"]);
    drop(entry);
    wait(journal.close("test")).expect("closes");
    assert_eq!(events(&script), ["0 open", "1 intent", "2 outcome", "3 close", "sync"]);
}

#[test]
fn a_failed_write_poisons_for_ever() {
    for mode in [SyncMode::Call, SyncMode::Off] {
        let script = Script { fail_append: Some(2), ..Script::default() };
        let journal = begin(&script, mode).expect("begins");
        let (entry, ack) = journal.intent(planned()).expect("not poisoned yet");
        assert_eq!(wait(ack), Err(Poisoned));
        assert!(journal.is_poisoned());
        assert_eq!(wait(entry.close(Ended::not_sent(CallResult::Ok, End::Complete))), Err(Poisoned));
        assert!(journal.intent(planned()).is_err());
        assert_eq!(wait(journal.refused("GET", "/", "x", 404)), Err(Poisoned));
        assert_eq!(wait(journal.close("test")), Err(Poisoned));
        assert_eq!(events(&script), ["0 open"], "{mode:?}");
    }
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let script = Script { fail_sync: Some(1), ..Script::default() };
    let journal = begin(&script, SyncMode::Call).expect("begins");
    let (entry, ack) = journal.intent(planned()).expect("not poisoned yet");
    assert_eq!(wait(ack), Err(Poisoned));
    drop(entry);
    assert!(journal.intent(planned()).is_err());
    assert_eq!(wait(journal.close("test")), Err(Poisoned));
    assert_eq!(events(&script).iter().filter(|event| *event == "sync").count(), 1);
}

#[test]
fn a_disk_that_is_full_at_the_start_shows_at_the_start() {
    let script = Script { fail_append: Some(1), ..Script::default() };
    assert!(begin(&script, SyncMode::Call).is_err());
}

#[test]
fn a_dropped_entry_is_closed_as_never_sent() {
    let dir = std::env::temp_dir().join(format!("sluice-audit-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join("a.jsonl");
    let file = AuditFile::create(&path).expect("a new file");
    assert!(matches!(AuditFile::create(&path), Err(OpenError::Locked)));
    let journal = Journal::begin("r1".parse().expect("a run id"), 0, Box::new(file), SyncMode::Call, |stamp| {
        open_record(stamp, SyncMode::Call)
    })
    .expect("begins");
    drop(journal.intent(planned()).expect("not poisoned"));
    wait(journal.close("test")).expect("closes");
    let text = std::fs::read_to_string(&path).expect("a file");
    assert!(text.lines().nth(2).expect("an outcome").contains(r#""null_reason":"not_sent""#), "{text}");
    assert!(text.lines().nth(3).expect("a close").contains(r#""calls":1"#), "{text}");
    assert!(matches!(AuditFile::create(&path), Err(OpenError::NotEmpty)));
    assert!(matches!(AuditFile::create(&dir), Err(OpenError::NotAFile)));
    std::fs::remove_dir_all(&dir).expect("cleaned");
}

#[test]
fn a_flood_of_refusals_is_counted_and_not_written() {
    let script = Script::default();
    let journal = begin(&script, SyncMode::Off).expect("begins");
    for _ in 0..REFUSED_LINES + 5 {
        wait(journal.refused("GET", "/x", "route_not_allowed", 404)).expect("taken");
    }
    assert_eq!(events(&script).len() as u64, 1 + REFUSED_LINES);
    wait(journal.close("test")).expect("closes");
}
