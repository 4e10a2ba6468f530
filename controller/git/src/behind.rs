//! Number of commits by which the base of a run has moved since the run began, according to the mirror.

use crate::branch::Branch;
use crate::error::GitError;
use crate::home::GitHome;
use crate::limits::LOOK;
use crate::mirror::{MirrorOptions, mirror_scope, own_reference};
use crate::object_id::ObjectId;
use crate::program::Input;
use crate::repository_url::RepositoryUrl;
use crate::transfer::{TransferEnd, resolve};

impl GitHome {
    /// Returns the number of commits that a branch has and `base` has not. Nothing is fetched: the mirror has the
    /// branch as it was when a run last started from it. `None` if there is no mirror, or if the mirror lacks the
    /// branch or `base`. With a limited depth, the number can be too small: commits before that depth are missing.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn commits_since(
        &self,
        url: &RepositoryUrl,
        options: &MirrorOptions,
        branch: &Branch,
        base: &ObjectId,
    ) -> Result<Option<u64>, GitError> {
        let paths = self.mirror_paths(url, &mirror_scope(options));
        if !paths.repository.is_dir() {
            return Ok(None);
        }
        let at = TransferEnd::bare(&paths.repository, self.program());
        let Some(tip) = resolve(self.program(), at, &own_reference(branch), LOOK).await? else { return Ok(None) };
        let range = format!("{base}..{tip}");
        let command = at.command(self.program(), LOOK).read_only().args(["rev-list", "--count", &range, "--"]);
        let counted = command.run(Input::Nothing).await?;
        let count = std::str::from_utf8(counted.line()).ok().and_then(|line| line.parse().ok());
        Ok(count.filter(|_| counted.is_success()))
    }
}
