//! Access to git for a local forge, implemented by the caller.

use std::future::Future;
use std::io;
use std::pin::Pin;

/// Future of a process of git.
pub type GitFuture<'a> = Pin<Box<dyn Future<Output = Result<GitOutput, GitFault>> + Send + 'a>>;

/// Runs git in one bare repository that no sandbox can write, with an empty environment, limits,
/// and without hooks.
pub trait RunGit: Send + Sync {
    /// Runs git with these arguments, after the arguments that select the repository.
    fn run<'a>(&'a self, arguments: &'a [&'a str]) -> GitFuture<'a>;
}

/// Exit code and output of a git process.
#[derive(Debug, Clone)]
pub struct GitOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
}

/// Reason why a git process has no usable result.
#[derive(Debug, thiserror::Error)]
pub enum GitFault {
    /// The process did not start, or its output could not be read.
    #[error("git cannot be run")]
    Run(#[source] io::Error),
    /// The process took too long, or was killed.
    #[error("git was killed, or did not end in time")]
    Killed,
    /// The process failed.
    #[error("git ended with code {0}")]
    Code(i32),
    /// The output is not what git prints.
    #[error("git printed something else than expected")]
    Output,
}
