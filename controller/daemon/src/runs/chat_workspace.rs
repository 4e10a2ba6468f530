//! The workspace of a chat's turn after its end: kept for the next turn of the session, or removed.

use std::io;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::exchange::{ExchangeError, KeptWorkspace};
use sluice_state::chats::{SessionLimits, TurnEnd};
use tokio::task::{JoinError, spawn_blocking};

use super::service::shown;
use crate::context::ApiContext;
use crate::kept_workspaces::remove_kept;

/// Reason that the size of a kept workspace is not known.
#[derive(Debug, thiserror::Error)]
enum SizeError {
    #[error(transparent)]
    Open(#[from] io::Error),
    #[error(transparent)]
    Files(#[from] ExchangeError),
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// Keeps the workspace of a successful turn, in place of the earlier one. After a turn that has failed, the session
/// continues from the last successful one. A turn that was retried after a later one began passes nothing on: the session
/// stays as the later turn left it. The workspace of a worker has the work of all its turns: it is kept, however it
/// ended, if one of the turns has an answer. The upkeep removes files that could not be removed here.
pub(super) async fn keep_for_session(context: &ApiContext, key: &RunKey, has_succeeded: bool) {
    let report = |error: &str| (context.log)(&format!("{}: {error}", shown(key)));
    match context.store.chat_workspace(&key.run_id).await {
        Ok(Some(_)) => {}
        Ok(None) => return,
        Err(error) => return report(&format!("its workspace is not kept: {}", error_chain(&error))),
    }
    // Without an answer, it is treated like any other failed run.
    let last = context.store.chat_turn(&key.run_id, i64::MAX).await.ok().flatten();
    let has_answered = last.is_some_and(|turn| turn.number > 1 || matches!(turn.end, Some(TurnEnd::Waiting(_))));
    let size = if has_succeeded || has_answered { size(context, key).await } else { Ok(None) };
    let sessions = context.chat.sessions;
    let bytes = size.unwrap_or_else(|error| {
        report(&format!("its workspace is not kept: {}", error_chain(&error)));
        None
    });
    let bytes = bytes.filter(|bytes| {
        let fits = *bytes <= sessions.bytes;
        if !fits {
            report(&format!("its workspace of {bytes} bytes is not kept: chat_session_space is {}", sessions.bytes));
        }
        fits
    });
    let removed = match bytes {
        Some(bytes) => {
            let limits = SessionLimits { count: sessions.count, bytes: sessions.bytes };
            match context.store.keep_chat_workspace(key.clone(), bytes, limits).await {
                Ok(removed) => {
                    let removed = removed.unwrap_or_default();
                    if removed.contains(key) {
                        report("its workspace is not kept: its session has a later turn");
                    }
                    removed
                }
                Err(error) => return report(&format!("its workspace is not kept: {}", error_chain(&error))),
            }
        }
        None => vec![key.clone()],
    };
    if let Err(error) = remove_kept(&context.layout, removed).await {
        report(&format!("a kept workspace of its session is not removed: {error}"));
    }
}

/// Returns the bytes of a kept workspace; `None` without one.
async fn size(context: &ApiContext, key: &RunKey) -> Result<Option<u64>, SizeError> {
    let (key, paths) = (key.clone(), context.layout.run(key));
    let measured = spawn_blocking(move || match KeptWorkspace::open(&key, &paths)? {
        Some(kept) => Ok(Some(kept.check()?)),
        None => Ok(None),
    });
    measured.await?
}
