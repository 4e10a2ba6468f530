//! Questions of agents to people. An answer is data for the agent, and changes nothing else.

mod rows;
mod text;

pub use rows::{NewQuestion, Question, QuestionError, QuestionState};
pub use text::{OPTION_MAX, OPTIONS_MAX, QUESTION_MAX, QuestionFault, check_question, plain_text};

/// Maximum number of open questions of a run.
pub const OPEN_MAX: u32 = 5;
/// Maximum number of questions of a run in an hour.
pub const PER_HOUR: u32 = 20;

#[cfg(test)]
mod tests;
