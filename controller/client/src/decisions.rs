//! Objects of the API about decisions of people: pauses, approvals and questions. Members that a later daemon adds are
//! ignored.
//!
//! Pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A run that is paused, or that continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedRun {
    /// Id.
    pub sandbox_id: String,
    /// Present attempt, from 0.
    pub attempt: u32,
    /// State.
    pub state: String,
    /// State that its owner wants.
    pub desired_state: String,
    /// State of its container.
    pub observed_state: String,
    /// Time since which it is paused.
    pub paused_at: Option<String>,
}

/// An approval: the system asks a person about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApiApproval {
    /// Id.
    pub approval_id: String,
    /// Run.
    pub sandbox_id: String,
    /// Attempt of the run.
    pub attempt: u32,
    /// `cap`, `publish`, or a kind that a later daemon adds.
    pub kind: String,
    /// Facts about the run.
    pub subject: Value,
    /// `max_calls`, `max_tokens` or `max_cost_usd`; none for a publication.
    pub cap: Option<String>,
    /// Value of the cap.
    pub old: Option<String>,
    /// Value that is proposed.
    pub new: Option<String>,
    /// SHA-256 of what a person sees.
    pub digest: String,
    /// Time of the creation.
    pub created_at: String,
    /// Time at which the approval expires; this denies it.
    pub expires_at: String,
    /// Time since which a call waits for the approval.
    pub held_at: Option<String>,
    /// Decision; none while it is open.
    pub decision: Option<String>,
    /// Principal that decided.
    pub decided_by: Option<String>,
    /// Time of the decision.
    pub decided_at: Option<String>,
    /// Reason of the decision.
    pub reason: Option<String>,
    /// Value that was approved.
    pub raised_to: Option<String>,
    /// Time at which the sidecar received the decision, or the branch was published.
    pub applied_at: Option<String>,
}

/// Approvals of a run, oldest first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ApprovalPage {
    /// Approvals.
    pub approvals: Vec<ApiApproval>,
}

/// A question of an agent. The agent has written its texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiQuestion {
    /// Id.
    pub question_id: String,
    /// Run.
    pub sandbox_id: String,
    /// Attempt of the run.
    pub attempt: u32,
    /// Text of the agent.
    pub question: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// `open`, `answered` or `expired`.
    pub state: String,
    /// Time of the creation.
    pub created_at: String,
    /// Time at which it closes without an answer.
    pub expires_at: String,
    /// The answer.
    pub answer: Option<String>,
    /// Principal that answered.
    pub answered_by: Option<String>,
    /// Time of the answer.
    pub answered_at: Option<String>,
}

/// Questions of a run, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct QuestionPage {
    /// Questions.
    pub questions: Vec<ApiQuestion>,
}
