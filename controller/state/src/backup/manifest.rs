//! The list of the files of a backup, with their sizes and hashes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sluice_contract::hex;

use super::{create, is_known, open};

/// Name of the list in a backup.
pub(super) const MANIFEST: &str = "manifest.json";
/// Version of the list.
const VERSION: u32 = 1;

/// The list of the files of a backup.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Version of the list.
    version: u32,
    /// Time of the backup in UTC.
    pub(super) created_at: String,
    pub(super) files: Vec<ManifestFile>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ManifestFile {
    /// Path in the backup.
    pub(super) path: String,
    /// Size.
    pub(super) bytes: u64,
    sha256: String,
}

/// A directory that is not a complete backup.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum ManifestError {
    #[error("{} is not a backup of sluice: it has no {MANIFEST} that can be read", .0.display())]
    NoBackup(PathBuf, #[source] io::Error),
    #[error("{path} is not the list of a backup: {1}", path = .0.display())]
    NotAList(PathBuf, String),
    #[error("{} is missing in the backup", .0.display())]
    Missing(PathBuf),
    #[error("{} is not the file that was backed up: its size or its hash differs", .0.display())]
    Differs(PathBuf),
    #[error("{} is not a file of the backup; move it away", .0.display())]
    Extra(PathBuf),
    #[error("cannot read or write {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
}

impl Manifest {
    /// Returns an empty list.
    pub(super) fn now() -> Self {
        let created_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self { version: VERSION, created_at, files: Vec::new() }
    }

    /// Writes the list into a backup.
    pub(super) fn write(&self, directory: &Path) -> Result<(), ManifestError> {
        let path = directory.join(MANIFEST);
        let text = serde_json::to_string_pretty(self).expect("plain data") + "\n";
        let written = create(&path).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| ManifestError::Io(path, error))
    }

    /// Reads the list of a backup.
    pub(super) fn read(directory: &Path) -> Result<Self, ManifestError> {
        let path = directory.join(MANIFEST);
        let text = open(&path).and_then(io::read_to_string);
        let text = text.map_err(|error| ManifestError::NoBackup(directory.to_owned(), error))?;
        let not_a_list = |reason: String| ManifestError::NotAList(path.clone(), reason);
        let manifest: Self = serde_json::from_str(&text).map_err(|error| not_a_list(error.to_string()))?;
        if manifest.version != VERSION {
            return Err(not_a_list(format!("version {} is not known; use the newer sluice", manifest.version)));
        }
        match manifest.files.iter().find(|file| !is_known(&file.path)) {
            Some(strange) => Err(not_a_list(format!("a backup has no file {}", strange.path))),
            None => Ok(manifest),
        }
    }

    /// Checks that a backup has exactly these files.
    pub(super) fn check(&self, directory: &Path) -> Result<(), ManifestError> {
        for file in &self.files {
            let path = directory.join(&file.path);
            match ManifestFile::of(&path, &file.path) {
                Ok(found) if found == *file => {}
                Ok(_) => return Err(ManifestError::Differs(path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ManifestError::Missing(path)),
                Err(error) => return Err(ManifestError::Io(path, error)),
            }
        }
        let listed: BTreeSet<_> = self.files.iter().map(|file| directory.join(&file.path)).collect();
        for part in ["", "audit", "keys", "keys/public"] {
            let part = directory.join(part);
            for entry in fs::read_dir(&part).map_err(|error| ManifestError::Io(part.clone(), error))? {
                let path = entry.map_err(|error| ManifestError::Io(part.clone(), error))?.path();
                let is_part = path.is_dir() && ["audit", "keys", "keys/public"].iter().any(|name| path.ends_with(name));
                if !is_part && !listed.contains(&path) && path != directory.join(MANIFEST) {
                    return Err(ManifestError::Extra(path));
                }
            }
        }
        Ok(())
    }
}

impl ManifestFile {
    /// Returns size and hash of a file.
    pub(super) fn of(path: &Path, name: &str) -> io::Result<Self> {
        hash(open(path)?, io::sink(), name)
    }
}

/// Copies a file to a new private one, as far as it reaches now, and returns size and hash of the copy.
pub(super) fn copy_hashed(from: &Path, to: &Path, name: &str) -> io::Result<ManifestFile> {
    let source = open(from)?;
    // A file that grows is copied up to its end at this moment.
    let length = source.metadata()?.len();
    let mut copy = create(to)?;
    let copied = hash(source.take(length), &copy, name)?;
    copy.flush()?;
    copy.sync_all()?;
    Ok(copied)
}

fn hash(mut from: impl Read, mut to: impl Write, name: &str) -> io::Result<ManifestFile> {
    let (mut digest, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        bytes += read as u64;
    }
    Ok(ManifestFile { path: name.to_owned(), bytes, sha256: hex::encode(&digest.finalize()) })
}
