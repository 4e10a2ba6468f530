//! Copies objects from one repository into another, as a pack through a pipe.
//!
//! Each of the two processes sees only its own repository.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;

use crate::beneath::replace_file;
use crate::directory::read_small;
use crate::error::GitError;
use crate::limits::Limits;
use crate::object_id::ObjectId;
use crate::program::{ChildUser, GitCommand, GitProgram, Input, RepositoryForm};

/// Name of git's file with the boundary of a history.
const SHALLOW: &str = "shallow";

/// One end of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferEnd<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) form: RepositoryForm,
    pub(crate) user: Option<ChildUser>,
}

impl<'a> TransferEnd<'a> {
    /// A bare repository of ours.
    pub(crate) fn bare(directory: &'a Path, program: &GitProgram) -> Self {
        Self { directory, form: RepositoryForm::Bare, user: program.user() }
    }

    pub(crate) fn command<'b>(&self, program: &'b GitProgram, limits: Limits) -> GitCommand<'b>
    where
        'a: 'b,
    {
        program.command(self.directory, limits).form(self.form).user(self.user)
    }

    /// Returns the commits at which the history begins, as git writes them; none if it is whole.
    pub(crate) fn boundary(&self) -> Result<Option<Vec<u8>>, GitError> {
        let ids = read_small(&self.directory.join(self.git_directory()).join(SHALLOW))?;
        Ok(ids.filter(|ids| !ids.is_empty()))
    }

    /// Lets the history begin at these commits. Only for a new repository of ours: in a repository of the operator, it would
    /// hide all commits before them.
    pub(crate) fn set_boundary(&self, boundary: Option<&[u8]>) -> Result<(), GitError> {
        let Some(ids) = boundary else { return Ok(()) };
        let replaced = replace_file(self.directory, self.git_directory(), SHALLOW, ids, self.user);
        replaced.map_err(GitError::file("set the boundary of a history"))
    }

    fn git_directory(&self) -> &'static str {
        match self.form {
            RepositoryForm::Bare => ".",
            RepositoryForm::WorkTree => ".git",
        }
    }
}

/// Sends the objects that `wanted` reaches and `had` does not reach. Both are in `from`; `had` is also in `to`. The
/// boundary of the history is not sent.
pub(crate) async fn transfer(
    program: &GitProgram,
    from: TransferEnd<'_>,
    to: TransferEnd<'_>,
    wanted: &[ObjectId],
    had: &[ObjectId],
    limits: Limits,
) -> Result<(), GitError> {
    let pack = ["pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"];
    let mut source = from.command(program, limits).read_only().args(pack).spawn(Stdio::piped())?;
    let stdin = source.stdin();
    let output = source.stdout().ok_or(GitError::Output { command: "pack-objects".into(), what: "no pipe".into() })?;
    let mut revisions: Vec<u8> = wanted.iter().flat_map(|id| format!("{id}\n").into_bytes()).collect();
    revisions.extend(had.iter().flat_map(|id| format!("^{id}\n").into_bytes()));
    let send = async {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(&revisions).await;
        }
        source.finish(None).await
    };
    let index = to.command(program, limits).args(["index-pack", "--stdin", "--fix-thin"]).run(Input::Pipe(output));
    let (sent, indexed) = tokio::try_join!(send, index)?;
    for (command, output) in [("pack-objects", sent), ("index-pack", indexed)] {
        if !output.is_success() {
            return Err(GitError::Failed { command: command.to_owned(), message: output.message() });
        }
    }
    Ok(())
}

/// Makes an empty repository in a directory of the user of git.
pub(crate) async fn init(
    program: &GitProgram,
    at: TransferEnd<'_>,
    branch: &str,
    limits: Limits,
) -> Result<(), GitError> {
    let mut words = vec!["init", "--quiet", "--template="];
    if at.form == RepositoryForm::Bare {
        words.push("--bare");
    }
    let initial = format!("--initial-branch={branch}");
    words.push(&initial);
    at.command(program, limits).args(words).check(Input::Nothing).await.map(drop)
}

/// Changes refs in one transaction; `lines` has the format of `git update-ref --stdin`.
pub(crate) async fn update_refs(
    program: &GitProgram,
    at: TransferEnd<'_>,
    lines: &str,
    limits: Limits,
) -> Result<(), GitError> {
    let words = ["update-ref", "--no-deref", "--stdin"];
    at.command(program, limits).args(words).check(Input::Bytes(lines.as_bytes())).await.map(drop)
}

/// Returns the object of a ref or revision, if it exists.
pub(crate) async fn resolve(
    program: &GitProgram,
    at: TransferEnd<'_>,
    revision: &str,
    limits: Limits,
) -> Result<Option<ObjectId>, GitError> {
    let words = ["rev-parse", "--verify", "--quiet", "--end-of-options", revision];
    let output = at.command(program, limits).read_only().args(words).run(Input::Nothing).await?;
    match (output.code, ObjectId::from_bytes(output.line())) {
        (Some(0), Ok(id)) => Ok(Some(id)),
        (Some(1), _) => Ok(None),
        _ => Err(GitError::Failed { command: "rev-parse".to_owned(), message: output.message() }),
    }
}
