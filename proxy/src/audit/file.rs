//! The file under the log.
//!
//! One record is one write. What a full disk tears is cut off again, so that the file holds whole records.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use sluice_contract::reader;
use sluice_contract::recovery::{AuditOwner, RecoveryPlan, Unusable, plan};

use super::{Log, Sink, Space};

/// What the log asks of the system, one call each. A trait, so that tests can put faults there.
pub trait Medium: Send {
    /// Adds bytes at the end, perhaps not all of them.
    ///
    /// # Errors
    /// The system's.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Cuts the file to this length, and gives back what was reserved behind it.
    ///
    /// # Errors
    /// The system's.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Makes the file, and its name, durable.
    ///
    /// # Errors
    /// The system's.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file of whole records.
#[derive(Debug)]
pub struct AuditFile<M> {
    medium: M,
    /// Where the last whole record ends.
    good: u64,
}

/// A file of the host, locked.
#[derive(Debug)]
pub struct OsFile {
    file: Arc<File>,
    /// Synced once, with the first record: a file whose name is lost is lost.
    directory: Option<File>,
}

/// Why there is no audit file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system says no.
    #[error("cannot create it")]
    Create(#[source] io::Error),
    /// It is there, and cannot be read, or repaired.
    #[error("cannot go on with it")]
    GoOn(#[source] io::Error),
    /// Another sidecar writes it.
    #[error("another process holds its lock")]
    Locked,
    /// What it holds is not the beginning of this attempt.
    #[error("it exists, and cannot go on")]
    Unusable(#[source] Unusable),
    /// A device, a pipe, a directory.
    #[error("it is not a regular file")]
    NotAFile,
}

/// Creates the file (0600) or takes the one that is there, and locks it. A file of this attempt goes on; its
/// torn last line is kept aside, in a file of its own beside it, and cut off.
///
/// # Errors
/// [`OpenError`]; then the file is as it was.
pub fn open(path: &Path, owner: &AuditOwner<'_>) -> Result<Log, OpenError> {
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
    let space = OsSpace(Arc::clone(&file));
    let sink = AuditFile { medium: OsFile { file, directory: Some(directory) }, good };
    Ok(Log { sink: Box::new(sink), space: Box::new(space), past })
}

/// Whether [`open`] would take the file, without a change to it.
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

/// How the file goes on; none if it is new.
fn past(path: &Path, file: &File, owner: &AuditOwner<'_>) -> Result<Option<RecoveryPlan>, OpenError> {
    let bytes = reader::read_file(BufReader::new(file)).map_err(OpenError::GoOn)?;
    if bytes.is_empty() && !aside(path, 0).exists() {
        return Ok(None);
    }
    // Cut off by a restart that ended before it could say so.
    let before = match std::fs::read(aside(path, bytes.len() as u64)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(OpenError::GoOn)?,
    };
    plan(&bytes, &before, owner).map(Some).map_err(OpenError::Unusable)
}

/// First the copy is safe, then the original goes.
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

/// Where the torn line that began at this offset is kept.
fn aside(path: &Path, offset: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".torn-{offset}"));
    name.into()
}

/// Where a file stands.
#[must_use]
pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl<M: Medium> AuditFile<M> {
    /// A file that ends here.
    #[must_use]
    pub fn new(medium: M, good: u64) -> Self {
        Self { medium, good }
    }
}

impl<M: Medium> Sink for AuditFile<M> {
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
        // A full disk tears a line. What stands must be whole records, so the torn one goes.
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

impl Medium for OsFile {
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

/// The same file, for the blocks behind its end.
#[derive(Debug)]
struct OsSpace(Arc<File>);

impl Space for OsSpace {
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
