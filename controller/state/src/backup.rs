//! A copy of a state directory, while it is in use, and its restoration.
//!
//! A copy is written under a temporary name and renamed when it is complete, so an interrupted copy never has the final
//! name. It has all data that is irreplaceable: database, audit files, logs and keys. It has neither the workspaces of
//! runs nor the name that marks containers: two state directories with one name would remove each other's containers.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sluice_contract::RunKey;

use crate::append_log::AppendLog;
use crate::file;
use crate::keys::{KeyError, Keys};
use crate::layout::{Layout, LayoutError};
use crate::ledger::LedgerError;
use crate::state_directory::{self, StateDirectory};
use crate::store::Store;
use crate::witness;

mod manifest;

pub use manifest::ManifestError;
use manifest::{Manifest, ManifestFile, copy_hashed};

/// A finished backup or restoration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupSummary {
    /// The directory that was made.
    #[serde(serialize_with = "crate::file::serialize_path")]
    pub directory: PathBuf,
    /// Number of files, without the manifest.
    pub files: usize,
    /// Number of audit files.
    pub audit_files: usize,
    /// Size of all files.
    pub bytes: u64,
    /// Time of the backup in UTC.
    pub created_at: String,
}

/// Error of a backup or a restoration.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum BackupError {
    #[error("{} exists already; a backup goes to a new directory", .0.display())]
    Exists(PathBuf),
    #[error("the state directory {} is in use; a restoration goes to a new or an empty one: name it with --state-dir", .0.display())]
    InUse(PathBuf),
    #[error("the directory {} does not exist; make it, or name another directory for the copy", .0.display())]
    NoParent(PathBuf),
    #[error("cannot copy {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Copies a state directory to a new directory. The database is a snapshot of one moment, and has no line that the copied
