//! A client of the daemon's API (`sluice serve`).
//!
//! A server may be another program than its name suggests, so each answer has limits on its time and its size, no redirect is
//! followed, and texts of errors are sanitised and truncated. Streams continue after a lost connection, from the last
//! position that was read.

mod answer;
mod client;
mod connection;
mod decisions;
mod ended;
mod error;
mod event_stream;
mod git;
mod line_splitter;
mod line_stream;
mod log_stream;
mod objects;
mod request;
mod retry;
mod server;
mod sse;
mod token;

pub use client::{ApiClient, ClientLimits};
pub use decisions::{ApiApproval, ApiQuestion, ApprovalPage, PausedRun, QuestionPage};
pub use error::{ApiFailure, ClientError};
pub use event_stream::{ApiEventStream, StreamItem, StreamSelection};
pub use git::{ApiChangedFile, ApiRunBranch, RunCommit, RunCommits, RunPullRequest};
pub use line_stream::LineStream;
pub use log_stream::{ApiLogLine, ApiLogStream, LogSelection};
pub use objects::{
    AgentMessage, AgentMessagePage, AgentPage, ApiAgent, ApiCreatedRun, ApiEventPage, ApiHeartbeatSummary,
    ApiListedSandbox, ApiRunAgent, ApiSandbox, ApiSandboxDetail, ApiSandboxPage, Event, InterruptedRun, QueuedMessage,
    StreamEnd, TrajectoryPage,
};
pub use request::ApiRequest;
pub use server::{Server, ServerError};
pub use token::{ApiToken, TokenFileError};

#[cfg(test)]
mod tests;
