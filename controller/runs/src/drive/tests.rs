//! Tests of many runs at once, and of the observations of one run.

use std::sync::Mutex;

use sluice_state::run::RunVerdict;

use super::*;
use crate::test_engine::{ScriptedContainer, TestHost, from_now};

/// Collects observations as text.
#[derive(Debug, Default)]
struct Collector(Mutex<Vec<String>>);

impl Observer for Collector {
    fn observe(&self, observation: Observation<'_>) {
        let text = match observation {
            Observation::StepBegun(step) => format!("begun {step:?}"),
            Observation::StepDone { step, .. } => format!("done {step:?}"),
            Observation::StepFailed { step, error, .. } => format!("failed {step:?}: {}", error_chain(error)),
            Observation::Entered { phase, .. } => format!("entered {phase:?}"),
            Observation::Waiting(_) => "waiting".to_owned(),
            Observation::Decided(verdict) => format!("decided {verdict:?}"),
            Observation::Note(note) => note.to_owned(),
        };
        self.0.lock().expect("no observer panics").push(text);
    }
}

/// Drives a run of a killed controller; owned, so that a task can drive it.
async fn drive_orphan(host: Arc<Host>, key: RunKey, run: Run, timeout: Duration, observer: Arc<Collector>) -> Run {
    let resources = RunResources::adopt(&host, &key, None).await.expect("the engine answers");
    let context = DriveContext { host, key, generation: 0, timeout, clock: Arc::default(), observer };
    let (_never, mut cancelled) = watch::channel(None);
    drive(run, resources, &context, &mut cancelled).await.expect("it is ours").run
}

fn running() -> Run {
    Run { phase: RunPhase::Running, ..Run::new() }
}

#[tokio::test]
async fn tasks_drive_many_runs_at_once() {
    let test = TestHost::start().await;
    let mut tasks = Vec::new();
    for n in 0..50 {
        let key: RunKey = format!("r{n}.0").parse().expect("a key");
        test.orphan(&key, from_now(600), None).await;
        let run = running().apply(RunUpdate::Orphaned).expect("it was running");
        let observer = Arc::new(Collector::default());
        tasks.push(tokio::spawn(drive_orphan(Arc::clone(&test.host), key, run, Duration::ZERO, observer)));
    }
    for task in tasks {
        let run = task.await.expect("no panic");
        assert_eq!((run.phase, run.verdict), (RunPhase::Closed, Some(RunVerdict::Interrupted)));
    }
    assert!(test.host.store.open_runs().await.expect("it is open").is_empty());
}

#[tokio::test]
async fn an_observer_sees_each_step_and_the_verdict() {
    let test = TestHost::start().await;
    test.set(ScriptedContainer::Running);
    let key: RunKey = "r1.0".parse().expect("a key");
    test.orphan(&key, from_now(600), None).await;
    let observer = Arc::new(Collector::default());

    drive_orphan(Arc::clone(&test.host), key, running(), Duration::from_millis(10), Arc::clone(&observer)).await;

    let seen = observer.0.lock().expect("no observer panics").clone();
    let expected = [
        "waiting", "entered Completing", "decided TimedOut", "begun StopContainer", "done StopContainer",
        "begun RemoveContainer", "done RemoveContainer", "begun Tally", "done Tally", "begun RemoveDirectories",
        "done RemoveDirectories", "begun Close", "done Close", "entered Closed",
    ];
    assert_eq!(seen, expected);
}