/// audit files do not have.
///
/// # Errors
/// [`BackupError`]; then the partial copy is removed, unless this process was killed.
pub async fn back_up(layout: &Layout, keys: &Keys, store: &Store, to: &Path) -> Result<BackupSummary, BackupError> {
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let unfinished = Unfinished::beside(to)?;
    // Runs that begin later are not in the database of the copy.
    let audited = layout.audited().map_err(|error| BackupError::Io(layout.state().join("audit"), error))?;
    let mut manifest = Manifest::now();
    {
        // Database and budget log are of the same moment.
        let lock = AppendLog::at(layout.state(), layout.budget_log()).lock();
        let _lock = lock.map_err(|error| BackupError::Io(layout.budget_log(), error))?;
        let database = unfinished.path.join("sluice.db");
        store.back_up(&database).await?;
        manifest
            .files
            .push(ManifestFile::of(&database, "sluice.db").map_err(|error| BackupError::Io(database, error))?);
        for log in [layout.budget_log(), layout.decisions()] {
            if log.exists() {
                add(&mut manifest, &log, &unfinished.path, &file_name(&log))?;
            }
        }
    }
    make(&unfinished.path.join("audit"))?;
    for key in &audited {
        let path = layout.run(key).audit;
        match add(&mut manifest, &path, &unfinished.path, &format!("audit/{key}.jsonl")) {
            // The file of a run that was removed in the meantime.
            Err(BackupError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
            added => added?,
        }
    }
    let control = layout.control_log();
    if control.exists() {
        add(&mut manifest, &control, &unfinished.path, "audit/control.jsonl")?;
    }
    // The keys are copied last, so that they include the keys of all files before.
    make(&unfinished.path.join("keys"))?;
    make(&unfinished.path.join("keys/public"))?;
    let mut public = keys.public()?;
    public.dedup();
    for key in public {
        // The copy is named by the key's id: an operator may have given the file another name, or put several keys into
        // it.
        let name = format!("keys/public/{}", key.id());
        manifest.files.push(write(&unfinished.path, &name, format!("{key}\n").as_bytes())?);
    }
    add(&mut manifest, &keys.signing(), &unfinished.path, "keys/signing")?;
    manifest.write(&unfinished.path)?;
    let (created_at, copied) = (manifest.created_at.clone(), unfinished.publish(to)?);
    Ok(summary(copied, &manifest, created_at))
}

/// Checks a backup, and copies it to a new or an empty state directory, which gets a name of its own.
///
/// # Errors
/// [`BackupError`]. Nothing is copied from a backup with a fault.
pub fn restore(from: &Path, state: &Path) -> Result<BackupSummary, BackupError> {
    let manifest = Manifest::read(from)?;
    manifest.check(from)?;
    let found = match state_directory::inspect(state).map_err(LayoutError::from)? {
        StateDirectory::Missing => state_directory::create(state).map_err(LayoutError::from)?,
        found => found,
    };
    if found != StateDirectory::Empty {
        return Err(BackupError::InUse(state.to_owned()));
    }
    let stage = state.join(STAGE);
    make(&stage)?;
    for directory in ["audit", "keys", "keys/public"] {
        make(&stage.join(directory))?;
    }
    for file in &manifest.files {
        let (source, target) = (from.join(&file.path), stage.join(&file.path));
        let copied =
            copy_hashed(&source, &target, &file.path).map_err(|error| BackupError::Io(source.clone(), error))?;
        if copied != *file {
            return Err(ManifestError::Differs(source).into());
        }
    }
    // The database comes last: without it, and with the stage, nothing takes the directory for a state directory.
    for name in ["audit", "keys", "budgets.log", "decisions.log", "sluice.db"] {
        let (source, target) = (stage.join(name), state.join(name));
        if source.exists() {
            fs::rename(&source, &target).map_err(|error| BackupError::Io(target, error))?;
        }
    }
    fs::remove_dir(&stage).map_err(|error| BackupError::Io(stage, error))?;
    let layout = Layout::open(state)?;
    file::sync_directory(layout.state()).map_err(|error| BackupError::Io(state.to_owned(), error))?;
    let created_at = manifest.created_at.clone();
    Ok(summary(layout.state().to_owned(), &manifest, created_at))
}

/// Directory in which a restoration collects its files.
const STAGE: &str = ".restoring";

/// A directory that is removed unless it is published.
struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    fn beside(to: &Path) -> Result<Self, BackupError> {
        let invalid = || BackupError::Io(to.to_owned(), io::ErrorKind::InvalidInput.into());
        let mut name = to.file_name().ok_or_else(invalid)?.to_owned();
        name.push(format!(".{}.part", uuid::Uuid::new_v4().simple()));
        let path = to.with_file_name(name);
        let parent = file::parent(to);
        if !parent.is_dir() {
            return Err(BackupError::NoParent(parent.to_owned()));
        }
        make(&path)?;
        Ok(Self { path })
    }

    fn publish(self, to: &Path) -> Result<PathBuf, BackupError> {
        let failed = |error| BackupError::Io(to.to_owned(), error);
        for directory in ["audit", "keys/public", "keys", ""] {
            file::sync_directory(&self.path.join(directory)).map_err(failed)?;
        }
        // A directory that was made in the meantime is replaced only if it is empty.
        fs::rename(&self.path, to).map_err(failed)?;
        file::sync_directory(file::parent(to)).map_err(failed)?;
        fs::canonicalize(to).map_err(failed)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn make(path: &Path) -> Result<(), BackupError> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| BackupError::Io(path.to_owned(), error))
}

fn add(manifest: &mut Manifest, from: &Path, to: &Path, name: &str) -> Result<(), BackupError> {
    let copied = copy_hashed(from, &to.join(name), name).map_err(|error| BackupError::Io(from.to_owned(), error))?;
    manifest.files.push(copied);
    Ok(())
}

/// Writes a file of a backup.
fn write(to: &Path, name: &str, content: &[u8]) -> Result<ManifestFile, BackupError> {
    let path = to.join(name);
    let written = create(&path).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        ManifestFile::of(&path, name)
    });
    written.map_err(|error| BackupError::Io(path, error))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn summary(directory: PathBuf, manifest: &Manifest, created_at: String) -> BackupSummary {
    let is_audit = |file: &&ManifestFile| file.path.starts_with("audit/") && file.path != "audit/control.jsonl";
    BackupSummary {
        directory,
        files: manifest.files.len(),
        audit_files: manifest.files.iter().filter(is_audit).count(),
        bytes: manifest.files.iter().map(|file| file.bytes).sum(),
        created_at,
    }
}

/// Returns whether a name in a backup is one of the expected names.
fn is_known(name: &str) -> bool {
    match name.split('/').collect::<Vec<_>>()[..] {
        ["sluice.db" | "budgets.log" | "decisions.log"] | ["keys", "signing"] => true,
        ["keys", "public", id] => id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        ["audit", "control.jsonl"] => true,
        ["audit", file] => file.strip_suffix(".jsonl").is_some_and(|key| key.parse::<RunKey>().is_ok()),
        _ => false,
    }
}

/// Opens a new private file.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file of a state directory or of a backup.
fn open(path: &Path) -> io::Result<File> {
    witness::open(path)
}

#[cfg(test)]
mod tests;
