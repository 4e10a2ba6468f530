//! Removal of kept workspaces of the daemon's runs: expired ones, and for each owner all except the newest `OF_OWNER`.
//! Workspaces of chats have limits of their own.
//!
//! Workspaces of one-shot runs belong to their operator.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::time::duration_micros;

use crate::chat_settings::SessionCarry;
use crate::context::ApiContext;
use crate::kept_workspaces::{OF_OWNER, list_kept, remove_kept, remove_leftovers};
use crate::loops::LoopFault;

/// Removes expired workspaces, and returns their number. A workspace that cannot be removed does not stop the rest.
pub(super) async fn remove_old(context: &ApiContext, keep: Duration, now_us: i64) -> Result<u64, LoopFault> {
    let keys = list_kept(&context.layout).await.map_err(|error| failed(&error))?;
    expire_sessions(context, now_us).await?;
    let (mut kept, mut old_of_chats) = (Vec::new(), Vec::new());
    for key in keys {
        let Some(run) = context.store.find_sandbox(None, &key.run_id).await? else { continue };
        let Some(ended_us) = run.ended_us else { continue };
        match context.store.chat_workspace(&key.run_id).await? {
            Some(needed) if needed == Some(key.attempt) => {}
            Some(_) => old_of_chats.push(key),
            None => kept.push(ExpirableWorkspace { key, owner: run.owner, ended_us }),
        }
    }
    let mut old = old(kept, now_us.saturating_sub(duration_micros(keep)));
    old.extend(old_of_chats);
    let count = old.len() as u64;
    // The removal is atomic for a run that is created meanwhile: it finds the whole workspace, or none.
    remove_kept(&context.layout, old).await.map_err(|error| failed(&error))?;
    remove_leftovers(&context.layout).await.map_err(|error| failed(&error))?;
    Ok(count)
}

/// Releases the workspaces of expired sessions for removal.
async fn expire_sessions(context: &ApiContext, now_us: i64) -> Result<(), LoopFault> {
    let sessions = context.chat.sessions;
    let before_us = match sessions.carried {
        SessionCarry::Workspace | SessionCarry::Worker => now_us.saturating_sub(duration_micros(sessions.keep)),
        SessionCarry::Nothing => now_us,
    };
    context.store.expire_chat_workspaces(before_us).await?;
    Ok(())
}

fn failed(error: &io::Error) -> LoopFault {
    LoopFault::new(format!("a kept workspace is not removed: {error}"))
}

/// A kept workspace of a finished run of the daemon.
#[derive(Debug)]
struct ExpirableWorkspace {
    key: RunKey,
    owner: String,
    ended_us: i64,
}

