//! The settings of chats.
//!
//! Pure.

use std::time::Duration;

/// The settings of chats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatSettings {
    /// Treatment of remote content in an agent's text.
    pub remote: RemoteContent,
    /// Behaviour for a run whose client has hung up.
    pub hang_up: HangUp,
    /// Time in which a client that was cut off may reconnect, if its form allows that.
    pub resume: Duration,
    /// Settings of sessions.
    pub sessions: SessionSettings,
}

/// The settings of sessions: turns of one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSettings {
    /// Thing that a turn hands on to the next one.
    pub carried: SessionCarry,
    /// Time without a turn after which a session's workspace is removed.
    pub keep: Duration,
    /// Time without a turn after which a worker ends.
    pub idle: Duration,
    /// Maximum number of kept workspaces of the sessions of one token, and of their live workers.
    pub count: u32,
    /// Maximum number of bytes of these workspaces together.
    pub bytes: u64,
}

/// Thing that a turn of a session hands on to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionCarry {
    /// Nothing: each turn begins with an empty workspace.
    Nothing,
    /// The next turn gets the workspace.
    Workspace,
    /// The next turn gets the worker, while it lives, and otherwise the workspace.
    Worker,
}

/// Treatment of images and HTML in an agent's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteContent {
    /// They become text.
    Defang,
    /// They stay as they are.
    Keep,
}

/// Behaviour for a run whose client has hung up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangUp {
    /// The run is cancelled.
    Cancel,
    /// The run continues.
    Keep,
}

impl Default for ChatSettings {
    fn default() -> Self {
        Self {
            remote: RemoteContent::Defang,
            hang_up: HangUp::Cancel,
            resume: Duration::from_secs(30),
            sessions: SessionSettings::default(),
        }
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let idle = Duration::from_secs(600);
        Self { carried: SessionCarry::Workspace, keep: 7 * DAY, idle, count: 100, bytes: 4 << 30 }
    }
}
