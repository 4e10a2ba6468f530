//! Git for the local forge, in a repository of the operator.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::GitError;
use crate::forge::{GitFault, GitFuture, GitOutput, RunGit};
use crate::home::GitHome;
use crate::limits::OPERATOR;
use crate::local_repository::LocalRepository;
use crate::program::{GitProgram, Input};
use crate::repository_url::RepositoryUrl;

/// Git in one directory.
#[derive(Debug)]
struct LocalGit {
    repository: LocalRepository,
    program: GitProgram,
}

impl GitHome {
    /// Returns git in a bare repository of the operator, with the rights of its owner.
    ///
    /// # Errors
    /// [`GitError::File`]: the repository does not exist.
    pub fn local_git(&self, directory: &Path) -> Result<Box<dyn RunGit>, GitError> {
        let repository = LocalRepository::open(directory, self.program())?;
        Ok(Box::new(LocalGit { repository, program: self.program().clone() }))
    }

    /// Returns the directory of the pull requests of a repository.
    #[must_use]
    pub fn forge_records(&self, url: &RepositoryUrl) -> PathBuf {
        self.mirror_paths(url, "pull requests").repository.with_extension("pulls")
    }
}

impl RunGit for LocalGit {
    fn run<'a>(&'a self, arguments: &'a [&'a str]) -> GitFuture<'a> {
        Box::pin(async move {
            let command = self.repository.end().command(&self.program, OPERATOR).args(arguments);
            match command.run(Input::Nothing).await {
                Ok(output) => match output.code {
                    Some(code) => Ok(GitOutput { code, stdout: output.stdout }),
                    None => Err(GitFault::Killed),
                },
                Err(GitError::TimedOut { .. } | GitError::TooMuchOutput { .. }) => Err(GitFault::Killed),
                Err(error) => Err(GitFault::Run(io::Error::other(error))),
            }
        })
    }
}
