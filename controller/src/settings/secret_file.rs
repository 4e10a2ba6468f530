//! Files that hold keys: only their owners may read them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use sluice_litellm::ApiKey;

/// A file that cannot be used as the source of a key.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretFileError {
    /// The value may be the key itself, so it is not repeated.
    #[error("the value has no '/', so it may be a key; write ./NAME for a file in the working directory")]
    NoPath,
    #[error("{0}: {1}")]
    NotPrivate(PathBuf, NotPrivate),
    #[error("cannot read {0}: {1}")]
    Unreadable(PathBuf, io::Error),
    #[error("{0} is empty; write the key into it")]
    Empty(PathBuf),
}

/// A file that others than its owner may be able to read.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotPrivate {
    #[error("cannot read it: {0}")]
    Unknown(io::Error),
    #[error("other users can read it, and it holds a key; chmod 600 it")]
    Readable,
}

/// Checks that only the owner of a file can read it.
pub(super) fn check_private(path: &Path) -> Result<(), NotPrivate> {
    let meta = fs::metadata(path).map_err(NotPrivate::Unknown)?;
    if meta.is_file() && meta.mode() & 0o077 != 0 { Err(NotPrivate::Readable) } else { Ok(()) }
}

/// Reads the key in a file.
pub(super) fn read_key(value: &str) -> Result<ApiKey, SecretFileError> {
    if !value.contains('/') {
        return Err(SecretFileError::NoPath);
    }
    let path = Path::new(value);
    check_private(path).map_err(|error| SecretFileError::NotPrivate(path.to_owned(), error))?;
    let text = fs::read_to_string(path).map_err(|error| SecretFileError::Unreadable(path.to_owned(), error))?;
    ApiKey::new(text).ok_or_else(|| SecretFileError::Empty(path.to_owned()))
}
