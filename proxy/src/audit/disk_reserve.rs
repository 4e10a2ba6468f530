//! Room on the disk for what must still be written.
//!
//! A call that went upstream has an outcome, and a file has an end. The room for both is reserved before the
//! intent is admitted: a disk that is full refuses calls, and loses none.

use std::io;

/// More than the longest outcome: its names have 256 bytes at most, of which each may need an escape.
pub(super) const OUTCOME_MAX: u64 = 3072;
/// More than the longest close.
pub(super) const CLOSE_MAX: u64 = 1536;
/// Reserved at once, where there is as much: some forty calls.
const STEP: u64 = 64 * 1024;

/// Reserves blocks behind the end of a file. A trait, so that tests can have a full disk.
pub trait DiskSpace: Send {
    /// Makes sure that so many bytes from there on can be written.
    ///
    /// # Errors
    /// The system's; `Unsupported` where it cannot promise anything.
    fn reserve(&mut self, from: u64, len: u64) -> io::Result<()>;
}

/// What is reserved, and what is taken.
pub(super) struct DiskReserve {
    /// None once nothing more will be written: it holds the file open, and locked.
    space: Option<Box<dyn DiskSpace>>,
    /// Where the last line ends, written or on its way.
    end: u64,
    /// Up to where blocks are there.
    reserved: u64,
}

impl DiskReserve {
    pub(super) fn new(space: Box<dyn DiskSpace>, end: u64) -> Self {
        Self { space: Some(space), end, reserved: end }
    }

    /// Lets the file go.
    pub(super) fn release(&mut self) {
        self.space = None;
    }

    /// Makes room for a line, and for what will be owed behind it.
    ///
    /// # Errors
    /// The system's: the disk is full.
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
                        "the file system reserves no room: a full disk may cost the audit log its last records"
                    );
                    self.reserved = u64::MAX;
                    return Ok(());
                }
                Err(error) if upto == need => return Err(error),
                // Not so much, but perhaps enough.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// A line takes its room.
    pub(super) fn take(&mut self, line: usize) {
        self.end += line as u64;
    }
}
