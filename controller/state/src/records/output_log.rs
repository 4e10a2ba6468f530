//! Output of a run in the order in which the engine has logged it: bytes in segments, and an index with their times.
//!
//! The index decides what counts as stored: an entry follows its bytes. Bytes without an entry come from a controller that
//! was killed in between; the next one cuts them off and writes them again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use super::output_index::{ENTRY_LEN, IndexEntry, valid_entries};
use super::segments::stored_end;
use super::{OUTPUT_INDEX, RecordedStream, RunRecord, SegmentLimits, SegmentWriter};

/// Maximum number of bytes of one entry.
const PIECE_MAX: usize = 64 << 10;
/// Maximum number of entries: 24 MiB of index.
const ENTRIES_MAX: u64 = 1 << 20;

/// Writer of a run's output, which a later process can continue.
#[derive(Debug)]
pub struct OutputLog {
    index: Flock<File>,
    entries: u64,
    streams: [SegmentWriter; 2],
    lengths: [u64; 2],
    first: Option<IndexEntry>,
}

/// One piece of output as it is stored.
#[derive(Debug, Clone, Copy)]
pub struct LoggedBytes<'a> {
    /// Stream.
    pub stream: RecordedStream,
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// Time in microseconds since 1970.
    pub time_us: i64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl OutputLog {
    /// Opens the output of a record to continue it. Bytes that a killed process has stored without an entry are cut off.
    ///
    /// # Errors
    /// Errors of the file system, and `WouldBlock` while another writer has it open.
    pub fn open(record: &RunRecord, limits: SegmentLimits) -> io::Result<Self> {
        let directory = record.directory();
        let path = record.path(OUTPUT_INDEX);
        let index = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        // A killed process releases the lock.
        let index = Flock::lock(index, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error)?;
        let bytes = fs::read(&path)?;
        let names = RecordedStream::ALL.map(RecordedStream::as_str);
        let ends = if limits.each == 0 { [u64::MAX; 2] } else { stored_ends(directory, names)? };
        let (mut lengths, mut entries, mut first) = ([0; 2], 0, None);
        for entry in valid_entries(&bytes) {
            let stream = entry.stream as usize;
            if entry.end() > ends[stream] {
                break;
            }
            lengths[stream] = entry.end();
            entries += 1;
            first.get_or_insert(entry);
        }
        index.set_len(entries * ENTRY_LEN as u64)?;
        let [out, err] = lengths;
        let streams = [
            SegmentWriter::resume(directory, names[0], limits, out)?,
            SegmentWriter::resume(directory, names[1], limits, err)?,
        ];
        Ok(Self { index, entries, streams, lengths, first })
    }

    /// Returns the number of bytes that were stored of a stream, including bytes that were removed meanwhile.
    #[must_use]
    pub fn stored(&self, stream: RecordedStream) -> u64 {
        self.lengths[stream as usize]
    }

    /// Returns stream and time of the first piece.
    #[must_use]
    pub fn first(&self) -> Option<(RecordedStream, i64)> {
        self.first.map(|entry| (entry.stream, entry.time_us))
    }

    /// Stores the part of a piece that is not stored yet. The stream must be stored up to the beginning of the piece.
    ///
    /// # Errors
    /// Errors of the file system; `FileTooLarge` when the index is full.
    pub fn append(&mut self, piece: LoggedBytes<'_>) -> io::Result<()> {
        let stream = piece.stream as usize;
        let stored = self.lengths[stream].saturating_sub(piece.offset);
        let skip = usize::try_from(stored).unwrap_or(usize::MAX).min(piece.bytes.len());
        let mut rest = &piece.bytes[skip..];
        while !rest.is_empty() {
            if self.entries >= ENTRIES_MAX {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the output has too many pieces"));
            }
            let offset = self.lengths[stream];
            // A piece is in one file: a removed file does not take another file's bytes with it.
            let room = Some(self.streams[stream].room()).filter(|room| *room > 0).unwrap_or(PIECE_MAX);
            let (bytes, later) = rest.split_at(rest.len().min(room).min(PIECE_MAX));
            self.streams[stream].write(offset, bytes)?;
            let length = u32::try_from(bytes.len()).expect("a piece is small");
            let entry = IndexEntry { time_us: piece.time_us, offset, length, stream: piece.stream };
            self.index.write_all(&entry.encode())?;
            self.lengths[stream] = entry.end();
            self.entries += 1;
            self.first.get_or_insert(entry);
            rest = later;
        }
        Ok(())
    }
}

