use std::fs;

use super::*;

struct State {
    _directory: tempfile::TempDir,
    layout: Layout,
    keys: Keys,
}

fn state() -> State {
    let directory = tempfile::tempdir().expect("there is room");
    let layout = Layout::open(directory.path()).expect("there is room");
    let keys = Keys::open(directory.path()).expect("there is room");
    State { _directory: directory, layout, keys }
}

fn all() -> Vec<Decision> {
    let pruned = PrunedRun {
        run: "r3.0".into(),
        account: "acct-1".into(),
        lines: 4,
        head: Some(Hash::of(b"x").to_string()),
        bytes: 900,
        receipts: 1,
        last_us: 7,
    };
    vec![
        Decision::Void { receipt: "r1/0/a".into(), reason: "the provider is gone".into() },
        Decision::Import { run: "r2.0".into(), lines: 3, head: Hash::of(b"y").to_string(), signed_by: None },
        Decision::Import {
            run: "r4.0".into(),
            lines: 1,
            head: Hash::of(b"z").to_string(),
            signed_by: Some("k".into()),
        },
        Decision::Prune { runs: vec![pruned] },
    ]
}

fn read(state: &State) -> Result<Decisions, DecisionError> {
    Decisions::read(&state.layout, &state.keys.public().expect("there is one"))
}

#[test]
fn decisions_are_read_as_recorded() {
    let state = state();
    assert_eq!(read(&state).expect("there is no log"), Decisions::default());
    for decision in all() {
        record(&state.layout, &state.keys, decision).expect("there is room");
    }
    // A killed process has left a partial line.
    let path = state.layout.decisions();
    fs::write(&path, [&fs::read(&path).expect("it is there")[..], b"{\"deci"].concat()).expect("it is ours");

    let decisions = read(&state).expect("it is well made");

    assert_eq!(
        (decisions.voids[0].receipt.as_str(), decisions.voids[0].reason.as_str()),
        ("r1/0/a", "the provider is gone")
    );
    let key = |run: &str| run.parse::<RunKey>().expect("a run");
    assert_eq!(decisions.vouched(&key("r2.0")), Some(Witness { seq: 2, head: Hash::of(b"y") }));
    assert_eq!(decisions.vouched(&key("r4.0")), None, "its signature is checked");
    assert_eq!(decisions.imports[&key("r4.0")].signed_by.as_deref(), Some("k"));
    assert_eq!(decisions.pruned[&"r3.0".parse().expect("a run")].0.bytes, 900);
}

#[test]
fn every_altered_byte_of_a_decision_is_found() {
    let state = state();
    record(&state.layout, &state.keys, all().remove(0)).expect("there is room");
    let good = fs::read(state.layout.decisions()).expect("it is there");
    for at in 0..good.len() - 1 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        fs::write(state.layout.decisions(), &bytes).expect("it is ours");
        assert!(matches!(read(&state), Err(DecisionError::Line { line: 1, .. })), "byte {at}");
    }
}

#[test]
fn decisions_of_a_foreign_key_are_refused() {
    let (ours, theirs) = (state(), state());
    record(&theirs.layout, &theirs.keys, all().remove(1)).expect("there is room");
    fs::copy(theirs.layout.decisions(), ours.layout.decisions()).expect("both are ours");
    let error = read(&ours).expect_err("the key is not known").to_string();
    assert!(error.contains("line 1") && error.contains("does not know"), "{error}");
}
