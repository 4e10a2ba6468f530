//! A stream in files of bounded size: the first one and the last two are kept.
//!
//! The name of a file has the offset of its first byte in the stream, so that a reader notices missing bytes, also while
//! the stream is written.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Number of files that are kept in addition to the first one.
const LAST: usize = 2;

/// Sizes of the files of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLimits {
    /// Maximum size of one file.
    pub each: usize,
}

impl SegmentLimits {
    /// Returns the sizes with which all files of a stream together have at most this many bytes.
    #[must_use]
    pub fn within(total: usize) -> Self {
        Self { each: total / (LAST + 1) }
    }

    /// Returns the maximum number of bytes that are kept of the end of a stream.
    #[must_use]
    pub fn tail(self) -> usize {
        self.each * LAST
    }
}

/// Writes one stream.
#[derive(Debug)]
pub struct SegmentWriter {
    directory: PathBuf,
    name: &'static str,
    limits: SegmentLimits,
    /// Offset of the next byte in the stream.
    position: u64,
    current: Option<(File, usize)>,
    has_first: bool,
    last: VecDeque<u64>,
}

impl SegmentWriter {
    /// Starts a stream in a directory.
    #[must_use]
    pub fn new(directory: &Path, name: &'static str, limits: SegmentLimits) -> Self {
        let directory = directory.to_owned();
        Self { directory, name, limits, position: 0, current: None, has_first: false, last: VecDeque::new() }
    }

    /// Continues a stream at this number of valid bytes. Bytes stored beyond them are removed.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn resume(directory: &Path, name: &'static str, limits: SegmentLimits, position: u64) -> io::Result<Self> {
        let mut writer = Self { position, ..Self::new(directory, name, limits) };
        for start in starts(directory, name)? {
            let path = directory.join(file_name(name, start));
            if start >= position {
                fs::remove_file(path)?;
                continue;
            }
            let file = OpenOptions::new().append(true).open(path)?;
            let len = file.metadata()?.len().min(position - start);
            file.set_len(len)?;
            if start + len == position {
                writer.current = Some((file, usize::try_from(len).unwrap_or(usize::MAX)));
            }
            if writer.has_first {
                writer.last.push_back(start);
            }
            writer.has_first = true;
        }
        Ok(writer)
    }

    /// Returns the number of bytes to the next file boundary; 0 if nothing is kept.
    #[must_use]
    pub fn room(&self) -> usize {
        let len = self.current.as_ref().map_or(0, |(_, len)| *len);
        if len < self.limits.each { self.limits.each - len } else { self.limits.each }
    }

    /// Writes bytes that begin at this offset of the stream. The bytes before are missing, if they were not written.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&mut self, offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        if offset != self.position {
            (self.position, self.current) = (offset, None);
        }
        let each = self.limits.each;
        if each == 0 {
            return Ok(());
        }
        while !bytes.is_empty() {
            let (file, len) = match &mut self.current {
                Some((file, len)) if *len < each => (file, len),
                _ => self.next_file()?,
            };
            let (now, later) = bytes.split_at(bytes.len().min(each - *len));
            file.write_all(now)?;
            *len += now.len();
            self.position += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    fn next_file(&mut self) -> io::Result<(&mut File, &mut usize)> {
        let path = self.directory.join(file_name(self.name, self.position));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        if self.has_first {
            self.last.push_back(self.position);
        }
        self.has_first = true;
        while self.last.len() > LAST {
            let oldest = self.last.pop_front().expect("there is more than one");
            fs::remove_file(self.directory.join(file_name(self.name, oldest)))?;
        }
        let (file, len) = self.current.insert((file, 0));
        Ok((file, len))
    }
}

/// Returns the offset after the last stored byte of a stream.
pub(super) fn stored_end(directory: &Path, name: &str) -> io::Result<u64> {
    let Some(start) = starts(directory, name)?.pop() else { return Ok(0) };
    Ok(start + fs::metadata(directory.join(file_name(name, start)))?.len())
}

/// Returns the offsets at which the files of a stream begin, in order.
fn starts(directory: &Path, name: &str) -> io::Result<Vec<u64>> {
    let mut starts = Vec::new();
    for entry in fs::read_dir(directory)? {
        starts.extend(entry?.file_name().to_str().and_then(|file| offset_of(name, file)));
    }
    starts.sort_unstable();
    Ok(starts)
}

/// Returns the name of the file that begins at this offset. The names of a stream sort by their offsets.
pub(super) fn file_name(stream: &str, offset: u64) -> String {
    format!("{stream}.{offset:020}")
}

/// Returns the offset at which a file of this stream begins; `None` for another file.
pub(super) fn offset_of(stream: &str, file: &str) -> Option<u64> {
    let digits = file.strip_prefix(stream)?.strip_prefix('.')?;
    if digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}
