//! The rows of questions.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row, ToSql, TransactionBehavior, params};
use serde_json::json;
use sluice_contract::{RunId, RunKey};

use super::{OPEN_MAX, PER_HOUR};
use crate::events::announce;
use crate::sandboxes::{self, SandboxError};
use crate::store::{Store, StoreError, run_key};

const HOUR_US: i64 = 3600 * 1_000_000;

/// A question to ask, with a text that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQuestion {
    /// Id.
    pub id: String,
    /// Run and attempt.
    pub key: RunKey,
    /// Text of the question.
    pub question: String,
    /// Answers to choose from; empty for a free text.
    pub options: Vec<String>,
    /// Time for which it is open, in microseconds.
    pub ask_timeout_us: i64,
}

/// A question of an agent. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in NewQuestion")]
pub struct Question {
    pub id: String,
    pub key: RunKey,
    pub question: String,
    pub options: Vec<String>,
    pub created_us: i64,
    /// Time at which it closes without an answer.
    pub expires_us: i64,
    pub state: QuestionState,
    pub answer: Option<String>,
    pub answered_by: Option<String>,
    pub answered_us: Option<i64>,
}

/// State of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionState {
    /// The question waits for an answer.
    Open,
    /// The question was answered.
    Answered,
    /// The time for an answer is over, or the attempt is over.
    Expired,
}

/// Error of a question.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// The run has no such question.
    #[error("there is no such question")]
    NotFound,
    /// The attempt is over.
    #[error("the run is over")]
    Over,
    /// Too many questions are open.
    #[error("{OPEN_MAX} questions of the run are open; wait for an answer")]
    TooManyOpen,
    /// The limit of questions is reached.
    #[error("the run has asked {PER_HOUR} questions within an hour; go on without an answer")]
    TooMany,
    /// The question is no longer open.
    #[error("the question is {}, and takes no answer", .0.as_str())]
    Closed(QuestionState),
    /// The answer is not one of the options.
    #[error("the answer is not one of the options; send one of them as it is")]
    NotAnOption,
    /// The run cannot be read.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<rusqlite::Error> for QuestionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

impl QuestionState {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Answered => "answered",
            Self::Expired => "expired",
        }
    }
}

fn question(row: &Row<'_>) -> rusqlite::Result<Question> {
    let (options, state): (String, String) = (row.get(4)?, row.get(7)?);
    let states = [QuestionState::Open, QuestionState::Answered, QuestionState::Expired];
    Ok(Question {
        id: row.get(0)?,
        key: run_key(row, 1)?,
        question: row.get(3)?,
        options: serde_json::from_str(&options).unwrap_or_default(),
        created_us: row.get(5)?,
        expires_us: row.get(6)?,
        state: states.into_iter().find(|it| it.as_str() == state).expect("the column has no other word"),
        answer: row.get(8)?,
        answered_by: row.get(9)?,
        answered_us: row.get(10)?,
    })
}

fn select(connection: &Connection, clause: &str, values: &[&dyn ToSql]) -> rusqlite::Result<Vec<Question>> {
    let query = format!(
        "SELECT id, run_id, attempt, question, options, created_us, expires_us, state, answer, answered_by, answered_us
         FROM questions WHERE {clause}"
    );
    let mut query = connection.prepare_cached(&query)?;
    query.query_map(values, question)?.collect()
}

