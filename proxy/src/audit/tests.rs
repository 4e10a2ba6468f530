//! The order of the records, and a log that cannot be written.

use sluice_contract::PrivateKey;
use sluice_contract::certificate::key_file;
use sluice_contract::record::{CallResult, End, RunLimits, SCHEMA};

use super::*;

mod faults;
mod files;

fn refusal() -> Refusal {
    Refusal::new(crate::refusal::Reason::RouteNotAllowed, "")
}

/// Events of a scripted file, in order, and its faults.
#[derive(Debug, Clone, Default)]
struct Script {
    events: Arc<Mutex<Vec<String>>>,
    fail_append: Option<usize>,
    fail_sync: Option<usize>,
    /// Disk space, in bytes.
    room: Option<u64>,
}

#[derive(Default)]
struct Scripted {
    script: Script,
    appends: usize,
    syncs: usize,
}

impl LogSink for Scripted {
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

    fn trim(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskSpace for Script {
    fn reserve(&mut self, from: u64, len: u64) -> io::Result<()> {
        if self.room.is_some_and(|room| from + len > room) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
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
        limits: RunLimits::default(),
        pid: 1,
        policy: "".into(),
        prev: stamp.prev.into(),
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
    start(OpenLog { sink, space: Box::new(script.clone()), past: None }, mode)
}

fn start(log: OpenLog, mode: SyncMode) -> io::Result<Arc<Journal>> {
    start_with(log, mode, None)
}

fn start_with(log: OpenLog, mode: SyncMode, signer: Option<AuditSigner>) -> io::Result<Arc<Journal>> {
    let config = JournalConfig {
        run_id: "r1".parse().expect("a run id"),
        attempt: 0,
        account: "acct-1".parse().expect("an account"),
        mode,
        signer,
    };
    Journal::begin(config, log, |stamp| open_record(stamp, mode))
}

fn events(script: &Script) -> Vec<String> {
    script.events.lock().expect("no test panics inside").clone()
}

fn planned() -> CallIntent<'static> {
    CallIntent { call_id: "c", ..CallIntent::default() }
}

fn wait<T>(ack: impl Future<Output = T>) -> T {
    // Without a runtime: some tests wait a hundred thousand times.
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut ack = std::pin::pin!(ack);
    loop {
        match ack.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => break done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn an_open_log_is_shown_by_its_name() {
    let log = OpenLog { sink: Box::new(Scripted::default()), space: Box::new(Script::default()), past: None };
    assert_eq!(format!("{log:?}"), "OpenLog { past: None, .. }");
}

#[test]
fn an_intent_is_synced_before_it_is_acknowledged() {
    let script = Script::default();
    let journal = begin(&script, SyncMode::Call).expect("begins");
    let (entry, ack) = journal.intent(planned()).expect("not poisoned");
    wait(ack).expect("written");
    assert_eq!(events(&script), ["0 open", "1 intent", "sync"]);
    wait(entry.close(CallOutcome::not_sent(CallResult::Ok, End::Complete))).expect("written");
    assert_eq!(wait(journal.close("test")), Ok(LogTotals { records: 4, syncs: 3 }));
    assert_eq!(events(&script), ["0 open", "1 intent", "sync", "2 outcome", "sync", "3 close", "sync"]);
}

#[test]
fn calls_of_one_turn_share_a_sync() {
    let script = Script::default();
    let journal = begin(&script, SyncMode::Call).expect("begins");
    let calls: Vec<_> = (0..64).map(|_| journal.intent(planned()).expect("not poisoned")).collect();
    let (calls, acks): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    acks.into_iter().for_each(|ack| wait(ack).expect("written"));
    let end = |call: CallGuard| call.close(CallOutcome::not_sent(CallResult::Ok, End::Complete));
    let acks: Vec<_> = calls.into_iter().map(end).collect();
    acks.into_iter().for_each(|ack| wait(ack).expect("written"));

    assert_eq!(wait(journal.close("test")), Ok(LogTotals { records: 2 + 2 * 64, syncs: 3 }));
}

#[test]
fn a_record_is_written_though_nobody_waits_for_it() {
    let script = Script::default();
    let journal = begin(&script, SyncMode::Call).expect("begins");
    let (entry, ack) = journal.intent(planned()).expect("not poisoned");
    drop(ack);
    drop(entry);

    while events(&script).last().is_none_or(|event| event != "sync") {
        std::thread::yield_now();
    }

    assert!(events(&script).contains(&"1 intent".to_owned()), "{:?}", events(&script));
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
        assert!(journal.refuses());
        assert_eq!(wait(entry.close(CallOutcome::not_sent(CallResult::Ok, End::Complete))), Err(Poisoned));
        assert!(journal.intent(planned()).is_err());
        assert_eq!(wait(journal.refused("GET", "/", &refusal())), Err(Poisoned));
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
fn a_full_disk_fails_the_start() {
    let script = Script { fail_append: Some(1), ..Script::default() };
    assert!(begin(&script, SyncMode::Call).is_err());
}

#[test]
fn a_full_disk_refuses_calls_and_loses_none() {
    for mode in [SyncMode::Call, SyncMode::Off] {
        // Disk space for open, two intents and the outcomes and the close that are due.
        let script = Script { room: Some(2 * OUTCOME_MAX + CLOSE_MAX + 1800), ..Script::default() };
        let journal = begin(&script, mode).expect("begins");
        let (first, ack) = journal.intent(planned()).expect("room");
        wait(ack).expect("written");
        let (second, ack) = journal.intent(planned()).expect("room");
        wait(ack).expect("written");
        assert!(journal.intent(planned()).is_err(), "no room for a third");
        assert!(journal.refuses());
        assert_eq!(wait(journal.refused("GET", "/", &refusal())), Err(Poisoned));

        wait(first.close(CallOutcome::not_sent(CallResult::Ok, End::Complete))).expect("has its room");
        // The disk has space again, but a log that was full once stays full.
        assert!(journal.intent(planned()).is_err());
        wait(second.close(CallOutcome::not_sent(CallResult::Ok, End::Complete))).expect("has its room");

        assert_eq!(wait(journal.close("test")), Err(Poisoned), "the end says that something is missing");
        let written: Vec<_> = events(&script).into_iter().filter(|event| event != "sync").collect();
        assert_eq!(written, ["0 open", "1 intent", "2 intent", "3 outcome", "4 outcome", "5 close"], "{mode:?}");
    }
}

#[test]
fn no_record_is_longer_than_its_room() {
    let most = u64::from(u32::MAX) << 20;
    let some = Some(most);
    let name = || Some("\"".repeat(256));
    let usage = sluice_contract::record::Usage {
        cache_write: some,
        cached_input: some,
        input: some,
        output: some,
        reasoning: some,
        total: some,
    };
    let ended = CallOutcome {
        drained: Some(false),
        cache_hit: Some(true),
        litellm_call_id: name(),
        model_served: name(),
        response_id: name(),
        status: Some(200),
        usage: Some(usage),
        cost: Usd::parse(&format!("0.{}", "1".repeat(40))).ok(),
        resp_bytes: most,
        timing: sluice_contract::record::Timing {
            connect: some,
            first_token: some,
            longest_gap: some,
            own: most,
            queue: most,
            total: most,
            ttfb: some,
        },
        ..CallOutcome::not_sent(CallResult::UpstreamError, End::CutByUpstream)
    };
    let lengths = Arc::new(Mutex::new(Vec::new()));
    struct Lengths(Arc<Mutex<Vec<u64>>>);
    impl LogSink for Lengths {
        fn append(&mut self, line: &[u8]) -> io::Result<()> {
            self.0.lock().expect("no test panics inside").push(line.len() as u64);
            Ok(())
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn trim(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = OpenLog { sink: Box::new(Lengths(lengths.clone())), space: Box::new(Script::default()), past: None };
    let file = key_file(&[42; 32], &"r".repeat(63), u32::MAX, &PrivateKey::from_seed(&[1; 32]));
    let signer = Some(AuditSigner::parse(file.as_bytes()).expect("a key file"));
    let config = JournalConfig {
        run_id: "r".repeat(63).parse().expect("a run id"),
        attempt: u32::MAX,
        account: "\"".repeat(255).parse().expect("an account"),
        mode: SyncMode::Off,
        signer,
    };
    let journal = Journal::begin(config, log, |stamp| open_record(stamp, SyncMode::Off)).expect("begins");
    let id = uuid::Uuid::max().to_string();
    let model = "\"".repeat(256);
    let intent = CallIntent { call_id: &id, model: Some(&model), ..planned() };
    let (entry, ack) = journal.intent(intent).expect("not poisoned");
    wait(ack).expect("written");
    wait(entry.close(ended)).expect("written");
    wait(journal.close("deadline")).expect("closes");
    let lengths = lengths.lock().expect("no test panics inside");
    assert!((OUTCOME_MAX / 2..=OUTCOME_MAX).contains(&lengths[2]), "{lengths:?}");
    assert!((CLOSE_MAX / 2..=CLOSE_MAX).contains(&lengths[3]), "{lengths:?}");
}

#[test]
fn a_flood_of_refusals_is_counted_and_not_written() {
    let script = Script::default();
    let journal = begin(&script, SyncMode::Off).expect("begins");
    for _ in 0..REFUSED_LINES + 5 {
        wait(journal.refused("GET", "/x", &refusal())).expect("taken");
    }
    assert_eq!(events(&script).len() as u64, 1 + REFUSED_LINES);
    wait(journal.close("test")).expect("closes");
}
