//! Reader of a recorded stream, also while it is written.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use super::segments::{file_name, offset_of};

/// Size of one read.
const CHUNK: usize = 64 << 10;

/// Reads one stream from its beginning.
#[derive(Debug)]
pub struct StreamReader {
    directory: PathBuf,
    name: &'static str,
    /// Offset of the next byte in the stream.
    position: u64,
    current: Option<File>,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamPart {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// Number of bytes that were not kept.
    Missing(u64),
}

impl StreamReader {
    pub(super) fn new(directory: &Path, name: &'static str) -> Self {
        Self { directory: directory.to_owned(), name, position: 0, current: None }
    }

    /// Returns the next part; `None` if no more is written yet.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn next_part(&mut self) -> io::Result<Option<StreamPart>> {
        loop {
            if let Some(bytes) = self.read_current()? {
                return Ok(Some(StreamPart::Bytes(bytes)));
            }
            let Some(start) = self.next_start()? else { return Ok(None) };
            // The writer may have added to the current file before it began the next one.
            if let Some(bytes) = self.read_current()? {
                return Ok(Some(StreamPart::Bytes(bytes)));
            }
            match File::open(self.directory.join(file_name(self.name, start))) {
                Ok(file) => self.current = Some(file),
                // The writer has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            let missing = start - self.position;
            self.position = start;
            if missing > 0 {
                return Ok(Some(StreamPart::Missing(missing)));
            }
        }
    }

    fn read_current(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = &mut self.current else { return Ok(None) };
        let mut bytes = vec![0; CHUNK];
        let len = file.read(&mut bytes)?;
        bytes.truncate(len);
        self.position += len as u64;
        Ok((len > 0).then_some(bytes))
    }

    /// Returns the beginning of the first file that was not read yet.
    fn next_start(&self) -> io::Result<Option<u64>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let mut first: Option<u64> = None;
        for entry in entries {
            let name = entry?.file_name();
            let offset = name.to_str().and_then(|name| offset_of(self.name, name));
            // The current file began before the position, unless none of it was read.
            let is_next = |offset: &u64| *offset > self.position || (*offset == self.position && !self.is_at_start());
            if let Some(offset) = offset.filter(is_next) {
                first = Some(first.map_or(offset, |first| first.min(offset)));
            }
        }
        Ok(first)
    }

    /// Returns true if the current file begins at the position: none of it was read.
    fn is_at_start(&self) -> bool {
        self.current.as_ref().is_some_and(|mut file| file.stream_position().is_ok_and(|position| position == 0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{SegmentLimits, SegmentWriter};
    use super::*;

    const TOTAL: usize = 30;

    fn read_all(reader: &mut StreamReader) -> Vec<StreamPart> {
        std::iter::from_fn(|| reader.next_part().expect("it is ours")).collect()
    }

    /// Returns the parts as one text, in which a number replaces missing bytes.
    fn text(parts: &[StreamPart]) -> String {
        parts.iter().fold(String::new(), |text, part| match part {
            StreamPart::Bytes(bytes) => text + &String::from_utf8_lossy(bytes),
            StreamPart::Missing(count) => text + &format!("[{count}]"),
        })
    }

    #[test]
    fn a_reader_follows_a_growing_stream() {
        let directory = tempfile::tempdir().expect("there is room");
        let mut writer = SegmentWriter::new(directory.path(), "stdout", SegmentLimits::within(TOTAL));
        let mut reader = StreamReader::new(directory.path(), "stdout");
        assert_eq!(read_all(&mut reader), []);
        let mut read = String::new();
        for (offset, bytes) in [(0, "abc"), (3, "defghijklmn"), (14, ""), (14, "opqrstuvwxyz"), (26, "0123456789")] {
            writer.write(offset, bytes.as_bytes()).expect("there is room");
            read += &text(&read_all(&mut reader));
        }
        assert_eq!(read, "abcdefghijklmnopqrstuvwxyz0123456789");
        // The file from 10 to 20 was removed.
        let late = text(&read_all(&mut StreamReader::new(directory.path(), "stdout")));
        assert_eq!(late, "abcdefghij[10]uvwxyz0123456789");
    }

    #[test]
    fn bytes_that_were_never_written_are_counted() {
        let directory = tempfile::tempdir().expect("there is room");
        let mut writer = SegmentWriter::new(directory.path(), "stderr", SegmentLimits::within(TOTAL));
        writer.write(0, b"abc").expect("there is room");
        writer.write(7, b"hij").expect("there is room");
        fs::write(directory.path().join("stderr.x"), "not a part").expect("there is room");
        assert_eq!(text(&read_all(&mut StreamReader::new(directory.path(), "stderr"))), "abc[4]hij");
        assert_eq!(read_all(&mut StreamReader::new(directory.path(), "stdout")), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_stream_keeps_its_ends_and_its_bound(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..25), 0..12)) {
            let directory = tempfile::tempdir().expect("there is room");
            let limits = SegmentLimits::within(TOTAL);
            let mut writer = SegmentWriter::new(directory.path(), "stdout", limits);
            let mut offset = 0;
            for chunk in &chunks {
                writer.write(offset, chunk).expect("there is room");
                offset += chunk.len() as u64;
            }
            let whole = chunks.concat();
            let (mut at, mut kept) = (0_usize, 0);
            for part in read_all(&mut StreamReader::new(directory.path(), "stdout")) {
                match part {
                    StreamPart::Bytes(bytes) => {
                        prop_assert_eq!(&whole[at..at + bytes.len()], &bytes[..]);
                        (at, kept) = (at + bytes.len(), kept + bytes.len());
                    }
                    StreamPart::Missing(count) => {
                        prop_assert!(at == limits.each);
                        at += usize::try_from(count).expect("it is small");
                    }
                }
            }
            prop_assert_eq!(at, whole.len());
            prop_assert!(kept <= TOTAL && (kept == whole.len() || kept > limits.tail()));
        }
    }
}
