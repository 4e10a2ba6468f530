//! Reader of a run's output in the order in which it was logged, also while it is written.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::output_index::{ENTRY_LEN, IndexEntry};
use super::segments::{file_name, offset_of};
use super::{OUTPUT_INDEX, RecordedStream};

/// Reads the output of a run from a position on.
#[derive(Debug)]
pub struct OutputReader {
    directory: PathBuf,
    index: Option<File>,
    next: u64,
    /// The segment of each stream that was read last, and its offset.
    segments: [Option<(u64, File)>; 2],
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// Position after the piece: a reader that begins there continues.
    pub next: u64,
    /// Stream.
    pub stream: RecordedStream,
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// Time in microseconds since 1970.
    pub time_us: i64,
    /// The bytes, or their number.
    pub content: OutputContent,
}

/// Content of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputContent {
    /// The bytes.
    Bytes(Vec<u8>),
    /// Number of bytes that were not kept.
    Missing(u64),
}

impl OutputReader {
    pub(super) fn new(directory: &Path, next: u64) -> Self {
        Self { directory: directory.to_owned(), index: None, next, segments: [None, None] }
    }

    /// Returns the next piece; `None` if no more is stored yet.
    ///
    /// # Errors
    /// Errors of the file system, and an index with other content.
    pub fn next_piece(&mut self) -> io::Result<Option<OutputPiece>> {
        let Some(entry) = self.read_entry()? else { return Ok(None) };
        let bytes = self.read_bytes(&entry)?;
        self.next += 1;
        Ok(Some(OutputPiece {
            next: self.next,
            stream: entry.stream,
            offset: entry.offset,
            time_us: entry.time_us,
            content: bytes.map_or(OutputContent::Missing(entry.length.into()), OutputContent::Bytes),
        }))
    }

    fn read_entry(&mut self) -> io::Result<Option<IndexEntry>> {
        if self.index.is_none() {
            match File::open(self.directory.join(OUTPUT_INDEX)) {
                Ok(index) => self.index = Some(index),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let index = self.index.as_mut().expect("it was opened");
        let Some(at) = self.next.checked_mul(ENTRY_LEN as u64) else { return Ok(None) };
        index.seek(SeekFrom::Start(at))?;
        let mut bytes = [0; ENTRY_LEN];
        match index.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let other = || io::Error::new(io::ErrorKind::InvalidData, format!("{OUTPUT_INDEX} has no entry {}", self.next));
        IndexEntry::decode(&bytes).ok_or_else(other).map(Some)
    }

    /// Reads the bytes of an entry; `None` if they were removed.
    fn read_bytes(&mut self, entry: &IndexEntry) -> io::Result<Option<Vec<u8>>> {
        const LENGTH_MAX: u32 = 1 << 20;
        if entry.length > LENGTH_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a piece of output is too long"));
        }
        let mut bytes = Vec::new();
        while bytes.len() < entry.length as usize {
            let at = entry.offset + bytes.len() as u64;
            let before = bytes.len();
            let left = u64::from(entry.length) - before as u64;
            if let Some((start, file)) = &mut self.segments[entry.stream as usize]
                && *start <= at
            {
                file.seek(SeekFrom::Start(at - *start))?;
                Read::take(&mut *file, left).read_to_end(&mut bytes)?;
            }
            if bytes.len() == before && !self.open_segment(entry.stream, at)? {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    /// Opens the segment with this offset of a stream. Returns false if no segment has a byte there.
    fn open_segment(&mut self, stream: RecordedStream, at: u64) -> io::Result<bool> {
        let mut found: Option<u64> = None;
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let offset = name.to_str().and_then(|name| offset_of(stream.as_str(), name));
            found = found.max(offset.filter(|offset| *offset <= at));
        }
        let Some(start) = found else { return Ok(false) };
        match File::open(self.directory.join(file_name(stream.as_str(), start))) {
            Ok(file) => {
                let has_byte = file.metadata()?.len() > at - start;
                self.segments[stream as usize] = Some((start, file));
                Ok(has_byte)
            }
            // The writer has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
