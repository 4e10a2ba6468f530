//! The merge of a pull request. It is read first, merged once the forge has decided that this is possible, and bound to
//! one commit.
//!
//! The caller checks that merging is allowed, and that the requester is neither the creator nor the owner of the run.

use super::any::Forge;
use super::delays::poll_delay;
use super::error::ForgeError;
use super::local::BRANCH_MISSING;
use super::merge_request::{MergeAnswer, MergeOutcome, MergeRequest};
use super::pull_request::{BranchDeletion, PullRequest, PullRequestState};
use super::retry::{Pause, retrying};

/// Next step for a pull request in its present state.
#[derive(Debug, PartialEq, Eq)]
enum MergeStep {
    End(MergeOutcome),
    AlreadyMerged(Option<String>),
    MarkReady,
    LookAgain,
    Merge,
}

/// Merges a pull request and deletes its branch. After a temporary failure, it starts again with reading the pull
/// request, so it detects a merge after a lost answer.
///
/// # Errors
/// [`ForgeError`] of the last attempt.
pub async fn merge(
    forge: &Forge,
    number: u64,
    request: &MergeRequest<'_>,
    pause: &impl Pause,
) -> Result<MergeOutcome, ForgeError> {
    retrying(pause, || attempt(forge, number, request, pause)).await
}

async fn attempt(
    forge: &Forge,
    number: u64,
    request: &MergeRequest<'_>,
    pause: &impl Pause,
) -> Result<MergeOutcome, ForgeError> {
    let mut looks = 0;
    let mut was_marked = false;
    loop {
        let found = forge.pull_request(number).await?;
        let commit = match step(&found, request, judges_drafts(forge)) {
            MergeStep::End(outcome) => return Ok(outcome),
            MergeStep::AlreadyMerged(commit) => commit,
            MergeStep::MarkReady if was_marked => return Err(ForgeError::Undecided(number)),
            MergeStep::MarkReady => {
                forge.mark_ready(&found).await?;
                was_marked = true;
                continue;
            }
            // A local forge decides at once, unless a branch is missing.
            MergeStep::LookAgain if matches!(forge, Forge::Local(_)) => {
                return Ok(MergeOutcome::Refused(BRANCH_MISSING.to_owned()));
            }
            MergeStep::LookAgain => {
                looks += 1;
                let Some(time) = poll_delay(looks) else { return undecided(forge, number) };
                pause.pause(time).await;
                continue;
            }
            MergeStep::Merge => match forge.ask_to_merge(&found, request).await? {
                MergeAnswer::Merged(commit) => commit,
                MergeAnswer::HasConflicts => return Ok(MergeOutcome::HasConflicts),
                MergeAnswer::HeadMoved => return Ok(MergeOutcome::HeadMoved),
                MergeAnswer::Refused(text) => return Ok(MergeOutcome::Refused(text)),
            },
        };
        return Ok(MergeOutcome::Merged { commit, branch: delete(forge, &found, pause).await });
    }
}

/// Decides the next step. `judges_drafts` says whether the forge decides about conflicts of drafts.
fn step(found: &PullRequest, request: &MergeRequest<'_>, judges_drafts: bool) -> MergeStep {
    if found.is_from_fork {
        return MergeStep::End(MergeOutcome::Refused("the branch is of another repository".to_owned()));
    }
    if found.head_sha != request.head_sha {
        return MergeStep::End(MergeOutcome::HeadMoved);
    }
    match found.state {
        PullRequestState::Merged => return MergeStep::AlreadyMerged(found.merge_commit.clone()),
        PullRequestState::Closed => return MergeStep::End(MergeOutcome::Refused("it is closed".to_owned())),
        PullRequestState::Open => {}
    }
    if found.base != request.base {
        return MergeStep::End(MergeOutcome::Refused("it is for another branch by now".to_owned()));
    }
    match found.mergeable {
        _ if found.is_draft && !judges_drafts => MergeStep::MarkReady,
        None => MergeStep::LookAgain,
        Some(false) => MergeStep::End(MergeOutcome::HasConflicts),
        Some(true) if found.is_draft => MergeStep::MarkReady,
        Some(true) => MergeStep::Merge,
    }
}

