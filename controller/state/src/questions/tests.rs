use sluice_contract::RunId;
use tempfile::TempDir;

use super::*;
use crate::creation::NewSandbox;
use crate::process::Process;
use crate::sandboxes::{ClaimLimits, SandboxStep, SandboxVerdict};
use crate::store::Store;
use crate::test_sandbox::new_sandbox;

const HOUR: i64 = 3_600_000_000;

fn run_id() -> RunId {
    "r1".parse().expect("an id")
}

/// Returns a database with one run that was claimed.
async fn one_run() -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("there is room");
    let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
    let daemon = Process::current().expect("there is /proc");
    let new = NewSandbox { run_time_us: HOUR, ..new_sandbox("r1") };
    store.create_sandbox(new, 1).await.expect("it can be created");
    store.claim_next(&daemon, ClaimLimits { host: 1, project: 1, owner: 1 }, 2).await.expect("it is writable");
    (directory, store)
}

async fn ask(store: &Store, number: i64, options: &[&str]) -> Result<Question, QuestionError> {
    let new = NewQuestion {
        id: format!("qst-{number}"),
        key: "r1.0".parse().expect("a key"),
        question: "which?".to_owned(),
        options: options.iter().map(ToString::to_string).collect(),
        ask_timeout_us: HOUR,
    };
    store.ask_question(new, 100 + number).await
}

#[tokio::test]
async fn an_answer_is_an_option_and_given_once() {
    let (_directory, store) = one_run().await;
    ask(&store, 1, &["a", "b"]).await.expect("it works");
    let answer = async |answer: &str, now| store.answer_question(&run_id(), "qst-1", answer, "token:1", now).await;
    assert!(matches!(answer("c", 200).await, Err(QuestionError::NotAnOption)));
    assert_eq!(answer("b", 200).await.expect("an option").answer.as_deref(), Some("b"));
    assert!(matches!(answer("a", 201).await, Err(QuestionError::Closed(QuestionState::Answered))));
    assert!(matches!(store.answer_question(&run_id(), "qst-2", "a", "x", 1).await, Err(QuestionError::NotFound)));
    ask(&store, 3, &[]).await.expect("it works");
    let late = store.answer_question(&run_id(), "qst-3", "free text", "token:1", 103 + HOUR).await;
    assert!(matches!(late, Err(QuestionError::Closed(QuestionState::Expired))));
    assert_eq!(store.expire_questions(103 + HOUR).await.expect("it is writable"), 1);
}

#[tokio::test]
async fn questions_are_few_at_once_and_in_an_hour() {
    let (_directory, store) = one_run().await;
    for number in 0..20 {
        if number >= 5 {
            let blocked = ask(&store, 1000 + number, &[]).await;
            assert!(matches!(blocked, Err(QuestionError::TooManyOpen)), "{blocked:?}");
            let open = format!("qst-{}", number - 5);
            store.answer_question(&run_id(), &open, "x", "token:1", 200).await.expect("it is open");
        }
        ask(&store, number, &[]).await.expect("there is room");
    }
    store.answer_question(&run_id(), "qst-19", "x", "token:1", 200).await.expect("it is open");
    assert!(matches!(ask(&store, 20, &[]).await, Err(QuestionError::TooMany)));
    assert_eq!(store.runs_with_questions(200).await.expect("it is readable").len(), 1);
}

#[tokio::test]
async fn a_run_that_is_over_asks_nothing() {
    let (_directory, store) = one_run().await;
    ask(&store, 1, &[]).await.expect("it works");
    let step = SandboxStep::Decide(SandboxVerdict::Success);
    store.step_sandbox(&run_id(), 1, step, "test", 3).await.expect("it is legal");
    assert!(matches!(ask(&store, 2, &[]).await, Err(QuestionError::Over)));
    let late = store.answer_question(&run_id(), "qst-1", "x", "token:1", 200).await;
    assert!(matches!(late, Err(QuestionError::Over)));
    assert_eq!(store.expire_questions(200).await.expect("it is writable"), 1);
}
