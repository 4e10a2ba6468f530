//! Schemas of the database.

/// The step from each schema to the next. A step that was released is never changed.
pub(super) const MIGRATIONS: [&str; 19] = [
    include_str!("migrations/1-runs.sql"),
    include_str!("migrations/2-witnesses.sql"),
    include_str!("migrations/3-ledger.sql"),
    include_str!("migrations/4-reconcile.sql"),
    include_str!("migrations/5-budgets.sql"),
    include_str!("migrations/6-tokens.sql"),
    include_str!("migrations/7-sums.sql"),
    include_str!("migrations/8-outbox.sql"),
    include_str!("migrations/9-budget-authors.sql"),
    include_str!("migrations/10-daemon.sql"),
    include_str!("migrations/11-upkeep.sql"),
    include_str!("migrations/12-conversation.sql"),
    include_str!("migrations/13-decisions.sql"),
    include_str!("migrations/14-chat.sql"),
    include_str!("migrations/15-chat-sessions.sql"),
    include_str!("migrations/16-git.sql"),
    include_str!("migrations/17-chat-workers.sql"),
    include_str!("migrations/18-run-sums.sql"),
    include_str!("migrations/19-git-pushes.sql"),
];
/// Schema of this build.
pub(super) const SCHEMA: u32 = MIGRATIONS.len() as u32;