/// Deletes the branch of a merged pull request. A failure does not undo the merge.
async fn delete(forge: &Forge, merged: &PullRequest, pause: &impl Pause) -> BranchDeletion {
    if merged.head == merged.base {
        return BranchDeletion::Kept("it is the base".to_owned());
    }
    retrying(pause, || forge.delete_branch(&merged.head, &merged.head_sha))
        .await
        .unwrap_or_else(|error| BranchDeletion::Kept(error.to_string()))
}

/// Returns whether the forge decides about conflicts of drafts. Gitea reports every draft as not mergeable.
fn judges_drafts(forge: &Forge) -> bool {
    match forge {
        Forge::GitHub(_) | Forge::Local(_) => true,
        Forge::Gitea(_) => false,
    }
}

/// Returns the result of a merge that the forge did not decide in time. Gitea reports conflicts and an unfinished check
/// in the same way; after a minute, this is taken as conflicts.
fn undecided(forge: &Forge, number: u64) -> Result<MergeOutcome, ForgeError> {
    match forge {
        Forge::GitHub(_) | Forge::Local(_) => Err(ForgeError::Undecided(number)),
        Forge::Gitea(_) => Ok(MergeOutcome::HasConflicts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forge::merge_request::MergeMethod;

    const REQUEST: MergeRequest<'_> = MergeRequest {
        method: MergeMethod::Squash,
        head_sha: HEAD,
        base: "main",
        title: "ours",
        message: "Sluice-Run: r",
    };
    const HEAD: &str = "0123456789abcdef0123456789abcdef01234567";

    fn found(state: PullRequestState, is_draft: bool, mergeable: Option<bool>) -> PullRequest {
        PullRequest {
            number: 1,
            url: None,
            head: "feature/a".into(),
            head_sha: HEAD.into(),
            base: "main".into(),
            state,
            is_draft,
            mergeable,
            merge_commit: Some("c".into()),
            is_from_fork: false,
            title: String::new(),
            node_id: String::new(),
        }
    }

    #[test]
    fn each_state_has_its_step() {
        use PullRequestState::{Closed, Merged, Open};
        let end = |text: &str| MergeStep::End(MergeOutcome::Refused(text.into()));
        for (state, is_draft, mergeable, judges_drafts, expected) in [
            (Open, false, Some(true), true, MergeStep::Merge),
            (Open, false, Some(true), false, MergeStep::Merge),
            (Open, false, None, true, MergeStep::LookAgain),
            (Open, false, Some(false), true, MergeStep::End(MergeOutcome::HasConflicts)),
            (Open, true, Some(false), true, MergeStep::End(MergeOutcome::HasConflicts)),
            (Open, true, None, true, MergeStep::LookAgain),
            (Open, true, Some(true), true, MergeStep::MarkReady),
            (Open, true, None, false, MergeStep::MarkReady),
            (Merged, false, None, true, MergeStep::AlreadyMerged(Some("c".into()))),
            (Closed, false, Some(true), true, end("it is closed")),
        ] {
            let found = found(state, is_draft, mergeable);
            assert_eq!(step(&found, &REQUEST, judges_drafts), expected, "{found:?}");
            let moved = MergeRequest { head_sha: &HEAD[1..], ..REQUEST };
            assert_eq!(step(&found, &moved, judges_drafts), MergeStep::End(MergeOutcome::HeadMoved));
            if state == Open {
                let elsewhere = MergeRequest { base: "release", ..REQUEST };
                assert_eq!(step(&found, &elsewhere, judges_drafts), end("it is for another branch by now"));
            }
            let fork = PullRequest { is_from_fork: true, ..found };
            assert_eq!(step(&fork, &REQUEST, judges_drafts), end("the branch is of another repository"));
        }
    }
}
