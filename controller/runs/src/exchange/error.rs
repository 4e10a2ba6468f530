//! Errors of the import of files into a run, and of their export.

use std::io;

/// Error of the import of files into a run, or of their export.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// A file or a directory cannot be read or written.
    #[error("{path}")]
    File {
        /// Path, made printable.
        path: String,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// A directory has more entries than a run takes.
    #[error("{path} has more than {max} files and directories")]
    TooMany {
        /// Path, made printable.
        path: String,
        /// Maximum.
        max: u64,
    },
    /// A path in a directory is too long.
    #[error("{path} has a file whose path in it is longer than {max} bytes")]
    TooDeep {
        /// Path, made printable.
        path: String,
        /// Maximum.
        max: usize,
    },
    /// A file or a directory has more bytes than a run takes.
    #[error("{path} has more than {max} bytes")]
    TooLarge {
        /// Path, made printable.
        path: String,
        /// Maximum.
        max: u64,
    },
    /// The paths of a directory need more memory than a run takes.
    #[error("the paths in {path} have more than {max} bytes together")]
    NamesTooLarge {
        /// Path, made printable.
        path: String,
        /// Maximum.
        max: u64,
    },
    /// A directory has more configurations of git than a run takes.
    #[error("the repositories in {path} have more than {max} configurations of git")]
    TooManyConfigs {
        /// Path, made printable.
        path: String,
        /// Maximum.
        max: usize,
    },
    /// Git does not accept a configuration, so the files that it would execute are unknown.
    #[error("{path}, line {line}: this is not a configuration of git; repair it, or remove it")]
    Config {
        /// Path, made printable.
        path: String,
        /// Line.
        line: usize,
    },
    /// Other programs hold the lock of the directory.
    #[error("another program has held the lock of {path} for {waited:?}; nothing was changed there")]
    Locked {
        /// Path, made printable.
        path: String,
        /// Time that was waited.
        waited: std::time::Duration,
    },
    /// The workspace of a run does not exist: not yet, or no longer.
    #[error("{0} does not exist")]
    NoWorkspace(String),
    /// The run has removed its copy of the repository, or replaced it by other files.
    #[error("the run has removed /workspace/repo; nothing was changed in {0}")]
    NoRepository(String),
    /// The directory is the metadata of a git repository.
    #[error("{0} is the directory of a git repository itself, as a bare one; name a work tree")]
    GitDirectory(String),
    /// Changes of a run no longer match the directory.
    #[error("{count} changes of the run were not made in {path}; they are kept in {workspace}: {names}")]
    LeftOut {
        /// Number of changes.
        count: usize,
        /// Directory of the host.
        path: String,
        /// The first files, with the reasons.
        names: String,
        /// Path of the kept workspace.
        workspace: String,
    },
}

impl ExchangeError {
    /// Returns the constructor of an error about this path.
    pub(super) fn at(path: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
