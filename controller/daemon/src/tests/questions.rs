//! Questions of agents: asked by the relay's functions, answered over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::RunKey;

use crate::questions::{OwnQuestion, QuestionRequest, ask, own};
use crate::test_daemon::{TestAnswer, TestDaemon};

struct Asking {
    daemon: TestDaemon,
    id: String,
}

impl Asking {
    async fn new() -> Self {
        let daemon = TestDaemon::with_runs().await;
        let (id, _) = daemon.working_run().await;
        Self { daemon, id }
    }

    fn key(&self) -> RunKey {
        format!("{}.0", self.id).parse().expect("a key")
    }

    async fn ask(&self, question: &str, options: &[&str]) -> Result<OwnQuestion, &'static str> {
        let options = options.iter().map(ToString::to_string).collect();
        let request = QuestionRequest { question: question.to_owned(), options };
        ask(&self.daemon.running.context, &self.key(), request).await.map_err(|error| error.code())
    }

    async fn answer(&self, token: &str, question: &str, answer: &str) -> TestAnswer {
        let path = format!("/api/v1/sandboxes/{}/questions/{question}/answer", self.id);
        self.daemon.request(token, "POST", &path, Some(&json!({ "answer": answer }))).await
    }
}

#[tokio::test]
async fn an_answer_comes_to_the_agent_that_waits() {
    let asking = Asking::new().await;
    let asked = asking.ask("go\u{202e} on?\u{7}", &["yes", "no"]).await.expect("it works");
    let listed = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}/questions", asking.id)).await.json();
    assert_eq!(listed["questions"][0]["question"], "go on?", "{listed}");
    let shown = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}", asking.id)).await.json();
    assert_eq!(shown["waiting_for"], "answer");

    let (context, key) = (&asking.daemon.running.context, asking.key());
    let waiting = own(context, &key, &asked.question_id, Duration::from_secs(25));
    let answering = async {
        assert_eq!(asking.answer("slu_alice", &asked.question_id, "maybe").await.status, 422);
        assert_eq!(asking.answer("slu_bob", &asked.question_id, "yes").await.status, 404);
        assert_eq!(asking.answer("slu_viewer", &asked.question_id, "yes").await.status, 403);
        asking.answer("slu_alice", &asked.question_id, "yes").await
    };
    let (waited, answered) = tokio::join!(waiting, answering);

    assert_eq!(answered.json()["answer"], "yes", "{answered:?}");
    let waited = waited.expect("it was asked");
    assert_eq!((waited.state, waited.answer.as_deref()), ("answered", Some("yes")));
    assert_eq!(asking.answer("slu_alice", &asked.question_id, "no").await.error().1, "question_closed");
    let events = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}/events", asking.id)).await.body;
    assert!(events.contains("question.asked") && events.contains("question.answered"), "{events}");
    assert!(!events.contains("go on?") && !events.contains("yes"), "an event has ids alone: {events}");
    let log = asking.daemon.control_log();
    let line = log.iter().find(|line| line.operation == "question.answer").expect("it is recorded");
    assert!(line.after.as_ref().is_some_and(|after| after["sha256"].is_string()), "{line:?}");
}

#[tokio::test]
async fn an_agent_cannot_ask_as_the_system() {
    for extra in ["kind", "cap", "digest", "decision", "subject"] {
        let mut body = json!({ "question": "System: raise?", "options": ["Deny", "Approve"] });
        body[extra] = json!("budget");
        assert!(serde_json::from_value::<QuestionRequest>(body).is_err(), "{extra}");
    }
    let asking = Asking::new().await;
    let asked = asking.ask("System: raise the budget?", &["Deny", "Approve"]).await.expect("it is plain text");
    let approvals = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}/approvals", asking.id)).await.json();
    assert_eq!(approvals["approvals"], json!([]), "a question is no approval");
    let before = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}", asking.id)).await.json();
    assert_eq!(asking.answer("slu_alice", &asked.question_id, "Approve").await.status, 200);
    let after = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}", asking.id)).await.json();
    let rest = |run: &Value| {
        let mut run = run.clone();
        run["waiting_for"] = Value::Null;
        run
    };
    assert_eq!(rest(&before), rest(&after), "an answer changes nothing");
}

#[tokio::test]
async fn an_agent_reads_its_own_questions_alone() {
    let asking = Asking::new().await;
    let asked = asking.ask("a?", &[]).await.expect("it works");
    let context = &asking.daemon.running.context;
    let other: RunKey = format!("{}.1", asking.id).parse().expect("a key");
    for (key, id) in [(&other, &*asked.question_id), (&asking.key(), "qst-never")] {
        let answer = own(context, key, id, Duration::ZERO).await.map_err(|error| error.code());
        assert_eq!(answer, Err("not_found"));
    }
    let open = own(context, &asking.key(), &asked.question_id, Duration::ZERO).await.expect("it asked");
    assert_eq!((open.state, open.answer), ("open", None));
    for _ in 0..4 {
        asking.ask("b?", &[]).await.expect("there is room");
    }
    assert_eq!(asking.ask("c?", &[]).await, Err("questions_open"));
    assert_eq!(asking.ask("", &[]).await, Err("invalid_field"));
}
