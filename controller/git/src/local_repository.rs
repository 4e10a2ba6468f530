//! A repository of the operator in a directory of this host. Git works in it as the owner of the directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::GitError;
use crate::limits::OPERATOR;
use crate::object_id::ObjectId;
use crate::program::{ChildUser, GitProgram, Input, RepositoryForm};
use crate::transfer::{TransferEnd, resolve};

/// A repository of the operator in a directory.
#[derive(Debug)]
pub(crate) struct LocalRepository {
    directory: PathBuf,
    owner: Option<ChildUser>,
}

impl LocalRepository {
    /// Finds the git directory: the directory itself, or `.git` in it.
    pub(crate) fn open(directory: &Path, program: &GitProgram) -> Result<Self, GitError> {
        let inner = directory.join(".git");
        let directory = if inner.is_dir() { inner } else { directory.to_owned() };
        let metadata =
            fs::metadata(directory.join("objects")).map_err(GitError::file("find a repository in that directory"))?;
        let owner = program.user().map(|_| ChildUser { uid: metadata.uid(), gid: metadata.gid() });
        Ok(Self { directory, owner })
    }

    pub(crate) fn end(&self) -> TransferEnd<'_> {
        TransferEnd { directory: &self.directory, form: RepositoryForm::Bare, user: self.owner }
    }

    /// Returns the branch that HEAD names, which may have no commit yet; `None` for a detached HEAD.
    pub(crate) async fn head(&self, program: &GitProgram) -> Result<Option<String>, GitError> {
        let words = ["symbolic-ref", "--quiet", "HEAD"];
        let output = self.end().command(program, OPERATOR).read_only().args(words).run(Input::Nothing).await?;
        let line = String::from_utf8_lossy(output.line()).into_owned();
        Ok(line.strip_prefix("refs/heads/").map(str::to_owned))
    }

    /// Returns the commit of a branch.
    pub(crate) async fn branch(&self, program: &GitProgram, branch: &str) -> Result<Option<ObjectId>, GitError> {
        resolve(program, self.end(), &format!("refs/heads/{branch}^{{commit}}"), OPERATOR).await
    }

    /// Returns true if the repository has the commit.
    pub(crate) async fn has(&self, program: &GitProgram, id: &ObjectId) -> Result<bool, GitError> {
        let words = ["cat-file", "-e", id.as_str()];
        let output = self.end().command(program, OPERATOR).read_only().args(words).run(Input::Nothing).await?;
        Ok(output.is_success())
    }
}
