//! Witnesses of an audit file: hashes of its lines, stored while it was written, where its writer cannot change them.
//!
//! A hash chain detects edits. It does not detect that the owner of file and key has rewritten everything; the stored hash
//! of a line does.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use sluice_contract::{Hash, Witness, reader};

/// Opens an audit file for reading. Anything but a regular file is refused: a device could be read without end.
///
/// # Errors
/// Errors of the file system, and for anything but a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Reader at the end of a growing file.
#[derive(Debug, Default)]
pub struct AuditTail {
    offset: u64,
    lines: u64,
}

impl AuditTail {
    /// Reads the lines that are new, and returns number and hash of the last one. That line is on disk.
    ///
    /// # Errors
    /// Errors of the file system. A file that does not exist yet has no lines.
    pub fn read_new(&mut self, path: &Path) -> io::Result<Option<Witness>> {
        let mut file = match open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let bytes = reader::read_file(BufReader::new(&file))?;
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Ok(None) };
        // A line that is stored as witness and lost in a power cut would look like a removed line.
        file.sync_data()?;
        let whole = &bytes[..=end];
        let last = whole[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        self.offset += whole.len() as u64;
        self.lines += whole.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(Some(Witness { seq: self.lines - 1, head: Hash::of(&whole[last..]) }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn each_read_returns_the_last_whole_line() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("audit.jsonl");
        let mut tail = AuditTail::default();
        assert_eq!(tail.read_new(&path).expect("no file is no line"), None);
        let mut file = File::create_new(&path).expect("it is not there yet");
        let mut read_after = |text: &[u8]| {
            file.write_all(text).expect("there is room");
            tail.read_new(&path).expect("it is ours")
        };
        let seen = |seq, line: &[u8]| Some(Witness { seq, head: Hash::of(line) });
        assert_eq!(read_after(b"a\nbb"), seen(0, b"a\n"));
        assert_eq!(read_after(b""), None);
        assert_eq!(read_after(b"b\nc\nd"), seen(2, b"c\n"));
        assert_eq!(read_after(b"\n"), seen(3, b"d\n"));
        std::fs::remove_file(&path).expect("it is ours");
        // A device without an end, and a directory.
        std::os::unix::fs::symlink("/dev/full", &path).expect("the name is free");
        assert!(AuditTail::default().read_new(&path).is_err());
        assert!(AuditTail::default().read_new(Path::new("/dev/full")).is_err());
        assert!(AuditTail::default().read_new(Path::new("/dev")).is_err());
    }
}
