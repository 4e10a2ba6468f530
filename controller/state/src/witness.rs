//! What we saw of an audit file while it was written, kept where its writer cannot reach.
//!
//! A chain detects edits, and no rewrite of the whole by whoever owns file and key. Whoever has noted a line's hash in
//! time can tell.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use sluice_contract::{Hash, Witness, reader};

/// Opens an audit file to read it. What somebody has put in its place could be read without an end.
///
/// # Errors
/// The system's, and for anything but a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// A reader at the end of a file that grows.
#[derive(Debug, Default)]
pub struct AuditTail {
    offset: u64,
    lines: u64,
}

impl AuditTail {
    /// Reads on, and returns the last whole line's number and hash, if there is a new one. That line is on disk.
    ///
    /// # Errors
    /// When the file cannot be read; one that is not there yet has no lines.
    pub fn look(&mut self, path: &Path) -> io::Result<Option<Witness>> {
        let mut file = match open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let bytes = reader::read_file(BufReader::new(&file))?;
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Ok(None) };
        // A line that is noted here and lost in a power cut would look like one that somebody took away.
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
    fn each_look_sees_the_last_whole_line() {
        let path = std::env::temp_dir().join(format!("sluice-witness-{}", std::process::id()));
        let mut tail = AuditTail::default();
        assert_eq!(tail.look(&path).expect("no file is no line"), None);
        let mut file = File::create_new(&path).expect("it is not there yet");
        let mut look_after = |text: &[u8]| {
            file.write_all(text).expect("there is room");
            tail.look(&path).expect("it is ours")
        };
        let seen = |seq, line: &[u8]| Some(Witness { seq, head: Hash::of(line) });
        assert_eq!(look_after(b"a\nbb"), seen(0, b"a\n"));
        assert_eq!(look_after(b""), None);
        assert_eq!(look_after(b"b\nc\nd"), seen(2, b"c\n"));
        assert_eq!(look_after(b"\n"), seen(3, b"d\n"));
        std::fs::remove_file(&path).expect("it is ours");
        // A device without an end, and a directory.
        std::os::unix::fs::symlink("/dev/full", &path).expect("the name is free");
        assert!(AuditTail::default().look(&path).is_err());
        assert!(AuditTail::default().look(Path::new("/dev/full")).is_err());
        assert!(AuditTail::default().look(Path::new("/dev")).is_err());
        std::fs::remove_file(&path).expect("it is ours");
    }
}
