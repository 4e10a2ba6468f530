//! The clone for a workspace, made before its container exists.

use std::fs;
use std::path::Path;

use crate::beneath::replace_file;
use crate::branch::Branch;
use crate::checkout_size::{SIZE_FORM, fits};
use crate::clone_config::clone_config;
use crate::directory::{own, remove};
use crate::error::GitError;
use crate::identity::CommitterIdentity;
use crate::limits::{HOSTILE, OPERATOR};
use crate::object_id::ObjectId;
use crate::program::{GitCommand, Input, RepositoryForm};
use crate::run_repository::RunRepository;
use crate::transfer::{TransferEnd, init, transfer, update_refs};

impl RunRepository {
    /// Makes a clone in a new directory: a work tree with the run's branch, whose origin is `origin_url`. Its objects are
    /// copies. The files belong to the user of git; the caller gives them to the sandbox. The directory may exist if it is
    /// empty; it must never have been accessible to a sandbox.
    ///
    /// If an earlier attempt has pushed, the clone begins where that attempt stopped.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn clone_into(
        &self,
        directory: &Path,
        branch: &Branch,
        origin_url: &str,
        identity: &CommitterIdentity,
    ) -> Result<(), GitError> {
        if origin_url.chars().any(char::is_control) {
            return Err(GitError::Output { command: "clone".into(), what: "control characters in the origin".into() });
        }
        self.set_branch(branch, identity).await?;
        let program = self.program();
        make_empty(directory)?;
        own(directory, program.user())?;
        let done = self.fill(directory, branch, origin_url, identity).await;
        if done.is_err() {
            let _ = remove(directory);
        }
        done
    }

    async fn fill(
        &self,
        directory: &Path,
        branch: &Branch,
        origin: &str,
        identity: &CommitterIdentity,
    ) -> Result<(), GitError> {
        let program = self.program();
        let at = TransferEnd { directory, form: RepositoryForm::WorkTree, user: program.user() };
        let head = self.head().await?;
        init(program, at, branch.as_str(), OPERATOR).await?;
        transfer(program, self.end(), at, &[head.clone(), self.base().clone()], &[], OPERATOR).await?;
        at.set_boundary(self.end().boundary()?.as_deref())?;
        let mut refs = format!("create {} {head}\ncreate refs/remotes/origin/{branch} {head}\n", branch.reference());
        if !overlap(branch.as_str(), self.base_branch().as_str()) {
            refs.push_str(&format!("create refs/remotes/origin/{} {}\n", self.base_branch(), self.base()));
        }
        update_refs(program, at, &refs, OPERATOR).await?;
        check_size(at.command(program, HOSTILE), &head).await?;
        let words = ["checkout", "--quiet", "--force", "--no-guess", branch.as_str(), "--"];
        at.command(program, OPERATOR).args(words).check(Input::Nothing).await?;
        let text = clone_config(branch, origin, identity);
        replace_file(directory, ".git", "config", text.as_bytes(), program.user())
            .map_err(GitError::file("write the configuration of a clone"))
    }
}

/// Refuses a work tree that would fill the disk: a few objects can appear in it a million times.
async fn check_size(command: GitCommand<'_>, head: &ObjectId) -> Result<(), GitError> {
    let too_large = || GitError::CheckoutSize { head: head.clone() };
    let listed = command.read_only().args(["ls-tree", "-r", SIZE_FORM, head.as_str()]).run(Input::Nothing).await;
    match listed {
        Ok(output) if output.is_success() => fits(&output.stdout).then_some(()).ok_or_else(too_large),
        // The kernel ended git at a limit.
        Ok(output) if output.code.is_none() => Err(too_large()),
        Ok(output) => Err(GitError::Failed { command: "ls-tree".to_owned(), message: output.message() }),
        Err(GitError::TimedOut { .. } | GitError::TooMuchOutput { .. }) => Err(too_large()),
        Err(error) => Err(error),
    }
}

/// Makes the directory, or checks that it is empty.
fn make_empty(directory: &Path) -> Result<(), GitError> {
    match fs::create_dir(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let is_empty = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none());
            let is_link = fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.is_symlink());
            if is_empty && !is_link {
                Ok(())
            } else {
                Err(GitError::file("clone into a directory that is not empty")(error))
            }
        }
        Err(error) => Err(GitError::file("make the directory of a clone")(error)),
    }
}

/// Returns true if the refs of both names cannot exist together, or are the same.
fn overlap(one: &str, other: &str) -> bool {
    let is_above = |above: &str, below: &str| below.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
    one == other || is_above(one, other) || is_above(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_that_need_one_name_overlap() {
        for (one, other, expected) in
            [("a", "a", true), ("a", "a/b", true), ("a/b", "a", true), ("a", "ab", false), ("a/b", "a/c", false)]
        {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
        }
    }
}
