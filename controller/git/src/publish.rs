//! Pushes one verified commit to a forge.

use std::time::Duration;

use crate::branch::Branch;
use crate::credentials::Credentials;
use crate::directory::Lock;
use crate::error::GitError;
use crate::limits::{HOSTILE, OPERATOR};
use crate::local_repository::LocalRepository;
use crate::mirror::network_command;
use crate::object_id::ObjectId;
use crate::program::Input;
use crate::push_output::{PushEnd, push_end};
use crate::repository_url::RepositoryUrl;
use crate::run_repository::RunRepository;
use crate::transfer::{transfer, update_refs};

/// Maximum time to wait for another publication or a push of the same run.
const WAIT: Duration = Duration::from_secs(600);

/// Reason of a refusal: the run has only a part of the history, and the directory lacks the commits before it.
const LACKS: &str = "the run began with a part of the history, and the directory lacks the commits before it; fetch them \
                     there (git fetch --unshallow), and publish again";

/// Result of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The branch at the forge was made or moved.
    Pushed,
    /// The branch at the forge already had the commit, as after a crash.
    AlreadyThere,
}

impl RunRepository {
    /// Pushes `head`, which must be the head of the run's branch, to `target` at the forge. `lease` is the commit that the
    /// branch has there; without one, the branch must not exist. No other ref is pushed.
    ///
    /// # Errors
    /// [`GitError::BranchTaken`]: without a lease, the branch exists and has another commit. [`GitError::BranchMoved`]:
    /// the branch is not at the lease. [`GitError::PushRefused`]: the forge refuses the push.
    pub async fn publish(
        &self,
        url: &RepositoryUrl,
        credentials: &Credentials,
        target: &Branch,
        head: &ObjectId,
        lease: Option<&ObjectId>,
    ) -> Result<Published, GitError> {
        let _lock = Lock::wait(self.publish_lock_path(), WAIT).await?;
        if self.head().await? != *head {
            return Err(GitError::NotTheHead { head: head.clone() });
        }
        match url.directory() {
            Some(directory) => {
                let local = LocalRepository::open(&directory, self.program())?;
                self.publish_to_directory(&local, url, target, head, lease).await
            }
            None => self.publish_to_network(url, credentials, target, head, lease).await,
        }
    }

    async fn publish_to_network(
        &self,
        url: &RepositoryUrl,
        credentials: &Credentials,
        target: &Branch,
        head: &ObjectId,
        lease: Option<&ObjectId>,
    ) -> Result<Published, GitError> {
        // The token's file is in the repository. The lock keeps packs of the sandbox out meanwhile.
        let _lock = Lock::wait(self.lock_path(), WAIT).await?;
        let placed = credentials.place(url, self.path(), self.program().user())?;
        let reference = target.reference();
        let lease_words = format!("--force-with-lease={reference}:{}", lease.map(ObjectId::as_str).unwrap_or_default());
        let update = format!("{head}:{reference}");
        let words = [
            "push",
            "--porcelain",
            "--no-verify",
            "--no-signed",
            "--no-follow-tags",
            "--no-recurse-submodules",
            &lease_words,
            "--",
            url.as_str(),
            &update,
        ];
        let command = placed.apply(network_command(self.home(), url, self.path()));
        let output = command.args(words).run(Input::Nothing).await?;
        match push_end(&output.stdout) {
            PushEnd::Done if output.is_success() => Ok(Published::Pushed),
            PushEnd::AlreadyThere => Ok(Published::AlreadyThere),
            PushEnd::Stale => Err(stale(url, target, lease)),
            PushEnd::Refused(reason) => {
                Err(GitError::PushRefused { url: url.to_string(), branch: target.to_string(), reason })
            }
            PushEnd::Done | PushEnd::Unknown => {
                Err(GitError::Failed { command: "push".to_owned(), message: output.message() })
            }
        }
    }

    /// Publishes to a directory: sends the objects as a pack, and sets the branch in one transaction. Hooks of the
    /// directory do not run.
    async fn publish_to_directory(
        &self,
        local: &LocalRepository,
        url: &RepositoryUrl,
        target: &Branch,
        head: &ObjectId,
        lease: Option<&ObjectId>,
    ) -> Result<Published, GitError> {
        let program = self.program();
        let present = local.branch(program, target.as_str()).await?;
        if present.as_ref() == Some(head) {
            return Ok(Published::AlreadyThere);
        }
        if present.as_ref() != lease {
            return Err(stale(url, target, lease));
        }
        let has_base = local.has(program, self.base()).await?;
        let had = if has_base { std::slice::from_ref(self.base()) } else { &[] };
        transfer(program, self.end(), local.end(), std::slice::from_ref(head), had, OPERATOR).await?;
        self.check_history(local, url, target, head).await?;
        let old = lease.map_or_else(|| "0".repeat(head.as_str().len()), ToString::to_string);
        let line = format!("update {} {head} {old}\n", target.reference());
        match update_refs(program, local.end(), &line, HOSTILE).await {
            Ok(()) => Ok(Published::Pushed),
            // Another run may have used the name since the last read.
            Err(GitError::Failed { .. }) if local.branch(program, target.as_str()).await?.as_ref() != lease => {
                Err(stale(url, target, lease))
            }
            Err(GitError::Failed { message, .. }) => {
                Err(GitError::PushRefused { url: url.to_string(), branch: target.to_string(), reason: message })
            }
            Err(error) => Err(error),
        }
    }

    /// Checks that the directory has all commits from before the run, if the run has only the last of them. The boundary of
    /// the run is never written there: it would hide the operator's own history.
    async fn check_history(
        &self,
        local: &LocalRepository,
        url: &RepositoryUrl,
        target: &Branch,
        head: &ObjectId,
    ) -> Result<(), GitError> {
        if self.end().boundary()?.is_none() {
            return Ok(());
        }
        let words = ["rev-list", "--objects", "--quiet", head.as_str(), "--not", "--all"];
        let walked = local.end().command(self.program(), OPERATOR).read_only().args(words).run(Input::Nothing).await?;
        match walked.code {
            Some(0) => Ok(()),
            Some(_) => Err(GitError::PushRefused {
                url: url.to_string(),
                branch: target.to_string(),
                reason: LACKS.to_owned(),
            }),
            None => Err(GitError::Failed { command: "rev-list".to_owned(), message: walked.message() }),
        }
    }
}

fn stale(url: &RepositoryUrl, target: &Branch, lease: Option<&ObjectId>) -> GitError {
    let (url, branch) = (url.to_string(), target.to_string());
    match lease {
        None => GitError::BranchTaken { url, branch },
        Some(_) => GitError::BranchMoved { url, branch },
    }
}
