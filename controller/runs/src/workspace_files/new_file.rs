//! A file that is written beside the old one, and then replaces it completely.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};
use sha2::{Digest, Sha256};
use sluice_contract::hex;

use super::{FileError, beneath};

/// A file that is being written. Dropping it removes the file.
#[derive(Debug)]
pub struct NewFile {
    directory: OwnedFd,
    temporary: CString,
    name: CString,
    file: File,
    digest: Sha256,
    written: u64,
    max: u64,
    uid: u32,
    is_in_place: bool,
}

/// Content of a file that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenContent {
    /// Number of bytes.
    pub size: u64,
    /// SHA-256 in hex digits.
    pub sha256: String,
}

impl NewFile {
    /// Creates the file in a directory. It will have this name, this user, and at most this many bytes.
    pub(super) fn create(directory: OwnedFd, name: CString, uid: u32, max: u64) -> Result<Self, FileError> {
        let temporary = CString::new(format!(".sluice-{}.new", uuid::Uuid::new_v4().simple())).expect("it has no NUL");
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let file = File::from(beneath(&directory, &temporary, flags, Mode::from_bits_truncate(0o600))?);
        let digest = Sha256::new();
        Ok(Self { directory, temporary, name, file, digest, written: 0, max, uid, is_in_place: false })
    }

    /// Adds content.
    ///
    /// # Errors
    /// [`FileError`]; [`FileError::TooLarge`] before more than the maximum is written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.written = self.written.saturating_add(bytes.len() as u64);
        if self.written > self.max {
            return Err(FileError::TooLarge(self.max));
        }
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        Ok(())
    }

    /// Syncs the content to disk. The file does not have its name yet, and the agent cannot change it.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn complete(&self) -> Result<WrittenContent, FileError> {
        fchmod(&self.file, Mode::from_bits_truncate(0o644))?;
        self.file.sync_all()?;
        Ok(WrittenContent { size: self.written, sha256: hex::encode(&self.digest.clone().finalize()) })
    }

    /// Renames the file, and then gives it to the agent: other programs see the old content or all of the new.
    ///
    /// # Errors
    /// [`FileError`]; without its name, the old content stays.
    pub fn put_in_place(mut self) -> Result<(), FileError> {
        renameat(&self.directory, self.temporary.as_c_str(), &self.directory, self.name.as_c_str())?;
        self.is_in_place = true;
        fchown(&self.file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.uid)))?;
        Ok(nix::unistd::fsync(&self.directory)?)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_in_place {
            // The sandbox may have removed it.
            let _ = unlinkat(&self.directory, self.temporary.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}
