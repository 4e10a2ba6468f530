//! Disk space for the records that are still due.
//!
//! A call that went upstream gets an outcome, and a file gets a `close`. The disk space for both is reserved before
//! the intent is admitted: a full disk refuses calls, and loses none.

use std::io;

/// Upper bound of the length of an outcome: its names, with account and model, have at most 256 bytes, of which each
/// may need an escape.
pub(super) const OUTCOME_MAX: u64 = 4096;
/// Upper bound of the length of a `close`.
pub(super) const CLOSE_MAX: u64 = 1536;
/// Number of bytes reserved at once, where the disk has them: enough for some forty calls.
const STEP: u64 = 64 * 1024;

/// Reserves blocks after the end of a file. A trait, so that tests can have a full disk.
pub trait DiskSpace: Send {
    /// Ensures that `len` bytes can be written from the offset `from` on.
    ///
    /// # Errors
    /// The error of the system; `Unsupported` if it cannot promise anything.
    fn reserve(&mut self, from: u64, len: u64) -> io::Result<()>;
}

/// The reserved blocks of the audit file, and the part that is used.
pub(super) struct DiskReserve {
    /// `None` once nothing more will be written: the value holds the file open and locked.
    space: Option<Box<dyn DiskSpace>>,
    /// Offset after the last line, written or queued.
    end: u64,
    /// Offset up to which blocks are reserved.
    reserved: u64,
}

impl DiskReserve {
    pub(super) fn new(space: Box<dyn DiskSpace>, end: u64) -> Self {
        Self { space: Some(space), end, reserved: end }
    }

    /// Releases the file.
    pub(super) fn release(&mut self) {
        self.space = None;
    }

    /// Ensures disk space for a line, and for the records that are due after it.
    ///
    /// # Errors
    /// The error of the system: the disk is full.
    pub(super) fn make(&mut self, line: usize, owed: u64) -> io::Result<()> {
        let need = self.end + line as u64 + owed;
        if need <= self.reserved {
            return Ok(());
        }
        let Some(space) = &mut self.space else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        let from = self.reserved.max(self.end);
        for upto in [need.max(from + STEP), need] {
            match space.reserve(from, upto - from) {
                Ok(()) => {
                    self.reserved = upto;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    tracing::warn!(
                        "the file system reserves no blocks: on a full disk the audit log may lose its last records"
                    );
                    self.reserved = u64::MAX;
                    return Ok(());
                }
                Err(error) if upto == need => return Err(error),
                // The disk may still have enough for the smaller step.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Counts a line as written.
    pub(super) fn take(&mut self, line: usize) {
        self.end += line as u64;
    }
}