impl Store {
    /// Adds a question of a run that works.
    ///
    /// # Errors
    /// [`QuestionError`]
    pub async fn ask_question(&self, new: NewQuestion, now_us: i64) -> Result<Question, QuestionError> {
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let sandbox = sandboxes::find(&transaction, &new.key.run_id)?.filter(|run| run.key == new.key);
            let sandbox = sandbox.filter(sandboxes::works).ok_or(QuestionError::Over)?;
            let (open, lately): (u32, u32) = transaction.query_row(
                "SELECT count(*) FILTER (WHERE state = 'open' AND expires_us > ?2),
                        count(*) FILTER (WHERE created_us > ?3)
                 FROM questions WHERE run_id = ?1",
                params![new.key.run_id.as_str(), now_us, now_us - HOUR_US],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            match (open, lately) {
                (open, _) if open >= OPEN_MAX => return Err(QuestionError::TooManyOpen),
                (_, lately) if lately >= PER_HOUR => return Err(QuestionError::TooMany),
                _ => {}
            }
            let expires_us = now_us.saturating_add(new.ask_timeout_us.max(1));
            transaction.execute(
                "INSERT INTO questions (id, run_id, attempt, question, options, created_us, expires_us, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'open')",
                params![
                    new.id,
                    new.key.run_id.as_str(),
                    new.key.attempt,
                    new.question,
                    json!(new.options).to_string(),
                    now_us,
                    expires_us
                ],
            )?;
            let data = json!({ "question_id": new.id });
            let seq = sandboxes::report(&transaction, &sandbox, "question.asked", &data, now_us)?;
            let asked = select(&transaction, "id = ?1", &[&new.id])?.pop().ok_or(QuestionError::NotFound)?;
            transaction.commit()?;
            announce(&signal, seq);
            Ok(asked)
        })
        .await
    }

    /// Returns the questions of a run, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn questions_of(&self, run_id: &RunId) -> Result<Vec<Question>, QuestionError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            Ok(select(connection, "run_id = ?1 ORDER BY created_us, id", &[&run_id.as_str()])?)
        })
        .await
    }

    /// Returns a question of a run.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_question(&self, run_id: &RunId, id: &str) -> Result<Option<Question>, QuestionError> {
        let (run_id, id) = (run_id.clone(), id.to_owned());
        self.query(move |connection| Ok(select(connection, "id = ?1 AND run_id = ?2", &[&id, &run_id.as_str()])?.pop()))
            .await
    }

    /// Returns the runs that wait for an answer.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn runs_with_questions(&self, now_us: i64) -> Result<BTreeSet<String>, StoreError> {
        self.query(move |connection| {
            let clause = "SELECT DISTINCT run_id FROM questions WHERE state = 'open' AND expires_us > ?1";
            let mut query = connection.prepare_cached(clause)?;
            let rows = query.query_map([now_us], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Answers an open question. The first answer stays.
    ///
    /// # Errors
    /// [`QuestionError`]
    pub async fn answer_question(
        &self,
        run_id: &RunId,
        id: &str,
        answer: &str,
        by: &str,
        now_us: i64,
    ) -> Result<Question, QuestionError> {
        let (run_id, id, answer, by) = (run_id.clone(), id.to_owned(), answer.to_owned(), by.to_owned());
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let found = select(&transaction, "id = ?1 AND run_id = ?2", &[&id, &run_id.as_str()])?.pop();
            let found = found.ok_or(QuestionError::NotFound)?;
            let state = if found.expires_us <= now_us { QuestionState::Expired } else { found.state };
            match found.state {
                QuestionState::Open if state == QuestionState::Open => {}
                QuestionState::Answered => return Err(QuestionError::Closed(QuestionState::Answered)),
                _ => return Err(QuestionError::Closed(QuestionState::Expired)),
            }
            if !found.options.is_empty() && !found.options.contains(&answer) {
                return Err(QuestionError::NotAnOption);
            }
            let sandbox = sandboxes::find(&transaction, &run_id)?.filter(|run| run.key == found.key);
            let sandbox = sandbox.filter(sandboxes::works).ok_or(QuestionError::Over)?;
            transaction.execute(
                "UPDATE questions SET state = 'answered', answer = ?2, answered_by = ?3, answered_us = ?4 WHERE id = ?1",
                params![id, answer, by, now_us],
            )?;
            let data = json!({ "question_id": id });
            let seq = sandboxes::report(&transaction, &sandbox, "question.answered", &data, now_us)?;
            transaction.commit()?;
            announce(&signal, seq);
            let state = QuestionState::Answered;
            Ok(Question { state, answer: Some(answer), answered_by: Some(by), answered_us: Some(now_us), ..found })
        })
        .await
    }

    /// Closes questions that were not answered in time, and those of attempts that are over. Returns their number.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn expire_questions(&self, now_us: i64) -> Result<usize, QuestionError> {
        let due = "state = 'open' AND (expires_us <= ?1 OR NOT EXISTS (
                       SELECT 1 FROM sandboxes WHERE sandboxes.run_id = questions.run_id
                       AND sandboxes.attempt = questions.attempt AND outcome IS NULL AND ended_us IS NULL))";
        if self.query::<_, QuestionError>(move |connection| Ok(select(connection, due, &[&now_us])?)).await?.is_empty()
        {
            return Ok(0);
        }
        let signal = self.event_signal();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (due, mut last) = (select(&transaction, due, &[&now_us])?, None);
            for question in &due {
                transaction.execute("UPDATE questions SET state = 'expired' WHERE id = ?1", [&question.id])?;
                let Some(sandbox) = sandboxes::find(&transaction, &question.key.run_id)? else { continue };
                let data = json!({ "question_id": question.id });
                last = Some(sandboxes::report(&transaction, &sandbox, "question.expired", &data, now_us)?);
            }
            transaction.commit()?;
            if let Some(seq) = last {
                announce(&signal, seq);
            }
            Ok(due.len())
        })
        .await
    }
}
