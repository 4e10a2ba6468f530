//! The file of the audit log.
//!
//! One record is one write. The part of a record that a full disk leaves is cut off again, so that the file holds
//! whole records.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use sluice_contract::reader;
use sluice_contract::recovery::{AuditOwner, RecoveryPlan, Unusable, plan};

use super::{DiskSpace, LogSink, OpenLog};

/// System calls of the log, one method each. A trait, so that tests can inject faults.
pub trait AuditStorage: Send {
    /// Adds bytes at the end, perhaps not all of them.
    ///
    /// # Errors
    /// The error of the system.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Cuts the file to this length, and frees the blocks that were reserved after it.
    ///
    /// # Errors
    /// The error of the system.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Makes the file and its name durable.
    ///
    /// # Errors
    /// The error of the system.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file of whole records.
#[derive(Debug)]
pub struct AuditFile<M> {
    medium: M,
    /// Offset after the last whole record.
    good: u64,
}

/// A locked file of the host.
#[derive(Debug)]
pub struct OsFile {
    file: Arc<File>,
    /// Directory of the file, synced once, with the first record: a file whose name is lost is lost.
    directory: Option<File>,
}

/// Reason for which the audit file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused to create it.
    #[error("cannot create it")]
    Create(#[source] io::Error),
    /// The file exists, and cannot be read or repaired.
    #[error("cannot continue it")]
    GoOn(#[source] io::Error),
    /// Another sidecar writes the file.
    #[error("another process holds its lock")]
    Locked,
    /// The file is damaged, was closed, or belongs to another run or attempt.
    #[error("it exists, and cannot be continued")]
    Unusable(#[source] Unusable),
    /// The path is a device, a pipe or a directory.
    #[error("it is not a regular file")]
    NotAFile,
}

/// Creates the file (0600) or opens an existing one, and locks it. A file of this attempt continues; its torn last
/// line is copied to a file beside it, and cut off.
///
/// # Errors
/// [`OpenError`]; the file is then unchanged.
pub fn open(path: &Path, owner: &AuditOwner<'_>) -> Result<OpenLog, OpenError> {
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(OpenError::NotAFile);
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    let file = match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        other => other,
    };
    let file = file.map_err(OpenError::Create)?;
    file.try_lock().map_err(|_| OpenError::Locked)?;
    let directory = File::open(directory(path)).map_err(OpenError::Create)?;
    let past = past(path, &file, owner)?;
    if let Some(plan) = &past {
        cut_torn(path, &file, &directory, plan).map_err(OpenError::GoOn)?;
    }
    let good = past.as_ref().map_or(0, |plan| plan.keep);
    let file = Arc::new(file);
    let space = OsDiskSpace(Arc::clone(&file));
    let sink = AuditFile { medium: OsFile { file, directory: Some(directory) }, good };
    Ok(OpenLog { sink: Box::new(sink), space: Box::new(space), past })
}

/// Checks whether [`open`] would take the content of the file, and changes nothing. The lock is not checked.
///
/// # Errors
/// [`OpenError`]
pub fn check(path: &Path, owner: &AuditOwner<'_>) -> Result<(), OpenError> {
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(OpenError::NotAFile),
        Ok(_) => {
            let file = File::open(path).map_err(OpenError::Create)?;
            past(path, &file, owner).map(drop)
        }
        Err(_) => Ok(()),
    }
}

/// Returns the plan by which the file continues; `None` if it is new.
fn past(path: &Path, file: &File, owner: &AuditOwner<'_>) -> Result<Option<RecoveryPlan>, OpenError> {
    let bytes = reader::read_file(BufReader::new(file)).map_err(OpenError::GoOn)?;
    if bytes.is_empty() && !aside(path, 0).exists() {
        return Ok(None);
    }
    // An earlier restart may have cut the line off, and ended before it could record that.
    let before = match std::fs::read(aside(path, bytes.len() as u64)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(OpenError::GoOn)?,
    };
    plan(&bytes, &before, owner).map(Some).map_err(OpenError::Unusable)
}

/// Copies the torn line, makes the copy durable, and only then cuts the line off.
fn cut_torn(path: &Path, mut file: &File, directory: &File, plan: &RecoveryPlan) -> io::Result<()> {
    use std::io::{Seek, SeekFrom};
    let mut torn = Vec::new();
    file.seek(SeekFrom::Start(plan.keep))?;
    file.read_to_end(&mut torn)?;
    if torn.is_empty() {
        return Ok(());
    }
    let mut copy =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(aside(path, plan.keep))?;
    copy.write_all(&torn)?;
    copy.sync_all()?;
    directory.sync_all()?;
    file.set_len(plan.keep)?;
    file.sync_all()
}

/// Returns the path of the copy of a torn line that began at this offset.
fn aside(path: &Path, offset: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn-{offset}"));
    name.into()
}

/// Returns the directory of a file.
#[must_use]
pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl<M: AuditStorage> AuditFile<M> {
    /// Wraps a file that ends with a complete record at the offset `good`.
    #[must_use]
    pub fn new(medium: M, good: u64) -> Self {
        Self { medium, good }
    }
}

impl<M: AuditStorage> LogSink for AuditFile<M> {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let written = loop {
            match self.medium.write(line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        if matches!(written, Ok(n) if n == line.len()) {
            self.good += line.len() as u64;
            return Ok(());
        }
        // A full disk tears a line. The file must hold whole records, so the torn line is cut off.
        self.medium.cut(self.good)?;
        Err(written
            .err()
            .unwrap_or_else(|| io::Error::new(io::ErrorKind::StorageFull, "only part of a record was written")))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.medium.sync()
    }

    fn trim(&mut self) -> io::Result<()> {
        self.medium.cut(self.good)
    }
}

impl AuditStorage for OsFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.file).write(bytes)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed"));
        }
        self.file.sync_data()?;
        match self.directory.take() {
            Some(directory) => directory.sync_all(),
            None => Ok(()),
        }
    }
}

/// The same file, for the reservation of blocks after its end.
#[derive(Debug)]
struct OsDiskSpace(Arc<File>);

impl DiskSpace for OsDiskSpace {
    fn reserve(&mut self, from: u64, len: u64) -> io::Result<()> {
        let (Ok(from), Ok(len)) = (from.try_into(), len.try_into()) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        loop {
            match fallocate(&*self.0, FallocateFlags::FALLOC_FL_KEEP_SIZE, from, len) {
                Err(Errno::EINTR) => {}
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => return Err(io::ErrorKind::Unsupported.into()),
                other => return Ok(other?),
            }
        }
    }
}
