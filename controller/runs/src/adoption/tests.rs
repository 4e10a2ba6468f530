//! Decisions about adopted runs, and the resumption of one with a scripted engine.

use sluice_contract::RunKey;

use super::*;
use crate::engine::StdioConfig;
use crate::input::Stdin;
use crate::observer::{NoObserver, Observation};
use crate::test_engine::{ScriptedContainer, TestHost, TestSidecar, from_now};

const NOW: SystemTime = SystemTime::UNIX_EPOCH;
const WHOLE: ObservedState =
    ObservedState { directories: true, sidecar: SidecarPhase::Alive, container: ContainerState::Running };

#[test]
fn a_run_is_resumed_where_its_sidecar_lives() {
    let expires = |seconds| Some(NOW + EXPIRY_MARGIN + Duration::from_secs(seconds));
    let resume = |seconds| Adoption::Resume(Duration::from_secs(seconds));
    let with = |container| ObservedState { container, ..WHOLE };
    let rows = [
        (Some(RunPhase::Running), WHOLE, expires(60), resume(60)),
        // The start was not recorded.
        (Some(RunPhase::Creating), WHOLE, expires(60), resume(60)),
        // The program has ended meanwhile: its exit code is its verdict.
        (Some(RunPhase::Running), with(ContainerState::Exited), expires(60), resume(60)),
        // The deadline has passed: the run ends as timed out.
        (Some(RunPhase::Running), WHOLE, expires(0), resume(0)),
        (Some(RunPhase::Running), WHOLE, Some(NOW), resume(0)),
        // A one-shot run: its sidecar has ended with its controller.
        (
            Some(RunPhase::Running),
            ObservedState { sidecar: SidecarPhase::Absent, ..WHOLE },
            expires(60),
            Adoption::TakeDown,
        ),
        (Some(RunPhase::Running), ObservedState { directories: false, ..WHOLE }, expires(60), Adoption::TakeDown),
        (Some(RunPhase::Running), with(ContainerState::Absent), None, Adoption::TakeDown),
        (Some(RunPhase::Running), WHOLE, None, Adoption::TakeDown),
        (Some(RunPhase::Creating), with(ContainerState::Created), expires(60), Adoption::TakeDown),
        (Some(RunPhase::Pending), WHOLE, expires(60), Adoption::TakeDown),
        (Some(RunPhase::Completing), WHOLE, expires(60), Adoption::TakeDown),
        (Some(RunPhase::Closed), WHOLE, expires(60), Adoption::TakeDown),
        (None, WHOLE, expires(60), Adoption::TakeDown),
    ];
    for (phase, observed, expires, expected) in rows {
        let adopted = AdoptedRun { phase, has_verdict: false, observed, expires };
        assert_eq!(adopted.decide(NOW), expected, "{adopted:?}");
        let has_ended = AdoptedRun { has_verdict: true, ..adopted };
        let expected = if phase == Some(RunPhase::Completing) { Adoption::Complete } else { expected };
        assert_eq!(has_ended.decide(NOW), expected, "{has_ended:?}");
    }
}

/// Reports when a run waits for its container.
#[derive(Debug, Default)]
struct WaitSignal(tokio::sync::Notify);

impl Observer for WaitSignal {
    fn observe(&self, observation: Observation<'_>) {
        if matches!(observation, Observation::Waiting(_)) {
            self.0.notify_one();
        }
    }
}

fn resumption(observer: Arc<dyn Observer>) -> Resumption {
    Resumption {
        contract: Contract::Plain,
        output: OutputConfig::Attached(StdioConfig {
            stdin: Stdin::Closed,
            tty: false,
            max: 1024,
            live: None,
            record: None,
        }),
        stop: StopPolicy::after(Duration::from_secs(1)),
        limits: LimitValues::default(),
        clock: Arc::default(),
        observer,
        clone: None,
    }
}

fn completed(resumed: Resumed) -> CompletedRun {
    match resumed {
        Resumed::Completed(completed) => *completed,
        Resumed::Refused(_) => panic!("it is not resumed"),
    }
}

fn key() -> RunKey {
    "r1.0".parse().expect("a key")
}

#[tokio::test]
async fn a_resumed_run_ends_with_its_own_exit_code() {
    let test = TestHost::start().await;
    let sidecar = TestSidecar::start();
    test.set(ScriptedContainer::Running);
    let orphan = test.orphan(&key(), from_now(600), Some(&sidecar.process())).await;
    let (_cancel, cancelled) = watch::channel(None);
    let waits = Arc::new(WaitSignal::default());
    let resumption = resumption(waits.clone());
    let resumed = tokio::spawn(resume(Arc::clone(&test.host), orphan, resumption, cancelled));

    waits.0.notified().await;
    assert!(!resumed.is_finished() && sidecar.process().is_alive());
    test.set(ScriptedContainer::Exited(42));
    let completed = completed(resumed.await.expect("no panic").expect("it is driven"));

    assert_eq!(completed.report.exit_code, 42, "{:?}", completed.report);
    assert_eq!(completed.report.stdout, "later");
    assert_eq!(test.host.store.phase(&key()).await.expect("it is open").as_deref(), Some("closed"));
    assert_eq!(test.container(), ScriptedContainer::Absent);
    assert!(!test.host.layout.run(&key()).root.exists());
    assert!(test.host.store.open_runs().await.expect("it is open").is_empty());
}

#[tokio::test]
async fn a_resumed_run_ends_at_its_deadline() {
    let test = TestHost::start().await;
    let sidecar = TestSidecar::start();
    test.set(ScriptedContainer::Running);
    let expires = from_now(1) + EXPIRY_MARGIN;
    let orphan = test.orphan(&key(), expires, Some(&sidecar.process())).await;
    let (_cancel, cancelled) = watch::channel(None);

    let ended = resume(Arc::clone(&test.host), orphan, resumption(Arc::new(NoObserver)), cancelled)
        .await
        .expect("it is driven");

    assert_eq!(completed(ended).report.error_code, Some("timeout"));
    assert_eq!(test.container(), ScriptedContainer::Absent);
}

#[tokio::test]
async fn a_run_without_a_sidecar_is_not_touched() {
    let test = TestHost::start().await;
    test.set(ScriptedContainer::Running);
    let orphan = test.orphan(&key(), from_now(600), None).await;
    let (_cancel, cancelled) = watch::channel(None);

    let resumed = resume(Arc::clone(&test.host), orphan.clone(), resumption(Arc::new(NoObserver)), cancelled)
        .await
        .expect("it answers");

    assert!(matches!(resumed, Resumed::Refused(_)));
    assert_eq!(test.container(), ScriptedContainer::Running);
    assert_eq!(test.host.store.open_runs().await.expect("it is open"), [orphan]);
}