fn stored_ends(directory: &Path, names: [&'static str; 2]) -> io::Result<[u64; 2]> {
    Ok([stored_end(directory, names[0])?, stored_end(directory, names[1])?])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluice_contract::RunKey;

    use super::super::{OutputContent, Records};
    use super::*;

    fn record(directory: &Path) -> RunRecord {
        let key: RunKey = "r.0".parse().expect("a key");
        Records::at(directory.join("records")).create(&key).expect("there is room")
    }

    /// Returns the stored bytes of both streams; a dot replaces each missing byte.
    fn read_all(record: &RunRecord) -> [Vec<u8>; 2] {
        let mut reader = record.output(0);
        let mut streams = [Vec::new(), Vec::new()];
        while let Some(piece) = reader.next_piece().expect("it is ours") {
            let stream = &mut streams[piece.stream as usize];
            assert_eq!(piece.offset, stream.len() as u64);
            match piece.content {
                OutputContent::Bytes(bytes) => stream.extend(bytes),
                OutputContent::Missing(count) => {
                    stream.extend(vec![b'.'; usize::try_from(count).expect("it is small")]);
                }
            }
        }
        streams
    }

    #[test]
    fn a_piece_that_is_stored_in_part_is_completed() {
        let directory = tempfile::tempdir().expect("there is room");
        let record = record(directory.path());
        let piece = |bytes| LoggedBytes { stream: RecordedStream::Stdout, offset: 0, time_us: 7, bytes };
        let open = || OutputLog::open(&record, SegmentLimits::within(300)).expect("it is ours");
        open().append(piece(b"abc")).expect("there is room");
        let mut log = open();
        log.append(piece(b"abcdef")).expect("there is room");
        log.append(piece(b"abcdef")).expect("there is room");
        assert_eq!((log.stored(RecordedStream::Stdout), log.first()), (6, Some((RecordedStream::Stdout, 7))));
        assert_eq!(read_all(&record), [b"abcdef".to_vec(), vec![]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn a_writer_that_dies_between_any_two_writes_loses_and_repeats_nothing(
            pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..40)), 1..20),
            each in 1_usize..60,
            cuts in prop::collection::vec((any::<bool>(), 0_usize..50), 20),
        ) {
            let directory = tempfile::tempdir().expect("there is room");
            let record = record(directory.path());
            let limits = SegmentLimits { each };
            let mut expected = [Vec::new(), Vec::new()];
            for ((is_error, bytes), (dies_in_index, torn)) in pieces.iter().zip(&cuts) {
                let stream = RecordedStream::ALL[usize::from(*is_error)];
                let offset = expected[stream as usize].len() as u64;
                // The state of a writer that is killed in the middle of this piece.
                let mut dying = OutputLog::open(&record, limits).expect("it is ours");
                let half = &bytes[..(*torn).min(bytes.len())];
                dying.streams[stream as usize].write(offset, half).expect("there is room");
                if *dies_in_index {
                    dying.index.write_all(&[1; ENTRY_LEN - 1]).expect("there is room");
                }
                prop_assert!(OutputLog::open(&record, limits).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock));
                drop(dying);
                let mut log = OutputLog::open(&record, limits).expect("it is ours");
                prop_assert_eq!(log.stored(stream), offset);
                log.append(LoggedBytes { stream, offset, time_us: 1, bytes }).expect("there is room");
                expected[stream as usize].extend_from_slice(bytes);
            }
            for (stored, expected) in read_all(&record).iter().zip(&expected) {
                prop_assert_eq!(stored.len(), expected.len());
                // The beginning and the end are kept, and nothing else is in between.
                prop_assert!(stored.iter().zip(expected).all(|(stored, expected)| stored == expected || *stored == b'.'));
                let kept = expected.len().min(each);
                prop_assert_eq!(&stored[..kept], &expected[..kept]);
                prop_assert_eq!(stored.last(), expected.last());
            }
        }
    }
}
