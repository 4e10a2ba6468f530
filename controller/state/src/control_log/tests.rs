//! The control log: chain, signatures, several writers, torn lines.

use std::fs;

use serde_json::json;

use super::*;

struct TestControlLog {
    _scratch: tempfile::TempDir,
    layout: Layout,
    keys: Keys,
}

impl TestControlLog {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(&scratch.path().join("st")).expect("there is room");
        let keys = Keys::open(layout.state()).expect("there is room");
        Self { _scratch: scratch, layout, keys }
    }

    fn open(&self) -> ControlLog {
        ControlLog::open(&self.layout, &self.keys).expect("it is whole")
    }

    fn verify(&self) -> Result<ControlSummary, ControlLogError> {
        verify(&self.layout.control_log(), &self.keys.public().expect("they were made"), |_| {})
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.layout.control_log()).expect("it is there")
    }

    fn put(&self, bytes: &[u8]) {
        fs::write(self.layout.control_log(), bytes).expect("it is ours");
    }
}

fn entry(object: &str) -> ControlEntry {
    ControlEntry {
        principal: "uid:0".to_owned(),
        role: "admin".to_owned(),
        way: "admin_socket".to_owned(),
        operation: "budget.set".to_owned(),
        object: Some(object.to_owned()),
        after: Some(json!({ "usd": "12.5", "kind": "set \u{e9}\n" })),
        result: "accepted".to_owned(),
        ..ControlEntry::default()
    }
}

#[test]
fn lines_of_several_writers_are_one_chain() {
    let scene = TestControlLog::new();
    let (first, second) = (scene.open(), scene.open());
    for (number, log) in [&first, &second, &second, &first].into_iter().enumerate() {
        assert_eq!(log.append(entry("acct-1")).expect("there is room"), number as u64);
    }
    scene.keys.rotate().expect("there is room");
    assert_eq!(first.append(entry("acct-2")).expect("there is room"), 4);
    let mut objects = Vec::new();
    let keys = scene.keys.public().expect("they were made");
    let summary =
        verify(&scene.layout.control_log(), &keys, |line| objects.push(line.object.clone())).expect("it is whole");
    assert_eq!((summary.end.seq, summary.has_torn_line, objects.len()), (5, false, 5));
    assert_eq!(objects[4].as_deref(), Some("acct-2"));
}

#[test]
fn a_removed_or_altered_line_is_named() {
    let scene = TestControlLog::new();
    let log = scene.open();
    for _ in 0..4 {
        log.append(entry("acct-1")).expect("there is room");
    }
    let bytes = scene.bytes();
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let named = |bytes: &[u8]| {
        scene.put(bytes);
        match scene.verify() {
            Err(ControlLogError::Fault { fault, .. }) => fault.line,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named(&[lines[0], lines[2], lines[3]].concat()), 2);
    assert_eq!(named(&[lines[1]].concat()), 1);
    let altered = String::from_utf8(lines[1].to_vec()).expect("it is text").replace("acct-1", "acct-2");
    assert_eq!(named(&[lines[0], altered.as_bytes(), lines[2]].concat()), 2);
    assert_eq!(named(&[lines[0], b"{}\n", lines[1]].concat()), 2);
    assert_eq!(named(&[lines[0], altered.as_bytes()].concat()), 2);
    assert!(ControlLog::open(&scene.layout, &scene.keys).is_err(), "nothing is added after a false line");
}

#[test]
fn a_log_is_opened_at_its_last_line() {
    let scene = TestControlLog::new();
    let log = scene.open();
    for length in [10, 900_000, 600_000, 10] {
        log.append(entry(&"x".repeat(length))).expect("there is room");
        let next = scene.open().append(entry("next")).expect("it follows");
        assert_eq!(log.append(entry("again")).expect("it follows"), next + 1);
    }
    assert_eq!(scene.verify().expect("it is whole").end.seq, 12);
}

#[test]
fn a_torn_line_is_replaced_and_a_lost_one_is_noticed() {
    let scene = TestControlLog::new();
    let log = scene.open();
    log.append(entry("acct-1")).expect("there is room");
    let whole = scene.bytes();
    scene.put(&[&whole[..], &whole[..20]].concat());
    assert!(scene.verify().expect("its whole lines are valid").has_torn_line);
    assert_eq!(scene.open().append(entry("acct-2")).expect("there is room"), 1);
    assert_eq!(log.append(entry("acct-3")).expect("it sees the other line"), 2);
    assert!(!scene.verify().expect("it is whole").has_torn_line);
    scene.put(&whole);
    assert!(matches!(log.append(entry("acct-4")), Err(ControlLogError::Shortened(_))));
}