/// Returns the workspaces of runs that ended before this time, and the workspaces of each owner except the newest
/// `OF_OWNER`.
fn old(mut kept: Vec<ExpirableWorkspace>, before_us: i64) -> Vec<RunKey> {
    kept.sort_by_key(|kept| std::cmp::Reverse((kept.ended_us, kept.key.attempt)));
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut is_old = |kept: &ExpirableWorkspace| {
        let count = counts.entry(kept.owner.clone()).or_default();
        *count += 1;
        *count > OF_OWNER || kept.ended_us < before_us
    };
    kept.into_iter().filter(|kept| is_old(kept)).map(|kept| kept.key).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use sluice_state::chats::SessionLimits;
    use sluice_state::sandboxes::SandboxStep;
    use sluice_state::store::now_us;

    use super::*;
    use crate::test_daemon::TestDaemon;

    fn kept(owner: &str, n: i64) -> ExpirableWorkspace {
        ExpirableWorkspace { key: format!("r{n}.0").parse().expect("a key"), owner: owner.to_owned(), ended_us: n }
    }

    fn names(keys: &[RunKey]) -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn only_workspaces_of_runs_that_are_over_are_removed() {
        let daemon = TestDaemon::with_runs().await;
        let (ended, _) = daemon.working_run().await;
        daemon.end(&ended).await;
        let (live, _) = daemon.working_run().await;
        let directory = daemon.settings.state.join("kept");
        let names = [format!("{ended}.0"), format!("{live}.0"), "one-shot.0".to_owned(), ".removed-r9.0".to_owned()];
        for name in &names {
            fs::create_dir_all(directory.join(name).join("deep/er")).expect("there is room");
        }
        let context = &daemon.running.context;
        let (now, day) = (now_us(), Duration::from_secs(86_400));
        let left = || -> Vec<bool> { names.iter().map(|name| directory.join(name).exists()).collect() };

        assert_eq!(remove_old(context, day, now).await.expect("it is readable"), 0);
        assert_eq!(left(), [true, true, true, false], "an unfinished removal goes on");
        assert_eq!(remove_old(context, day, now + duration_micros(day) * 2).await.expect("it can be removed"), 1);
        assert_eq!(left(), [false, true, true, false]);
    }

    /// Begins and ends a turn of a session, and leaves the directory of its workspace.
    async fn turn(daemon: &TestDaemon, session: &str, is_kept: bool) -> RunKey {
        let question = [json!({ "role": "user", "content": "hi" })];
        let body = json!({ "messages": question, "session_id": session });
        let mut committed = daemon.store().events_committed();
        let works = async {
            committed.changed().await.expect("the daemon lives");
            daemon.claim().await;
            let live = daemon.store().live_chats().await.expect("it is readable").remove(0);
            let key = RunKey { run_id: live.run_id, attempt: 0 };
            daemon.running.context.layout.records().create(&key).expect("there is room");
            fs::create_dir_all(daemon.settings.state.join("kept").join(key.to_string())).expect("there is room");
            daemon.step(key.run_id.as_str(), SandboxStep::Start).await;
            if is_kept {
                let limits = SessionLimits { count: 9, bytes: 9 };
                daemon.store().keep_chat_workspace(key.clone(), 1, limits).await.expect("it is writable");
            }
            daemon.end(key.run_id.as_str()).await;
            key
        };
        let (answer, key) = tokio::join!(daemon.request("slu_chat", "POST", "/ai/chat", Some(&body)), works);
        assert_eq!(answer.status, 200, "{answer:?}");
        key
    }

    #[tokio::test]
    async fn workspaces_of_sessions_have_their_own_time() {
        let daemon = TestDaemon::with_runs().await;
        let mut keys = Vec::new();
        for (session, is_kept) in [("s1", true), ("s2", false), ("s1", true)] {
            keys.push(turn(&daemon, session, is_kept).await);
        }
        let left = || -> Vec<bool> {
            keys.iter().map(|key| daemon.settings.state.join("kept").join(key.to_string()).exists()).collect()
        };
        let (context, now, day) = (&daemon.running.context, now_us(), Duration::from_secs(86_400));

        let short = Duration::ZERO;
        assert_eq!(remove_old(context, short, now).await.expect("it can be removed"), 2, "only one is needed");
        assert_eq!(left(), [false, false, true]);
        let almost = now + duration_micros(day) * 6;
        assert_eq!(remove_old(context, short, almost).await.expect("it is readable"), 0);
        let late = now + duration_micros(day) * 8;
        assert_eq!(remove_old(context, short, late).await.expect("it can be removed"), 1, "it was not used for a week");
        assert_eq!(left(), [false, false, false]);
        let after = turn(&daemon, "s1", true).await;
        let stored = context.stored_request(&after.run_id).await.expect("it is there");
        assert_eq!((stored.resume_from, stored.keep_workspace), (None, true), "the session begins anew");
    }

    #[test]
    fn age_and_number_of_an_owner_decide() {
        let mut all: Vec<_> = (100..122).map(|n| kept("alice", n)).collect();
        all.extend([kept("bob", 5), kept("bob", 50), kept("bob", 60)]);
        assert_eq!(names(&old(all, 50)), ["r101.0", "r100.0", "r5.0"]);
    }
}
